import pytest

from cuda_tui.errors import UsageError
from cuda_tui.evaluation.build.target import attached_target, own_target, runs_on, spelled
from cuda_tui.nvml import Nvml
from tests.fake_nvml import FakeGpu, nvml_of


@pytest.mark.parametrize("text", ["9.0", "sm_90", "90", "compute_90"])
def test_every_usual_spelling_is_one_target(text: str) -> None:
    assert spelled(text) == ("sm_90",)


def test_suffix_ptx_and_lists_are_kept() -> None:
    assert spelled("90a") == ("sm_90a",)
    assert spelled("8.0;8.6+PTX, sm_120") == ("sm_80", "sm_86+PTX", "sm_120")


@pytest.mark.parametrize("text", ["fast", "9", "9.9.9", "1000", ""])
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        spelled(text)


@pytest.mark.parametrize(
    ("capability", "target"),
    [((7, 5), "sm_75"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"), ((10, 0), "sm_100a"), ((12, 0), "sm_120a")],
)
def test_own_target_has_the_chips_own_instructions_where_it_has_some(capability: tuple[int, int], target: str) -> None:
    assert own_target(capability) == target


def test_attached_target_is_that_of_the_gpu_which_the_device_means() -> None:
    nvml = nvml_of(FakeGpu(), FakeGpu(uuid="GPU-b", capability=(8, 0)))
    assert attached_target("cuda", {}, nvml=nvml) == "sm_90a"
    assert attached_target("cuda:1", {}, nvml=nvml) == "sm_80"
    assert attached_target("cuda", {"CUDA_VISIBLE_DEVICES": "GPU-b"}, nvml=nvml) == "sm_80"
    assert attached_target("cpu", {}, nvml=nvml) is None
    assert attached_target("cuda", {}, nvml=Nvml(reason="no driver")) is None


@pytest.mark.parametrize(
    "targets",
    ["sm_90a", "sm_90", "sm_80,sm_90", "sm_80+PTX", "sm_90+PTX", ("sm_75", "sm_90a")],
)
def test_code_that_runs_on_compute_capability_9_0(targets: str | tuple[str, ...]) -> None:
    assert runs_on(targets, (9, 0)) == ""


@pytest.mark.parametrize("targets", ["sm_80", "sm_75,sm_89", "sm_100+PTX", "sm_100a", "sm_90f+PTX,sm_80"])
def test_code_that_does_not_run_is_told_with_what_would(targets: str) -> None:
    capability = (9, 0) if "90f" not in targets else (10, 0)
    told = runs_on(targets, capability)
    assert told.startswith(f"built for {', '.join(spelled(targets))}, and none of it runs on this GPU")
    assert own_target(capability) in told


def test_machine_code_runs_on_later_minor_versions_of_its_major_one_only() -> None:
    assert runs_on("sm_80", (8, 9)) == ""
    assert runs_on("sm_89", (8, 0))
    assert runs_on("sm_100f", (10, 3)) == ""
    assert runs_on("sm_100a", (10, 3))
    assert runs_on("sm_90a+PTX", (10, 0))  # PTX of an "a" target is for that chip alone as well
