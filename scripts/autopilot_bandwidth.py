"""How close the autopilot's kernels come to the bandwidth of this GPU, on large cases, for a few launches each.

    python scripts/autopilot_bandwidth.py [--out FILE] [--only NAME,...] [--compile-seconds N]

Each kernel is emitted, compiled with nvcc (all at once), compared with PyTorch, and timed: a CUDA graph of calls over
rotating sets of tensors that together exceed L2 three times, median of seven replays. "ideal" bytes are each input
read once and each output written once. The last columns: share of the copy bandwidth measured in this run, PyTorch's
own time, torch.compile's time (for as many cases as fit in --compile-seconds). One process, not certified.
"""

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from cuda_tui.autopilot.cuda_nest import CudaNest
from cuda_tui.autopilot.cuda_shape import CudaTuning, Shape
from cuda_tui.autopilot.cuda_variants import variants
from cuda_tui.autopilot.emit_cuda import CUDA_SUPPORT, emit_cuda
from cuda_tui.autopilot.fuse import fuse
from cuda_tui.autopilot.graph import Graph, load
from cuda_tui.autopilot.names import variables
from cuda_tui.autopilot.plan import Plan
from cuda_tui.autopilot.rewrite import normalise
from cuda_tui.evaluation.worker.trace import trace

F = torch.nn.functional
Function = Callable[..., Any]
REPLAYS, WINDOW_US = 7, 3000.0
f32, bf16 = torch.float32, torch.bfloat16


class Wrapped(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(*tensors)


@dataclass
class Case:
    """A function, the shapes and dtypes of its tensors, and one kernel for each launch that is tried."""

    name: str
    function: Function
    tensors: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    high: int = 0  # integers are drawn below this
    compiled: bool = False
    graph: Graph | None = None
    plan: Plan | None = None
    launches: dict[str, tuple[str, Shape, int]] = field(default_factory=dict)  # title: file, shape, partial bytes


def cases() -> list[Case]:
    """Large ones: at least 0.5 GB each, but for two."""
    found = [
        Case("silu_mul f32 2^28", lambda x, y: F.silu(x) * y, (((1 << 28,), f32),) * 2, compiled=True),
        Case("silu_mul bf16 2^28", lambda x, y: F.silu(x) * y, (((1 << 28,), bf16),) * 2, compiled=True),
        Case("bn_silu f32", lambda x, m, v: F.silu(F.batch_norm(x, m, v)),
             (((64, 64, 160, 160), f32), ((64,), f32), ((64,), f32))),
        Case("rope f32", lambda x, c, s: x * c + torch.cat([-x[..., 64:], x[..., :64]], -1) * s,
             (((4, 32, 4096, 128), f32), ((4096, 128), f32), ((4096, 128), f32)), compiled=True),
    ]  # fmt: skip
    for width in (1024, 4096, 16384, 65536):
        rows = (1 << 27) // width
        found.append(Case(f"rms_norm f32 {width}", rms_norm, (((rows, width), f32), ((width,), f32)),
                          compiled=width in (4096, 65536)))  # fmt: skip
        found.append(Case(f"layer_norm bf16 {width}", layer_norm,
                          (((rows, width), bf16), ((width,), bf16), ((width,), bf16)),
                          compiled=width == 4096))  # fmt: skip
    for width in (1024, 32768, 262144):
        found.append(Case(f"softmax f32 {width}", lambda x: x.softmax(-1), ((((1 << 27) // width, width), f32),),
                          compiled=width > 1024))  # fmt: skip
    for dtype, rows, words in ((f32, 8192, 32768), (f32, 2048, 131072), (bf16, 4096, 131072)):
        short = "f32" if dtype is f32 else "bf16"
        found.append(Case(f"cross_entropy {short} {words}", cross_entropy,
                          (((rows, words), dtype), ((rows,), torch.int64)), high=words,
                          compiled=words > 40000))  # fmt: skip
    found += [
        Case("squared_error f32 2^27", lambda x, y: (x - y).pow(2).sum(), (((1 << 27,), f32),) * 2, compiled=True),
        Case("column_sum f32", lambda x: x.sum(0), (((65536, 4096), f32),), compiled=True),
        Case("column_sum bf16", lambda x: x.sum(0), (((65536, 4096), bf16),)),
        Case("channel_softmax f32", lambda x: x.softmax(1), (((16, 19, 512, 512), f32),), compiled=True),
    ]
    return found


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (x.shape[-1],), weight, bias)


def cross_entropy(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, target, reduction="none")


# ---- emitting and compiling


def emit(case: Case, number: int, folder: Path) -> None:
    """Write every launch of a case; tensors for the trace are never touched."""
    given = tuple(torch.empty(shape, dtype=dtype) for shape, dtype in case.tensors)
    case.graph = normalise(load(trace(Wrapped(case.function).eval(), given, {})))
    fusion = fuse(case.graph, device="cuda")
    if len(fusion.groups) != 1:
        raise SystemExit(f"{case.name} became {len(fusion.groups)} groups: {fusion.left}")
    plan = case.plan = fusion.groups[0].plan
    tried = [("rules", CudaTuning())] + [(item.title, item.tuning) for item in variants(plan)]
    for index, (title, tuning) in enumerate(tried):
        name = f"op{number}_{index}"
        kernel = emit_cuda(plan, name=name, variables=variables(case.graph), about=[case.name], tuning=tuning)
        nest = CudaNest(plan, {key: key for key in [*plan.inputs, *(item.name for item in plan.results)]}, tuning)
        (folder / f"{name}.cu").write_text(kernel.files[f"kernels/{name}.cu"])
        case.launches[title] = (name, nest.shape, nest.partials.bytes)


def compile_all(folder: Path, names: list[str], arch: str) -> dict[str, str]:
    """Shared libraries beside the sources. Returns registers and spills of each kernel's first variant."""
    for path, text in CUDA_SUPPORT.items():
        (folder / Path(path).name).write_text(text)

    def one(name: str) -> str:
        target = f"-gencode=arch=compute_{arch},code=sm_{arch}"
        command = ["nvcc", "-O3", "-std=c++17", target, "-shared", "-Xcompiler=-fPIC", "-Xptxas=-v",
                   f"{name}.cu", "-o", f"{name}.so"]  # fmt: skip
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{name}: {done.stdout}{done.stderr}")
        lines = done.stderr.splitlines()
        used = [line.split("Used ")[1].split(" reg")[0] for line in lines if "Used " in line]
        spills = any(
            "spill" in line and not line.strip().startswith("0 bytes stack frame, 0 bytes spill") for line in lines
        )
        return "/".join(used) + (" spills" if spills else "")

    with ThreadPoolExecutor(max_workers=16) as pool:
        return dict(zip(names, pool.map(one, names), strict=True))


# ---- running


def draw(case: Case, sets: int) -> list[list[torch.Tensor]]:
    """Inputs in the order of the function's arguments, `sets` times."""

    def tensor(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        if dtype is torch.int64:
            return torch.randint(0, case.high, shape, device="cuda")
        drawn = torch.randn(shape, dtype=dtype, device="cuda")
        return drawn.abs_().add_(0.1) if len(shape) == 1 and shape[0] < 1 << 20 else drawn

    return [[tensor(shape, dtype) for shape, dtype in case.tensors] for _ in range(sets)]


def graph_us(calls: list[Callable[[], Any]], repeats: int) -> float:
    """Microseconds of one call: calls in turn, `repeats` rounds of them, in one CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    kept = []
    with torch.cuda.graph(graph, stream=stream):
        for index in range(repeats):
            results = [call() for call in calls]
            kept = results if index == 0 else kept
    graph.replay()
    times = []
    for _ in range(REPLAYS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(200_000)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / (repeats * len(calls)))
    del kept
    graph.reset()
    return statistics.median(times)


class Launcher:
    """Calls one compiled kernel on given inputs and outputs."""

    def __init__(self, case: Case, title: str, folder: Path) -> None:
        name, self.shape, scratch = case.launches[title]
        self.function = getattr(ctypes.CDLL(str(folder / f"{name}.so")), f"{name}_launch")
        self.function.restype = ctypes.c_char_p
        self.scratch = torch.empty(scratch, dtype=torch.uint8, device="cuda") if scratch else None
        assert case.plan is not None
        assert case.graph is not None
        self.plan = case.plan
        names = [source.name for source in case.graph.sources.values() if source.kind == "input"]
        self.places = [names.index(key) for key in case.plan.inputs]

    def outputs(self) -> list[torch.Tensor]:
        return [
            torch.empty_strided(
                item.type.shape, item.type.strides, dtype=getattr(torch, item.type.dtype), device="cuda"
            )
            for item in self.plan.results
        ]

    def call(self, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        tensors = [inputs[place] for place in self.places] + outputs + ([] if self.scratch is None else [self.scratch])
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        error = self.function(*pointers, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        if error:
            raise RuntimeError(error.decode())


def ideal_bytes(plan: Plan) -> int:
    return sum(kind.bytes for kind in plan.inputs.values()) + sum(item.type.bytes for item in plan.results)


def measure(case: Case, folder: Path, l2: int) -> list[dict[str, Any]]:
    """One row for each launch, the rules' own first."""
    assert case.plan is not None
    total = ideal_bytes(case.plan)
    sets = max(3, min(-(-3 * l2 // total), 16))
    inputs = draw(case, sets)
    expected = case.function(*inputs[0])
    expected = [expected] if isinstance(expected, torch.Tensor) else list(expected)
    repeats = max(1, round(WINDOW_US / max(total / 3e6, 2) / sets))
    eager = graph_us([lambda item=item: case.function(*item) for item in inputs], repeats)
    rows = []
    for title in case.launches:
        launcher = Launcher(case, title, folder)
        outputs = [launcher.outputs() for _ in inputs]
        launcher.call(inputs[0], outputs[0])
        error = (
            max(
                float((own.double() - true.double()).norm() / true.double().norm().clamp_min(1e-30))
                for own, true in zip(outputs[0], expected, strict=True)
            )
            if total < 6e9
            else float("nan")
        )
        us = graph_us([lambda a=a, b=b, launcher=launcher: launcher.call(a, b)
                       for a, b in zip(inputs, outputs, strict=True)], repeats)  # fmt: skip
        rows.append({"case": case.name, "launch": title, "us": us, "bytes": total, "eager_us": eager, "error": error,
                     "shape": repr(launcher.shape)})  # fmt: skip
        del outputs, launcher
    return rows


def compiled_us(case: Case, l2: int) -> float:
    assert case.plan is not None
    total = ideal_bytes(case.plan)
    inputs = draw(case, max(3, min(-(-3 * l2 // total), 16)))
    torch._dynamo.reset()
    call = torch.compile(case.function)
    repeats = max(1, round(WINDOW_US / max(total / 3e6, 2) / len(inputs)))
    return graph_us([lambda item=item: call(*item) for item in inputs], repeats)


def copy_us(elements: int = 1 << 28) -> float:
    """A copy of 1 GB, the faster of the copy engine's kernel and an elementwise one."""
    x, y = (torch.randn(elements, device="cuda") for _ in range(2))
    return min(graph_us([lambda: y.copy_(x)], 4), graph_us([lambda: torch.mul(x, 1.5, out=y)], 4))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--compile-seconds", type=float, default=30.0)
    options = parser.parse_args()
    began = time.monotonic()
    chosen = [
        case for case in cases() if not options.only or any(word in case.name for word in options.only.split(","))
    ]
    properties = torch.cuda.get_device_properties(0)
    l2 = properties.L2_cache_size
    arch = f"{properties.major}{properties.minor}" + ("a" if properties.major == 9 else "")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as made, torch.no_grad():
        folder = Path(made)
        for number, case in enumerate(chosen):
            emit(case, number, folder)
        emitted = time.monotonic()
        registers = compile_all(folder, [name for case in chosen for name, _, _ in case.launches.values()], arch)
        print(f"emitted in {emitted - began:.0f} s, {len(registers)} compiled in {time.monotonic() - emitted:.0f} s")
        copied = copy_us()
        bandwidth = 2 * 4 * (1 << 28) / copied  # bytes a microsecond
        print(f"{properties.name}: copy {bandwidth / 1e6:.2f} TB/s (read and written)")
        print(
            f"{'case':<26}{'launch':<22}{'us':>9}{'TB/s':>7}{'share':>7}{'eager':>9}{'x':>6}{'error':>9}"
            "  registers, shape"
        )
        for case in chosen:
            for row in measure(case, folder, l2):
                row |= {"registers": registers[case.launches[row["launch"]][0]],
                        "tbs": row["bytes"] / row["us"] / 1e6,
                        "share": row["bytes"] / row["us"] / bandwidth}  # fmt: skip
                rows.append(row)
                form = case.launches[row["launch"]][1]
                print(f"{row['case']:<26}{row['launch']:<22}{row['us']:>9.1f}{row['tbs']:>7.2f}{row['share']:>7.0%}"
                      f"{row['eager_us']:>9.1f}{row['eager_us'] / row['us']:>6.2f}{row['error']:>9.1e}  "
                      f"{row['registers']}, {form.form} w{form.width} {form.x}x{form.y} n{form.items} c{form.chunks}",
                      flush=True)  # fmt: skip
        started = time.monotonic()
        for case in chosen:
            if case.compiled and time.monotonic() - started < options.compile_seconds:
                us = compiled_us(case, l2)
                best = min((row for row in rows if row["case"] == case.name), key=lambda row: row["us"])
                own = next(row for row in rows if row["case"] == case.name)
                print(f"{case.name:<26}torch.compile {us:.1f} us; rules {us / own['us']:.2f}x, "
                      f"best {us / best['us']:.2f}x ({best['launch']})", flush=True)  # fmt: skip
                for row in rows:
                    if row["case"] == case.name:
                        row["compile_us"] = us
        print(f"{time.monotonic() - began:.0f} s in all")
    if options.out:
        options.out.write_text(
            json.dumps({"copy_bytes_per_us": bandwidth, "device": properties.name, "rows": rows}, indent=1)
        )


if __name__ == "__main__":
    main()
