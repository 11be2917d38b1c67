"""What a run without a screen prints of a measurement on a GPU."""

import io

import msgspec

from cuda_tui.cli import evaluate
from cuda_tui.cli.printing import LinePrinter
from cuda_tui.evaluation.conditions import gpu_lines
from cuda_tui.evaluation.report import Measured
from cuda_tui.events import CandidateEvaluated
from tests import fixtures_session as fixtures
from tests.gpu_session import gpu_measured


def on_gpu() -> Measured:
    return gpu_measured(fixtures.measured(eager=2.41, compiled=1.62, median_us=3_020.0))


def test_headless_run_says_the_clock_the_wall_time_and_what_the_gpu_did() -> None:
    out = io.StringIO()
    LinePrinter(out).show(CandidateEvaluated(number=1, report=fixtures.passed_report(on_gpu())))
    shown = out.getvalue()
    assert "device time, CUDA graphs, certified" in shown
    assert "as called (wall time, not certified): candidate 13.1 µs, eager 41.0 µs" in shown
    assert "compile reduce-overhead 11.8 µs" in shown
    assert "1230 to 1980 MHz, up to 690 W, 61 °C, THROTTLED: power cap, 1 other process on the GPU" in shown
    assert "note: the GPU reached its power limit" in shown


def test_eval_prints_the_same() -> None:
    shown = "\n".join(evaluate.lines(fixtures.passed_report(on_gpu())))
    assert all(line in shown for line in gpu_lines(on_gpu()))


def test_weaker_evidence_is_called_so_and_the_cpu_says_none_of_it() -> None:
    weaker = msgspec.structs.replace(on_gpu(), clock="events", certified=False, gpu=None)
    assert gpu_lines(weaker)[0] == "device time, queued batches: weaker evidence, not certified"
    assert "GPU conditions unknown: the driver does not say" in gpu_lines(weaker)
    assert gpu_lines(fixtures.measured(eager=2.0, compiled=1.5, median_us=10.0)) == []
