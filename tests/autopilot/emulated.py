"""Emitted CUDA kernels, run on the CPU: what they compute can be checked where there is no GPU."""

import ctypes
import re
import subprocess
from pathlib import Path

from cuda_tui.autopilot.cuda_nest import CudaNest
from cuda_tui.autopilot.cuda_shape import CudaTuning
from cuda_tui.autopilot.emit_cuda import CUDA_SUPPORT, emit_cuda
from cuda_tui.autopilot.graph import Graph
from cuda_tui.autopilot.names import variables
from cuda_tui.autopilot.plan import Plan
from tests.autopilot.tracing import torch

EMULATOR = Path(__file__).parent / "emulator"
LAUNCH = re.compile(r"(\w+<\w+>)<<<(.+?), (dim3\(\d+, \d+\)|\d+), 0, queue>>>\((.*?)\);")
NAN_ASM = re.compile(r'  float c;\n  asm\("(max|min)\.NaN.*\n  return c;')


def as_cpp(text: str) -> str:
    """CUDA as C++ for the emulator."""
    text = LAUNCH.sub(r"emulator::launch(\2, \3, [=] { \1(\4); });", text)
    return NAN_ASM.sub(lambda found: f"  return (a {'>' if found[1] == 'max' else '<'} b) | (a != a) ? a : b;", text)


class Emulated:
    """Kernels by name, compiled together."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plans: dict[str, Plan] = {}
        self.scratch: dict[str, int] = {}
        for path, text in CUDA_SUPPORT.items():
            (folder / Path(path).name).write_text(as_cpp(text))

    def add(self, name: str, graph: Graph, plan: Plan, tuning: CudaTuning) -> str:
        """Write a kernel; returns its text as CUDA."""
        kernel = emit_cuda(plan, name=name, variables=variables(graph), about=[name], tuning=tuning)
        nest = CudaNest(plan, {key: key for key in [*plan.inputs, *(item.name for item in plan.results)]}, tuning)
        nest.bodies()
        text = kernel.files[f"kernels/{name}.cu"]
        (self.folder / f"{name}.cpp").write_text(as_cpp(text))
        self.plans[name], self.scratch[name] = plan, nest.scratch_bytes
        return text

    def build(self) -> None:
        (self.folder / "all.cpp").write_text("".join(f'#include "{name}.cpp"\n' for name in self.plans))
        command = ["g++", "-O1", "-w", "-std=c++20", "-shared", "-fPIC", f"-I{EMULATOR}", "all.cpp", "-o", "all.so"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        self.library = ctypes.CDLL(str(self.folder / "all.so"))

    def run(self, name: str, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The results of a kernel by name; memory around and in them starts as NaN."""
        plan = self.plans[name]
        results = {item.name: _poisoned(item.type.shape, item.type.strides, item.type.dtype) for item in plan.results}
        scratch = torch.full((max(self.scratch[name], 1),), 0xFF, dtype=torch.uint8)
        pointers = [inputs[key].data_ptr() for key in plan.inputs]
        pointers += [results[item.name].data_ptr() for item in plan.results]
        pointers += [scratch.data_ptr()] if self.scratch[name] else []
        launch = getattr(self.library, f"{name}_launch")
        launch.restype = ctypes.c_char_p
        assert launch(*(ctypes.c_void_p(pointer) for pointer in pointers), None) is None
        return results


def _poisoned(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> torch.Tensor:
    tensor = torch.empty_strided(shape, strides, dtype=getattr(torch, dtype))
    return tensor.fill_(float("nan") if tensor.is_floating_point() else 1)
