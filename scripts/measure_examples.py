"""Run the autopilot on every example and print one table of results, for benchmarks/RESULTS.md and the examples.

python scripts/measure_examples.py [--device cpu|cuda] [--only NAME,NAME] [OUT]

Session logs go to OUT (default: a temporary folder). On a GPU the times are the device's; the last two columns are wall
times as called.
"""

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cuda_tui.evaluation.report import Ratio, Timing
from cuda_tui.export import fold
from cuda_tui.session.log import read_log
from cuda_tui.state.model import Candidate

ROOT = Path(__file__).parents[1]


def run_example(folder: Path, out: Path, device: str) -> tuple[str, Candidate | None]:
    """One row of the table."""
    environment = os.environ | {f"XDG_{kind}_HOME": str(out / kind.lower()) for kind in ("DATA", "STATE", "CACHE")}
    command = [sys.executable, "-m", "cuda_tui.cli.main", "optimize", str(folder / "model.py")]
    before = {path.name for path in (out / "state").rglob("*.jsonl")}
    if device != "cpu":
        command += ["--inputs", "get_inputs_gpu"]
    started = time.monotonic()
    done = subprocess.run(
        [*command, "--device", device, "--model", "autopilot", "--approve", "auto", "--headless"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - started
    logs = [path for path in (out / "state").rglob("*.jsonl") if path.name not in before]
    if done.returncode != 0 or not logs:
        return f"| {folder.name} | exit {done.returncode}: {done.stderr.strip().splitlines()[-1:]} |", None
    logs[0].rename(out / f"{folder.name}.jsonl")
    state = fold(read_log(out / f"{folder.name}.jsonl").records)
    best = state.best
    if best is None:
        said = state.ended.message if state.ended else ""
        return (
            f"| {folder.name} | no faster candidate | {len(state.candidates)} | {seconds:.0f} s | {said[:200]} |",
            None,
        )
    return _row(folder.name, best, len(state.candidates), seconds), best


def _row(name: str, best: Candidate, candidates: int, seconds: float) -> str:
    measured = best.measured
    assert measured is not None
    times = [measured.candidate, *measured.baselines]
    walls = {timing.name: timing for timing in measured.wall}
    cells = [
        name,
        *(
            "; ".join(f"{timing.name} {_time(timing)}" for timing in times[first:last])
            for first, last in ((0, 1), (1, 9))
        ),
        *(_ratio(measured.ratio_to("eager")), _ratio(measured.headline)),
        *(f"{candidates}", f"{seconds:.0f} s"),
        "unknown" if measured.foreign_load is None else f"{measured.foreign_load:.2f}",
        *(_time(walls[key]) if key in walls else "-" for key in ("candidate", "eager")),
    ]
    return f"| {' | '.join(cells)} |"


def _time(timing: Timing) -> str:
    return f"{timing.median_us:,.{1 if timing.median_us < 100 else 0}f} ±{timing.spread:.0%}"


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio.value:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}] {ratio.outcome} ({ratio.baseline})"


def main() -> None:
    """Print the table as it grows."""
    parser = argparse.ArgumentParser(description="Run the autopilot on the examples.")
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp(prefix="cuda-tui-examples-"))
    out.mkdir(parents=True, exist_ok=True)
    only = set(filter(None, options.only.split(",")))
    print("| example | candidate µs | baselines µs | against eager | against the fastest | measured | took | load "
          "| wall µs | eager's wall µs |")  # fmt: skip
    print("|" + "---|" * 10)
    gains: list[tuple[float, float]] = []
    for model in sorted((ROOT / "examples").glob("*/model.py")):
        if only and model.parent.name not in only:
            continue
        row, best = run_example(model.parent, out, options.device)
        print(row, flush=True)
        if best is not None and best.measured is not None and (eager := best.measured.ratio_to("eager")) is not None:
            gains.append((eager.value, best.measured.headline.value))
    for number, what in enumerate(("eager", "the fastest baseline")):
        if gains:
            mean = math.exp(sum(math.log(gain[number]) for gain in gains) / len(gains))
            print(f"geometric mean against {what}: {mean:.2f}x over {len(gains)} examples")


if __name__ == "__main__":
    main()
