"""The Markdown report."""

from pathlib import Path

import msgspec
import pytest

from cuda_tui.errors import UsageError
from cuda_tui.events import Approval, SessionStarted
from cuda_tui.export import fold, report, write_report
from cuda_tui.state.apply import apply
from cuda_tui.state.model import State
from tests import fixtures_session as fixtures
from tests.gpu_session import on_gpu


def test_report_has_task_result_table_method_and_how_to_repeat() -> None:
    text = report(fold(fixtures.session_entries()))
    for expected in (
        "# model.py:RMSNormSwiGLU",
        "Candidate 5 is **1.62x [1.56, 1.68]** as fast as compile",
        "| 1 | REJECTED BUILD |",
        "| 5 | PASSED | 3,020.0 µs | ±0.3% | 4 | 1.62x [1.56, 1.68] vs compile, faster | 2.41x [2.33, 2.49] |",
        fixtures.METHOD,
        fixtures.DEVICE,
        "git checkout 5c0ffee5a1b2",
        "seeds 91, 7411",
        "Streaming stores: predicted 10%, measured 17%.",
    ):
        assert expected in text


def test_report_of_a_gpu_task_says_clock_wall_time_and_conditions() -> None:
    entries = [msgspec.structs.replace(entry, event=on_gpu(entry.event)) for entry in fixtures.session_entries()]
    text = report(fold(entries))
    assert "- device time, CUDA graphs, certified" in text
    assert "- as called (wall time, not certified): candidate 13.1 µs" in text
    assert "THROTTLED: power cap, 1 other process on the GPU" in text


def test_report_claims_nothing_without_a_win() -> None:
    text = report(fold(fixtures.session_entries()[:20]))
    assert "No candidate is verified and faster" in text


def test_foreign_text_cannot_break_the_table() -> None:
    odd = SessionStarted(
        session="s",
        title="a|b\n# not a heading",
        workspace="w",
        device="cpu",
        model="m`x",
        approval=Approval.STEP,
        version="1",
    )
    text = report(apply(State(), odd, at=0.0))
    assert text.startswith("# a\\|b # not a heading\n")
    assert "`` m`x ``" in text


def test_report_never_overwrites_a_file(tmp_path: Path) -> None:
    state = fold(fixtures.session_entries())
    path = tmp_path / "report.md"
    assert write_report(state, path) == path
    with pytest.raises(UsageError, match="exists already"):
        write_report(state, path)
    with pytest.raises(UsageError, match="cannot write"):
        write_report(state, tmp_path / "missing" / "report.md")
