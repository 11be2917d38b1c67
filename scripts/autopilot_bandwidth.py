"""How close the autopilot's kernels come to the bandwidth of this GPU, on large cases, for several launches each.

    python -m scripts.autopilot_bandwidth [--out FILE] [--only NAME,...] [--compile-seconds N]

Each kernel is emitted, compiled with nvcc (all at once), compared with PyTorch, and timed: a CUDA graph of calls over
rotating sets of tensors that together exceed L2 three times. All launches of a case, PyTorch and torch.compile (for as
many cases as fit in --compile-seconds) take turns in rounds, each time after another process has used the GPU; the
first round does not count. All launches write into the same tensors, each of which meets every input: how fast two
streams run side by side depends on where in memory they lie. "ideal" bytes are each input read once and each output
written once; the share is that of the copy bandwidth measured in the same way. Not certified.
"""

import argparse
import ctypes
import functools
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cuda_tui.autopilot.cuda_nest import CudaNest
from cuda_tui.autopilot.cuda_shape import Shape
from cuda_tui.autopilot.cuda_variants import rules, variants
from cuda_tui.autopilot.emit_cuda import CUDA_SUPPORT, emit_cuda
from cuda_tui.autopilot.fuse import fuse
from cuda_tui.autopilot.graph import load
from cuda_tui.autopilot.names import variables
from cuda_tui.autopilot.plan import Plan
from cuda_tui.autopilot.rewrite import normalise
from cuda_tui.evaluation.worker.trace import trace
from scripts.autopilot_cases import Case, Function, Wrapped, cases
from scripts.gpu_agreement import Toucher

ROUNDS, REPLAYS, WINDOW_US = 5, 2, 3000.0
_cuda: Any = torch.cuda  # whose streams, graphs and events have no types


# ---- emitting and compiling


def emit(case: Case, number: int, folder: Path, *, clusters: bool) -> None:
    """Write every launch of a case; tensors for the trace are never touched."""
    given = tuple(torch.empty(shape, dtype=dtype) for shape, dtype in case.tensors)
    case.graph = normalise(load(trace(Wrapped(case.function).eval(), given, {})))
    fusion = fuse(case.graph, device="cuda")
    if len(fusion.groups) != 1:
        raise SystemExit(f"{case.name} became {len(fusion.groups)} groups: {fusion.left}")
    plan = case.plan = fusion.groups[0].plan
    tried = [("rules", rules(plan, clusters=clusters))]
    tried += [(item.title, item.tuning) for item in variants(plan, clusters=clusters)]
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


class Timer:
    """A CUDA graph of calls: `calls(n)` gives those of the n-th round, `repeats` rounds of them."""

    def __init__(self, calls: Callable[[int], list[Callable[[], Any]]], repeats: int) -> None:
        stream = _cuda.Stream()
        with _cuda.stream(stream):
            for call in calls(0):
                call()
        torch.cuda.synchronize()
        self.graph = _cuda.CUDAGraph()
        self.count, self.kept = 0, list[Any]()
        with _cuda.graph(self.graph, stream=stream):
            for number in range(repeats):
                results = [call() for call in calls(number)]
                self.count += len(results)
                self.kept = results if number == 0 else self.kept  # so that outputs rotate too
        self.times: list[float] = []

    def replay(self, *, count: bool) -> None:
        """One that warms up, then those that are timed, in microseconds of one call."""
        for number in range(REPLAYS + 1):
            start, end = (_cuda.Event(enable_timing=True) for _ in range(2))
            _cuda._sleep(200_000)
            start.record()
            self.graph.replay()
            end.record()
            torch.cuda.synchronize()
            if count and number:
                self.times.append(float(start.elapsed_time(end)) * 1e3 / self.count)


def in_rounds(timers: dict[str, Timer], toucher: Toucher) -> dict[str, tuple[float, float]]:
    """The median of each, and half the range of its rounds over it. The order is another one in each round."""
    names = list(timers)
    for number in range(ROUNDS + 1):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            toucher.touch()
            timers[name].replay(count=number > 0)
    found = {}
    for name, timer in timers.items():
        middle = statistics.median(timer.times)
        found[name] = (middle, (max(timer.times) - min(timer.times)) / 2 / middle)
        timer.kept = []
        timer.graph.reset()
    return found


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


@dataclass
class Bench:
    """What every case is measured with."""

    folder: Path
    l2: int
    toucher: Toucher
    compile_seconds: float  # left

    def measure(self, case: Case) -> list[dict[str, Any]]:
        """One row for each launch, the rules' own first."""
        assert case.plan is not None
        total = ideal_bytes(case.plan)
        sets = max(3, min(-(-3 * self.l2 // total), 16))
        inputs = draw(case, sets)
        repeats = sets * max(1, round(WINDOW_US / max(total / 3e6, 2) / sets**2))
        launchers = {title: Launcher(case, title, self.folder) for title in case.launches}
        outputs = [next(iter(launchers.values())).outputs() for _ in inputs]
        errors = {title: error_of(case, launcher, inputs[0], outputs[0]) for title, launcher in launchers.items()}
        timers = {title: Timer(_paired(launcher, inputs, outputs), repeats) for title, launcher in launchers.items()}
        functions = {"eager": case.function} | self._compiled(case, inputs)
        for name, function in functions.items():
            timers[name] = Timer(_plain(function, inputs), repeats)
        found = in_rounds(timers, self.toucher)
        others = {f"{name}_us": found[name][0] for name in functions}
        return [
            {"case": case.name, "launch": title, "us": found[title][0], "spread": found[title][1], "bytes": total,
             "error": errors[title], "shape": repr(launcher.shape), **others}
            for title, launcher in launchers.items()
        ]  # fmt: skip

    def _compiled(self, case: Case, inputs: list[list[torch.Tensor]]) -> dict[str, Function]:
        if not case.compiled or self.compile_seconds <= 0:
            return {}
        began = time.monotonic()
        torch._dynamo.reset()
        compiled = torch.compile(case.function)
        compiled(*inputs[0])
        self.compile_seconds -= time.monotonic() - began
        return {"compile": compiled}

    def copy_us(self, elements: int = 1 << 28) -> float:
        """A copy of 1 GB, the faster of the copy engine's kernel and an elementwise one."""
        x, y = (torch.randn(elements, device="cuda") for _ in range(2))
        timers = {"copy": Timer(lambda _: [lambda: y.copy_(x)], 4),
                  "multiply": Timer(lambda _: [lambda: torch.mul(x, 1.5, out=y)], 4)}  # fmt: skip
        return min(middle for middle, _ in in_rounds(timers, self.toucher).values())


def _paired(
    launcher: Launcher, inputs: list[list[torch.Tensor]], outputs: list[list[torch.Tensor]]
) -> Callable[[int], list[Callable[[], Any]]]:
    """The calls of a round: in each, inputs meet other outputs."""

    def calls(number: int) -> list[Callable[[], Any]]:
        first = number % len(outputs)
        turned = outputs[first:] + outputs[:first]
        return [functools.partial(launcher.call, a, b) for a, b in zip(inputs, turned, strict=True)]

    return calls


def _plain(function: Function, inputs: list[list[torch.Tensor]]) -> Callable[[int], list[Callable[[], Any]]]:
    """The calls of a round of a function that allocates what it returns."""
    return lambda _: [functools.partial(function, *given) for given in inputs]


def error_of(case: Case, launcher: Launcher, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> float:
    """The largest relative error of an output against PyTorch's."""
    launcher.call(inputs, outputs)
    expected = case.function(*inputs)
    listed = [expected] if isinstance(expected, torch.Tensor) else list(expected)
    return max(
        float((own.double() - true.double()).norm() / true.double().norm().clamp_min(1e-30))
        for own, true in zip(outputs, listed, strict=True)
    )


def row_text(row: dict[str, Any], shape: Shape) -> str:
    """One line of the table."""
    compiled = f"{row['compile_us']:>9.1f}" if "compile_us" in row else f"{'-':>9}"
    return (
        f"{row['case']:<26}{row['launch']:<22}{row['us']:>9.1f}{row['spread']:>7.1%}{row['tbs']:>7.2f}"
        f"{row['share']:>7.0%}{row['eager_us']:>9.1f}{compiled}{row['error']:>9.1e}  {row['registers']}, "
        f"{shape.form} w{shape.width} {shape.x}x{shape.y} n{shape.items} c{shape.chunks}"
    )


def prepare(chosen: list[Case], folder: Path) -> dict[str, str]:
    """Emit and compile all; registers by file."""
    began = time.monotonic()
    major, minor = torch.cuda.get_device_capability()
    for number, case in enumerate(chosen):
        emit(case, number, folder, clusters=major >= 9)
    emitted = time.monotonic()
    names = [name for case in chosen for name, _, _ in case.launches.values()]
    registers = compile_all(folder, names, f"{major}{minor}" + ("a" if major >= 9 else ""))
    print(f"emitted in {emitted - began:.0f} s, {len(registers)} compiled in {time.monotonic() - emitted:.0f} s")
    return registers


def main() -> None:
    """Print the table as it grows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--compile-seconds", type=float, default=12.0)
    options = parser.parse_args()
    began = time.monotonic()
    words = options.only.split(",")
    chosen = [case for case in cases() if any(word in case.name for word in words)]
    properties = _cuda.get_device_properties(0)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as made, torch.no_grad(), closing(Toucher()) as toucher:
        registers = prepare(chosen, Path(made))
        bench = Bench(Path(made), properties.L2_cache_size, toucher, options.compile_seconds)
        bandwidth = 2 * 4 * (1 << 28) / bench.copy_us()  # bytes a microsecond
        print(f"{properties.name}: copy {bandwidth / 1e6:.2f} TB/s (read and written)")
        print(f"{'case':<26}{'launch':<22}{'us':>9}{'range':>7}{'TB/s':>7}{'share':>7}{'eager':>9}{'compile':>9}"
              f"{'error':>9}  registers, shape")  # fmt: skip
        for case in chosen:
            for row in bench.measure(case):
                name, shape, _ = case.launches[row["launch"]]
                row |= {"registers": registers[name], "tbs": row["bytes"] / row["us"] / 1e6,
                        "share": row["bytes"] / row["us"] / bandwidth}  # fmt: skip
                rows.append(row)
                print(row_text(row, shape), flush=True)
            _cuda.empty_cache()
        print(f"{time.monotonic() - began:.0f} s in all")
    if options.out:
        found = {"copy_bytes_per_us": bandwidth, "device": properties.name, "rows": rows}
        options.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
