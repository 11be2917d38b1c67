"""What the place of a task says of its GPU."""

import pytest

from cuda_tui.evaluation.machine import Place
from cuda_tui.gpu import GpuPlace
from tests.fake_nvml import FakeGpu, nvml_of


@pytest.mark.parametrize(
    ("mig", "facts"),
    [(None, {"name": "NVIDIA A100", "capability": [8, 0]}), ("MIG-1", {"capability": [8, 0]})],
)
def test_a_whole_gpu_tells_its_name_and_a_slice_only_its_capability(mig: str | None, facts: dict[str, object]) -> None:
    place = Place(lease="gpu", gpu=GpuPlace(device="cuda", index=0, mig=mig))
    assert place.facts(nvml=nvml_of(FakeGpu(name="NVIDIA A100", capability=(8, 0)))) == facts


def test_what_nvml_does_not_say_is_left_out() -> None:
    assert Place(lease="cpu").facts() == {}
    silent = FakeGpu(silent=frozenset(["capability"]))
    place = Place(lease="gpu", gpu=GpuPlace(device="cuda", index=0))
    assert place.facts(nvml=nvml_of(silent)) == {"name": "NVIDIA H200"}
