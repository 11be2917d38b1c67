"""Identical code against itself on a GPU, and small known differences: how often does the method err?

python scripts/gpu_identical.py [TRIALS]

Each trial is the product's own measurement (four fresh candidate processes against two of eager). Prints one row for
each size: trials called faster or slower, the largest deviation, the widest interval, and the readings that the limits
of `evaluation/device_checks.py` and `device_measure.py` are set by. For benchmarks/RESULTS.md.
"""

import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from cuda_tui.evaluation import device_checks, device_measure
from cuda_tui.evaluation.baselines import Baselines, Way
from cuda_tui.evaluation.candidate import Candidate
from cuda_tui.evaluation.machine import GpuWatch, Place
from cuda_tui.evaluation.reference import Reference
from cuda_tui.evaluation.report import Measured, Outcome
from cuda_tui.evaluation.runtime import Interpreter, Runtime
from cuda_tui.sandbox.rung import detect
from cuda_tui.workspace.task import Task
from cuda_tui.workspace.workspace import Workspace

SOURCE = """
import torch


class {name}(torch.nn.Module):
    def forward(self, x):
        {body}


def get_inputs():
    return [torch.randn({shape}, dtype=torch.{dtype})]
"""
# name, input shape, dtype, what eager does, what the candidate does in its place
CASES = (
    ("2^12 floats", "4096", "float32", "return x * 1.5", "return x * 1.5"),
    ("2^20 floats", "1 << 20", "float32", "return x * 1.5", "return x * 1.5"),
    ("2^22 floats", "1 << 22", "float32", "return x * 1.5", "return x * 1.5"),
    ("2^24 floats", "1 << 24", "float32", "return x * 1.5", "return x * 1.5"),
    ("2^27 floats", "1 << 27", "float32", "return x * 1.5", "return x * 1.5"),
    ("softmax 4096 x 1024", "4096, 1024", "float32", "return x.softmax(-1)", "return x.softmax(-1)"),
    ("bf16 matmul 2048", "2048, 2048", "bfloat16", "return x @ x", "return x @ x"),
    ("bf16 matmul 8192", "8192, 8192", "bfloat16", "return x @ x", "return x @ x"),
    ("4 kernels, candidate 3", "1 << 22", "float32", "return x * 1.5 + 1 - 2 + 1", "return x * 1.5 + 0 - 0"),
)


def one_case(case: tuple[str, str, str, str, str], trials: int, interpreter: Interpreter, folder: Path) -> str:
    """One row of the table."""
    name, shape, dtype, reference_body, candidate_body = case
    fields = {"shape": shape, "dtype": dtype}
    task = Task(name="identical", device="cuda")
    source = SOURCE.format(name="Model", body=reference_body, **fields)
    workspace = Workspace.create(folder, task=task, model_source=source.encode())
    (folder / "model_new.py").write_text(SOURCE.format(name="ModelNew", body=candidate_body, **fields))
    runtime = Runtime(root=folder, task=task, interpreter=interpreter)
    reference = Reference(runtime, folder / task.file)
    reference.start()
    baselines = Baselines(runtime, reference, folder / task.file, ways=(Way(name="eager", processes=2),))
    baselines.start(cpu=None)
    candidate = Candidate(workspace, None, runtime, reference)
    found: list[Measured] = []
    readings: list[tuple[float, int]] = []
    original = device_checks.check_company

    def recording(candidates: list[device_measure.Process], eager: list[device_measure.Process]) -> None:
        usual = statistics.median(value for process in eager for value in process.probes_us)
        for process in candidates:
            readings.append((statistics.median(process.probes_us) / usual, process.foreign_ticks))
        original(candidates, eager)

    device_checks.check_company = recording
    began = time.monotonic()
    try:
        for _ in range(trials):
            with GpuWatch(Place.of("cuda", os.environ), name="cuda") as watch:
                found.append(device_measure.measure(candidate, reference, baselines, watch=watch, emit=lambda _: None))
    finally:
        device_checks.check_company = original
        candidate.close()
        runtime.close()
    return row(name, found, readings, (time.monotonic() - began) / trials)


def row(name: str, found: list[Measured], readings: list[tuple[float, int]], seconds: float) -> str:
    """The figures of all trials of a case."""
    ratios = [measured.ratios[0] for measured in found]
    verdicts = sum(ratio.outcome in (Outcome.FASTER, Outcome.SLOWER) for ratio in ratios)
    above_zero = sum(ratio.low > 1 or ratio.high < 1 for ratio in ratios)
    half_percent = sum(ratio.low > 1.005 or ratio.high < 0.995 for ratio in ratios)
    dropped = sum(timing.dropped_slices for measured in found for timing in (measured.candidate, *measured.baselines))
    slices = sum(timing.slices for measured in found for timing in (measured.candidate, *measured.baselines))
    watched = [measured.gpu for measured in found if measured.gpu is not None]
    reasons = sorted({reason for gpu in watched for reason in gpu.throttle})
    cells = [
        name,
        f"{statistics.median(measured.candidate.median_us for measured in found):.2f}",
        f"{verdicts}/{len(ratios)}",
        f"{half_percent}",
        f"{above_zero}",
        f"{statistics.fmean(ratio.value for ratio in ratios):.4f}",
        f"{max(abs(ratio.value - 1) for ratio in ratios):.2%}",
        f"{max((ratio.high - ratio.low) / 2 for ratio in ratios):.2%}",
        f"{dropped}/{slices}",
        f"{min(probe for probe, _ in readings):.3f}-{max(probe for probe, _ in readings):.3f}",
        f"{max(ticks for _, ticks in readings)}",
        f"{max((gpu.power_w or 0) for gpu in watched):.0f} {'/'.join(reasons)}" if watched else "unknown",
        f"{seconds:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table as it grows."""
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    print(
        "| case | µs | over 1% | over 0.5% | over 0 | mean ratio | worst | half-width | dropped | probe | ticks "
        "| W, throttle | s a trial |"
    )
    print("|" + "---|" * 13)
    with tempfile.TemporaryDirectory(prefix="cuda-tui-identical-") as top:
        interpreter = Interpreter.at(
            sys.executable, environment=dict(os.environ), rung=detect(), cache=Path(top, "cache")
        )
        interpreter.parent.zygote(threading.Event())
        try:
            for number, case in enumerate(CASES):
                print(one_case(case, trials, interpreter, Path(top, f"case-{number}")), flush=True)
        finally:
            interpreter.close()


if __name__ == "__main__":
    main()
