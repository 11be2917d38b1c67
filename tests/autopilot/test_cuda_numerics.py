"""What the emitted CUDA computes: emulated on the CPU everywhere, and on the device where there is a GPU."""

import shutil
from pathlib import Path

import pytest

from cuda_tui.autopilot.cuda_shape import Form, choose
from cuda_tui.autopilot.graph import Graph
from tests.autopilot.cuda_cases import FORMS, cuda_cases
from tests.autopilot.cuda_kernels import Kernels
from tests.autopilot.numerics import _error, _flat
from tests.autopilot.tracing import fused, torch

pytestmark = pytest.mark.slow
GPU = torch.cuda.is_available()
LOOSE = {torch.bfloat16: 4e-3, torch.float16: 5e-4}  # half an epsilon and a little, for results of 16 bits


class Suite:
    """All kernels of all cases: the rules' own launch, and every form that can be forced."""

    def __init__(self, folder: Path, *, on_gpu: bool) -> None:
        self.kernels = Kernels(folder, on_gpu)
        self.cases = cuda_cases()
        self.graphs: dict[str, Graph] = {}
        self.made: dict[str, list[str]] = {}
        for name, (function, tensors) in self.cases.items():
            self.graphs[name], fusion = fused(function, *tensors, device="cuda")
            assert len(fusion.groups) == 1, f"{name} became {len(fusion.groups)} groups: {fusion.left}"
            plan = fusion.groups[0].plan
            shapes = {choose(plan, tuning): label for label, tuning in reversed(FORMS.items())}
            if not on_gpu:  # blocks are emulated one after the other
                shapes = {shape: label for shape, label in shapes.items() if shape.form is not Form.CLUSTER}
            self.made[name] = [f"op_{name}_{label}" for label in shapes.values()]
            for label in shapes.values():
                self.kernels.add(f"op_{name}_{label}", self.graphs[name], plan, FORMS[label])
        self.kernels.build()

    def check(self, name: str, *, shift: int = 0) -> None:
        """Compare every kernel of a case with fp64; `shift` moves inputs that many elements off alignment."""
        function, tensors = self.cases[name]
        sources = [source for source in self.graphs[name].sources.values() if source.kind == "input"]
        given = {source.name: _shifted(tensor, shift) for source, tensor in zip(sources, tensors, strict=True)}
        eager = _flat(function(*tensors))
        exact = _flat(function(*(x.double() if x.is_floating_point() else x for x in tensors)))
        for kernel in self.made[name]:
            found = self.kernels.run(kernel, given)
            for output, own, true in zip(self.graphs[name].output_names, eager, exact, strict=True):
                ours, theirs, odd = _error(found[output], own, true.double())
                assert odd == 0, f"{kernel}: NaN or infinity at other places"
                assert ours <= max(8 * theirs, LOOSE.get(own.dtype, 5e-7)), f"{kernel}: error {ours:.1e}"


def _shifted(tensor: torch.Tensor, shift: int) -> torch.Tensor:
    if not shift or not tensor.is_contiguous():
        return tensor
    memory = torch.empty(tensor.numel() + shift, dtype=tensor.dtype)
    return memory[shift:].view(tensor.shape).copy_(tensor)


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return Suite(tmp_path_factory.mktemp("emulated"), on_gpu=False)


@pytest.fixture(scope="module")
def on_gpu(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return Suite(tmp_path_factory.mktemp("on_gpu"), on_gpu=True)


NAMES = sorted(cuda_cases())


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on PATH")
@pytest.mark.parametrize("name", NAMES)
def test_emulated_kernels_agree_with_fp64(name: str, emulated: Suite) -> None:
    emulated.check(name)
    emulated.check(name, shift=1)


@pytest.mark.gpu
@pytest.mark.skipif(not GPU, reason="no CUDA device")
@pytest.mark.parametrize("name", NAMES)
def test_kernels_agree_with_fp64_on_the_gpu(name: str, on_gpu: Suite) -> None:
    on_gpu.check(name)
    on_gpu.check(name, shift=1)
