"""Plant faults in a candidate on the GPU, one after the other, each followed by an honest candidate that must pass.

    python3 -m scripts.gpu_faults [--only SUBSTRING]

One table: planted, verdict, code, seconds, the honest candidate after it, message. The exit code is the number of
surprises: another verdict or code than planted, a kernel not named, or an honest candidate that does not pass.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from cuda_tui.evaluation.report import Report, Verdict
from cuda_tui.evaluation.runtime import Interpreter
from cuda_tui.sandbox.rung import detect
from tests.evaluation.on_gpu.conftest import Bench
from tests.evaluation.on_gpu.planted import HONEST, MODEL, PLANTED, SOURCES, TIME_LIMIT_S, Planted


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="faults whose name contains this")
    only = parser.parse_args(arguments).only
    with tempfile.TemporaryDirectory(prefix="cuda-tui-faults-") as folder:
        interpreter = Interpreter.at(
            sys.executable, environment=dict(os.environ), rung=detect(), cache=Path(folder, "cache")
        )
        try:
            return _run(Path(folder), interpreter, [planted for planted in PLANTED if only in planted.name])
        finally:
            interpreter.close()


def _run(folder: Path, interpreter: Interpreter, planted: list[Planted]) -> int:
    began = time.monotonic()
    bench = Bench(folder / "workspace", MODEL, interpreter, init=None, time_limit_s=TIME_LIMIT_S)
    first = bench.evaluate(HONEST, "verify", **SOURCES)
    print(f"sandbox: {first.sandbox}; honest before all: {_verdict(first)} {first.message}")
    print(f"{'planted':30}{'verdict':10}{'code':14}{'s':>6}  {'honest after':14}message")
    surprises = int(first.verdict is not Verdict.PASSED)
    for number, item in enumerate(planted):
        used = Bench(folder / f"other-{number}", MODEL, interpreter, init=None, **item.task) if item.task else bench
        start = time.monotonic()
        report = used.evaluate(item.source, "verify", **SOURCES)
        seconds = time.monotonic() - start
        after = bench.evaluate(HONEST, "verify", **SOURCES)
        wrong = _wrong(item, report)
        surprises += bool(wrong) + (after.verdict is not Verdict.PASSED)
        code = report.code.value if report.code else "-"
        row = f"{item.name:30}{report.verdict.value:10}{code:14}{seconds:6.1f}  {_verdict(after):14}{report.message}"
        print(row + (f"\n  SURPRISE: {wrong}" if wrong else ""), flush=True)
        if used is not bench:
            used.evaluator.close()
    print(f"{surprises} surprises in {time.monotonic() - began:.0f} s")
    return surprises


def _wrong(item: Planted, report: Report) -> str:
    """What differs from what must be said; empty where nothing does."""
    if report.verdict is not Verdict.REJECTED or report.code is not item.code:
        return f"it should be REJECTED({item.code.value})"
    missing = [word for word in (*item.words, item.place) if word not in report.message]
    return f"the message lacks {', '.join(missing)}" if missing else ""


def _verdict(report: Report) -> str:
    return report.verdict.value + (f"({report.code.value})" if report.code else "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
