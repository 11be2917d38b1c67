import pytest

from cuda_tui.errors import UsageError
from cuda_tui.evaluation.build.target import attached, choose, runs_on, spelled


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


def test_without_a_device_and_a_name_it_asks() -> None:
    with pytest.raises(UsageError, match="No GPU is attached"):
        choose((), None)
    assert choose((), (9, 0)) == ("sm_90a",)
    assert choose(("native", "8.0"), (8, 6)) == ("sm_86", "sm_80")
    assert attached((8, 9)) == "sm_89"


def test_binary_for_another_chip_does_not_run() -> None:
    assert not runs_on("sm_75", (9, 0))
    assert not runs_on("sm_90a", (10, 0))
    assert not runs_on("sm_86", (8, 0))
    assert runs_on("sm_80", (8, 6))
    assert runs_on("sm_80,sm_90a", (9, 0))
    assert runs_on("sm_80+PTX", (12, 0))
