"""Run the autopilot on every example and print one table of results, for benchmarks/RESULTS.md and the examples.

python scripts/measure_examples.py [OUT]     # session logs go to OUT (default: a temporary folder)
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cuda_tui.evaluation.report import Ratio
from cuda_tui.export import fold
from cuda_tui.session.log import read_log
from cuda_tui.state.model import Candidate

ROOT = Path(__file__).parents[1]


def run_example(folder: Path, out: Path) -> str:
    """One row of the table."""
    environment = os.environ | {f"XDG_{kind}_HOME": str(out / kind.lower()) for kind in ("DATA", "STATE", "CACHE")}
    command = [sys.executable, "-m", "cuda_tui.cli.main", "optimize", str(folder / "model.py")]
    before = {path.name for path in (out / "state").rglob("*.jsonl")}
    started = time.monotonic()
    done = subprocess.run(
        [*command, "--device", "cpu", "--model", "autopilot", "--approve", "auto", "--headless"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - started
    logs = [path for path in (out / "state").rglob("*.jsonl") if path.name not in before]
    if done.returncode != 0 or not logs:
        return f"| {folder.name} | exit {done.returncode}: {done.stderr.strip().splitlines()[-1:]} |"
    logs[0].rename(out / f"{folder.name}.jsonl")
    state = fold(read_log(out / f"{folder.name}.jsonl").records)
    best = state.best
    if best is None:
        return f"| {folder.name} | no faster candidate | | | | | {len(state.candidates)} | {seconds:.0f} s |"
    return _row(folder.name, best, len(state.candidates), seconds)


def _row(name: str, best: Candidate, candidates: int, seconds: float) -> str:
    measured = best.measured
    assert measured is not None
    times = {timing.name: timing for timing in (measured.candidate, *measured.baselines)}
    cells = [
        f"{times[key].median_us:,.0f} ±{times[key].spread:.0%}" if key in times else "not valid"
        for key in ("eager", "compile", "candidate")
    ]
    ratios = [_ratio(measured.ratio_to("eager")), _ratio(measured.ratio_to("compile"))]
    load = "unknown" if measured.foreign_load is None else f"{measured.foreign_load:.2f}"
    return f"| {' | '.join([name, *cells, *ratios, str(candidates), f'{seconds:.0f} s', load])} |"


def _ratio(ratio: Ratio | None) -> str:
    return f"{ratio.value:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}] {ratio.outcome}" if ratio else "-"


def main() -> None:
    """Print the table as it grows."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="cuda-tui-examples-"))
    out.mkdir(parents=True, exist_ok=True)
    print(
        "| example | eager µs | compile µs | candidate µs | against eager | against compile | measured | took | load |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for model in sorted((ROOT / "examples").glob("*/model.py")):
        print(run_example(model.parent, out), flush=True)


if __name__ == "__main__":
    main()
