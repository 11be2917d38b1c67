"""The recorded sessions that come with the examples are whole and end with a result."""

from pathlib import Path

import pytest

from cuda_tui.events import Outcome
from cuda_tui.export import fold, report
from cuda_tui.session.log import read_log

RECORDED = sorted((Path(__file__).parents[1] / "examples" / "sessions").glob("*.jsonl"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recorded_session_replays_to_a_faster_candidate(path: Path) -> None:
    log = read_log(path)
    assert log.problems == ()
    assert log.torn_bytes == 0
    state = fold(log.records)
    assert state.best is not None
    assert state.ended is not None
    assert state.ended.outcome is Outcome.DONE
    assert "Unknown" not in report(state)
