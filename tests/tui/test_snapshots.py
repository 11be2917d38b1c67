"""Screens as pictures. A changed picture is looked at before it is accepted: `pytest --snapshot-update`."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from cuda_tui.events import ApprovalAsked, Built, CandidateEvaluated, Entry, Event, SliceMeasured
from cuda_tui.tui.app import CudaTui, Options, Recording
from cuda_tui.tui.screens.replay import ReplayScreen
from tests.fixtures_session import session_events
from tests.gpu_session import on_gpu

pytestmark = pytest.mark.slow

Compare = Callable[..., bool]

# Transient events too: what was happening is part of these pictures.
RECORDS = tuple(
    Entry(seq=seq, at=at, event=event)  # type: ignore[arg-type]  # an Entry of a log holds durable events only
    for seq, (at, event) in enumerate(session_events())
)


def position_of(kind: type[Event], number: int) -> int:
    """The position just after the event of that kind, counted from 0."""
    return [index + 1 for index, record in enumerate(RECORDS) if isinstance(record.event, kind)][number]


def at(position: int, *keys: str) -> Callable[[Pilot[Any]], Awaitable[None]]:
    """Go to a position of the replay and press keys."""

    async def prepare(pilot: Pilot[Any]) -> None:
        screen = pilot.app.screen
        assert isinstance(screen, ReplayScreen)
        screen.playback.seek(position)
        screen.follow()
        await pilot.pause()
        await pilot.press(*keys)
        await pilot.pause()

    return prepare


END = len(RECORDS)
COMPARED = position_of(CandidateEvaluated, 1)
CASES = {
    "talk-80x24": ((80, 24), at(END)),
    "speedup-80x24": ((80, 24), at(END, "f5")),
    "speedup-120x40": ((120, 40), at(END, "f5")),
    "speedup-200x60": ((200, 60), at(END, "f5")),
    "build-failed-120x40": ((120, 40), at(position_of(Built, 0), "f3")),
    "measuring-120x40": ((120, 40), at(position_of(SliceMeasured, 5), "f3")),
    "correctness-80x24": ((80, 24), at(COMPARED, "f4")),
    "correctness-120x40": ((120, 40), at(COMPARED, "f4")),
    "kernels-120x40": ((120, 40), at(END, "f6")),
    "diff-120x40": ((120, 40), at(END, "f7")),
    "machine-120x40": ((120, 40), at(END, "f8")),
    "approval-40x10": ((40, 10), at(position_of(ApprovalAsked, 0))),
    "approval-120x40": ((120, 40), at(position_of(ApprovalAsked, 0))),
    "help-120x40": ((120, 40), at(END, "f1")),
}


GPU_CASES = {
    "speedup-80x24": ((80, 24), at(END, "f5")),
    "speedup-120x40": ((120, 40), at(END, "f5")),
    "speedup-200x60": ((200, 60), at(END - 1, "f5")),
    "machine-80x24": ((80, 24), at(END - 1, "f8")),
    "machine-120x40": ((120, 40), at(END - 1, "f8")),
}


@pytest.mark.parametrize("case", GPU_CASES)
def test_screen_of_a_gpu_task_looks_as_it_did(case: str, snap_compare: Compare) -> None:
    size, prepare = GPU_CASES[case]
    records = tuple(Entry(seq=record.seq, at=record.at, event=on_gpu(record.event)) for record in RECORDS)  # type: ignore[arg-type]  # as above
    assert snap_compare(CudaTui(Options(), start=Recording(records=records)), terminal_size=size, run_before=prepare)


@pytest.mark.parametrize("case", CASES)
def test_screen_looks_as_it_did_when_it_was_last_looked_at(case: str, snap_compare: Compare) -> None:
    size, prepare = CASES[case]
    app = CudaTui(Options(), start=Recording(records=RECORDS))
    assert snap_compare(app, terminal_size=size, run_before=prepare)


def test_start_screen_looks_as_it_did(snap_compare: Compare) -> None:
    app = CudaTui(Options(models=("autopilot", "anthropic:", "openai:")))
    assert snap_compare(app, terminal_size=(80, 24))
