"""Emitted CUDA kernels as callables: on a GPU, or emulated on the CPU where there is none."""

import ctypes
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
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


@dataclass
class Kernels:
    """Kernels by name, compiled together. `on_gpu` compiles with nvcc for the first GPU, else g++ and the emulator."""

    folder: Path
    on_gpu: bool = False
    plans: dict[str, Plan] = field(default_factory=dict)
    scratch: dict[str, int] = field(default_factory=dict)
    libraries: list[ctypes.CDLL] = field(default_factory=list)

    def add(self, name: str, graph: Graph, plan: Plan, tuning: CudaTuning) -> None:
        """Write a kernel."""
        kernel = emit_cuda(plan, name=name, variables=variables(graph), about=[name], tuning=tuning)
        nest = CudaNest(plan, {key: key for key in [*plan.inputs, *(item.name for item in plan.results)]}, tuning)
        text = kernel.files[f"kernels/{name}.cu"]
        (self.folder / f"{name}.cu").write_text(text if self.on_gpu else as_cpp(text))
        self.plans[name], self.scratch[name] = plan, nest.partials.bytes

    def build(self) -> None:
        """Compile all; in parallel with nvcc."""
        for path, text in CUDA_SUPPORT.items():
            (self.folder / Path(path).name).write_text(text if self.on_gpu else as_cpp(text))
        names, parts = list(self.plans), 16 if self.on_gpu else 2
        for part in range(parts):
            lines = [f'#include "{name}.cu"\n' for name in names[part::parts]]
            (self.folder / f"part{part}.cu").write_text("".join(lines))
        with ThreadPoolExecutor(parts) as pool:
            list(pool.map(self._compile, range(parts)))
        self.libraries = [ctypes.CDLL(str(self.folder / f"part{part}.so")) for part in range(parts)]

    def _compile(self, part: int) -> None:
        if self.on_gpu:
            major, minor = torch.cuda.get_device_capability()
            arch = f"{major}{minor}" + ("a" if major == 9 else "")
            command = ["nvcc", "-O1", "-std=c++17", f"-gencode=arch=compute_{arch},code=sm_{arch}", "-Xcompiler=-fPIC"]
        else:
            command = ["g++", "-O1", "-w", "-std=c++20", "-fPIC", f"-I{EMULATOR}", "-x", "c++"]
        command += ["-shared", f"part{part}.cu", "-o", f"part{part}.so"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError((done.stdout + done.stderr)[-4000:])

    def run(self, name: str, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The results of a kernel by name, on the CPU. Their memory starts as NaN, partial results as ones."""
        plan, device = self.plans[name], "cuda" if self.on_gpu else "cpu"
        moved = {key: _on_device(tensor, device) for key, tensor in inputs.items()}
        results = {item.name: _poisoned(item.type.shape, item.type.strides, item.type.dtype, device)
                   for item in plan.results}  # fmt: skip
        scratch = torch.full((max(self.scratch[name], 1),), 0xFF, dtype=torch.uint8, device=device)
        pointers = [moved[key].data_ptr() for key in plan.inputs]
        pointers += [results[item.name].data_ptr() for item in plan.results]
        pointers += [scratch.data_ptr()] if self.scratch[name] else []
        if (error := self._launch(name)(*(ctypes.c_void_p(pointer) for pointer in pointers), None)) is not None:
            raise RuntimeError(error.decode())
        return {key: tensor.cpu() for key, tensor in results.items()}

    def _launch(self, name: str) -> "ctypes._FuncPointer":
        library = self.libraries[list(self.plans).index(name) % len(self.libraries)]
        launch = getattr(library, f"{name}_launch")
        launch.restype = ctypes.c_char_p
        return launch  # type: ignore[no-any-return]


def _on_device(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """The tensor with its strides and its misalignment, if it has one."""
    if device == "cpu":
        return tensor
    shift = tensor.data_ptr() % 16 // tensor.element_size()
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    memory = torch.empty(span + shift, dtype=tensor.dtype, device=device)
    moved = memory.as_strided(tensor.shape, tensor.stride(), shift)
    moved.copy_(tensor)
    return moved


def _poisoned(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str, device: str) -> torch.Tensor:
    tensor = torch.empty_strided(shape, strides, dtype=getattr(torch, dtype), device=device)
    return tensor.fill_(float("nan") if tensor.is_floating_point() else 1)
