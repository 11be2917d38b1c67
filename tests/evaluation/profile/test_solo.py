"""One side alone in the sandbox: it runs, it says why it did not, and it ends in time."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_tui.evaluation.profile import fault
from cuda_tui.evaluation.profile.sanitizer import Sanitizer
from cuda_tui.evaluation.profile.solo import Calls
from cuda_tui.evaluation.report import Code

from .conftest import HONEST, Bench

pytestmark = pytest.mark.slow

RAISES = HONEST.replace("return torch.relu", "raise RuntimeError('CUDA error: boom')\n        return torch.relu")
HANGS = "import time\n" + HONEST.replace("return torch.relu", "time.sleep(600)\n        return torch.relu")
READS_MODEL = "import model\n" + HONEST


def test_candidate_reference_and_probe_run_alone(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    draw = bench.reference.draw()
    sides = [
        bench.solo.probe(),
        bench.solo.reference_side(bench.workspace.root / "model.py"),
        bench.solo.candidate_side(bench.candidate(HONEST), draw),
    ]
    for side in sides:
        ran = bench.solo.run(side, how=Calls(warm=1, calls=2))
        assert (ran.returncode, ran.error, ran.timed_out) == (0, None, False), ran.text


def test_what_a_side_raises_is_known_with_its_line(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    ran = bench.solo.run(bench.solo.candidate_side(bench.candidate(RAISES), bench.reference.draw()))
    assert ran.returncode == 3
    assert ran.error is not None
    assert ran.error["message"] == "CUDA error: boom"
    assert Path(ran.error["file"]).name == "model_new.py"


def test_fault_without_memcheck_is_placed_by_blocking_launches(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    side = bench.solo.candidate_side(bench.candidate(RAISES), bench.reference.draw())
    place = fault.find(Sanitizer(bench.solo, refused="not supported"), side, Code.MEM_FAULT)
    assert place is not None
    assert (place.evidence, place.file, place.kind) == ("blocking launches", "model_new.py", "CUDA error: boom")


def test_side_that_hangs_ends_in_time_and_tells_where(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    side = bench.solo.candidate_side(bench.candidate(HANGS), bench.reference.draw())
    ran = bench.solo.run(side, how=Calls(limit_s=1.0))
    assert ran.timed_out
    assert "model_new.py" in ran.output


def test_candidate_alone_cannot_read_the_reference(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    ran = bench.solo.run(bench.solo.candidate_side(bench.candidate(READS_MODEL), bench.reference.draw()))
    assert ran.error is not None
    assert ran.error["type"] == "ModuleNotFoundError"


def test_side_runs_under_a_tool_that_writes_its_own_log(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(name="tool", script='echo "the log" > "$1"; shift; exec "$@"')
    program = str(Path(bench.runtime.environment["PATH"].split(":")[1]) / "tool")
    ran = bench.solo.run(bench.solo.probe(), tool=lambda log: [program, str(log)])
    assert (ran.returncode, ran.log) == (0, "the log\n"), ran.text
