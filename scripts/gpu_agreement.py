"""One call's time on a GPU by six clocks, for six kernels from 2 µs to 1 ms: do they agree, and why not?

python scripts/gpu_agreement.py          # one table; ncu columns where ncu may read the device's counters

Each figure is a median; rotating inputs exceed the L2 cache three times. For benchmarks/RESULTS.md.
"""

import csv
import io
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from cuda_tui.evaluation.worker import device as gpu
from cuda_tui.evaluation.worker.graphs import GraphTimer, Sets

REPEATS = 30
NCU_CALLS = 5
SKIPPED = 2  # the first calls of a kernel under ncu

_cuda: Any = torch.cuda  # whose events and profiler have no types
Model = Callable[..., torch.Tensor]
KERNELS: dict[str, tuple[Model, Callable[[], list[torch.Tensor]]]] = {
    "mul 2^18": (lambda x: x * 1.5, lambda: [torch.randn(1 << 18, device="cuda")]),
    "softmax 512 x 4096": (lambda x: x.softmax(-1), lambda: [torch.randn(512, 4096, device="cuda")]),
    "mul 2^24": (lambda x: x * 1.5, lambda: [torch.randn(1 << 24, device="cuda")]),
    "bf16 matmul 2048": (
        lambda x, y: x @ y,
        lambda: [torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16) for _ in range(2)],
    ),
    "sum of rows 16384 x 8192": (lambda x: x.sum(-1), lambda: [torch.randn(16384, 8192, device="cuda")]),
    "mul 2^29": (lambda x: x * 1.5, lambda: [torch.randn(1 << 29, device="cuda")]),
}


class Toucher:
    """Another process that uses the GPU for a moment: a process that has just built graphs runs slow until one does."""

    def __init__(self) -> None:
        code = (
            "import sys, torch; x = torch.zeros(1, device='cuda')\n"
            "for _ in sys.stdin: x += 1; torch.cuda.synchronize(); print(flush=True)"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def touch(self) -> None:
        """Do it, and wait for it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.process.stdout.readline()

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def by_graph(model: Model, given: list[torch.Tensor], toucher: Toucher) -> tuple[float, float, Sets]:
    """Chained graphs, before and after another process has used the GPU."""
    timer = GraphTimer(model, lambda placed: (tuple(placed), {}), given, [True] * len(given))
    first = statistics.median(timer.slice(1)["spans_us"])
    readings = []
    for seed in range(5):
        toucher.touch()
        readings.append(statistics.median(timer.slice(seed)["spans_us"]))
    sets = Sets(given, timer.sets, [True] * len(given))
    timer.close()
    return first, statistics.median(readings), sets


def by_events(model: Model, sets: Sets, count: int, *, queued: bool) -> float:
    """An event pair around each call; queued behind a spin, or launched into an empty stream."""
    spans = []
    for number in range(REPEATS):
        inputs = sets.tensors(number % count)
        start, end = (_cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        if queued:
            gpu.spin(200)
        start.record()
        model(*inputs)
        end.record()
        torch.cuda.synchronize()
        spans.append(float(start.elapsed_time(end)) * 1000)
    return statistics.median(spans)


def by_wall(model: Model, sets: Sets, count: int) -> float:
    """The host's clock over batches of calls as called."""
    spans = []
    for _ in range(9):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for number in range(20):
            model(*sets.tensors(number % count))
        torch.cuda.synchronize()
        spans.append((time.perf_counter() - began) / 20 * 1e6)
    return statistics.median(spans)


def by_profiler(model: Model, sets: Sets, count: int) -> float:
    """The kernels' own durations, from CUPTI."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as recorded:
        for number in range(REPEATS):
            model(*sets.tensors(number % count))
        torch.cuda.synchronize()
    return sum(float(event.self_device_time_total) for event in recorded.key_averages()) / REPEATS


def under_ncu() -> None:
    """What the ncu process does: some calls of each kernel over rotating inputs."""
    for model, make in KERNELS.values():
        sets = Sets(make(), 4, [True] * len(make()))
        model(*sets.tensors(0))
        torch.cuda.synchronize()
        _cuda.profiler.start()
        for number in range(NCU_CALLS):
            model(*sets.tensors(number % 4))
        torch.cuda.synchronize()
        _cuda.profiler.stop()


def by_ncu(cache: str) -> list[float]:
    """Microseconds of each kernel by ncu, in the order above. Raises RuntimeError with ncu's own words."""
    ncu = shutil.which("ncu")
    if ncu is None:
        raise RuntimeError("ncu is not installed")
    command = [ncu, "--csv", "--clock-control", "none", "--cache-control", cache, "--profile-from-start", "off"]
    command += ["--metrics", "gpu__time_duration.sum", sys.executable, __file__, "--under-ncu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    values = []
    for found in csv.DictReader(io.StringIO("\n".join(lines))):
        scale = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3}[
            found["Metric Unit"]
        ]
        values.append(float(found["Metric Value"].replace(",", "")) * scale)
    if len(values) != NCU_CALLS * len(KERNELS):
        raise RuntimeError(f"ncu timed {len(values)} kernels: {(done.stderr or done.stdout).strip()[-200:]}")
    groups = [values[start : start + NCU_CALLS] for start in range(0, len(values), NCU_CALLS)]
    return [statistics.median(group[SKIPPED:]) for group in groups]


def main() -> None:
    """Print the table."""
    rows: dict[str, list[float]] = {}
    toucher = Toucher()
    with torch.no_grad():
        for name, (model, make) in KERNELS.items():
            given = make()
            alone, graph, sets = by_graph(model, given, toucher)
            count = len(sets._slabs[0].places)
            by_events(model, sets, count, queued=False)
            rows[name] = [
                graph, alone, by_events(model, sets, count, queued=True), by_events(model, sets, count, queued=False),
                by_wall(model, sets, count), by_profiler(model, sets, count),
            ]  # fmt: skip
            del sets
            torch.cuda.empty_cache()
    toucher.close()
    for cache in ("none", "all"):
        try:
            for name, value in zip(rows, by_ncu(cache), strict=True):
                rows[name].append(value)
        except (RuntimeError, subprocess.SubprocessError) as error:
            print(f"ncu, cache control {cache}: {error}")
    print("| kernel | graph | graph, just built | event, queued | event | wall | CUPTI | ncu warm | ncu flushed |")
    print("|" + "---|" * 9)
    for name, values in rows.items():
        print(f"| {name} | {' | '.join(f'{value:.2f}' for value in values)} |")


if __name__ == "__main__":
    if "--under-ncu" in sys.argv:
        with torch.no_grad():
            under_ncu()
    else:
        main()
