"""Playback: position, jumps, speed."""

import asyncio

import pytest

from cuda_tui.events import CandidateEvaluated, Entry, Unknown, UserSpoke
from cuda_tui.export import fold
from cuda_tui.tui.playback import LONGEST_PAUSE_S, Playback
from tests.fixtures_session import session_entries

ENTRIES = session_entries()


def long_log(count: int) -> tuple[Entry, ...]:
    """A log of many small events, ten seconds apart."""
    return tuple(Entry(seq=n, at=1_000.0 + 10 * n, event=UserSpoke(text=str(n))) for n in range(count))


def test_state_at_a_position_is_the_same_from_either_side() -> None:
    log = long_log(950)
    playback = Playback(log)
    for position in (0, 950, 333, 334, 100, 99, 901, 5, 950):
        playback.seek(position)
        assert playback.position == position
        assert playback.state == fold(log[:position])


def test_seeking_stays_inside_the_log() -> None:
    playback = Playback(ENTRIES)
    playback.step(-5)
    assert playback.position == 0
    playback.seek(10_000)
    assert playback.position == playback.total == len(ENTRIES)


def test_jump_goes_to_each_verdict_in_turn_and_then_says_no() -> None:
    playback = Playback(ENTRIES)
    seen = []
    while playback.next_of(playback.verdicts):
        entry = ENTRIES[playback.position - 1]
        assert isinstance(entry.event, CandidateEvaluated)
        seen.append(entry.event.number)
    assert seen == [1, 2, 3, 4, 5]
    assert not playback.next_of(playback.approvals)


def test_jump_to_an_approval_stops_while_it_waits() -> None:
    playback = Playback(ENTRIES)
    assert playback.next_of(playback.approvals)
    assert playback.state.pending is not None


def test_speed_goes_up_to_as_fast_as_possible_and_down_to_half() -> None:
    playback = Playback(ENTRIES)
    playback.faster(99)
    assert playback.speed == float("inf")
    playback.faster(-1)
    assert playback.speed == 16.0
    playback.faster(-99)
    assert playback.speed == 0.5


class Sleeper:
    """Notes how long it was asked to sleep, and lets the others run instead."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


async def played(playback: Playback) -> None:
    """Play to the end."""
    task = asyncio.create_task(playback.run())
    playback.toggle()
    await playback.rest()
    task.cancel()


@pytest.mark.parametrize(("speed", "pause"), [(1.0, LONGEST_PAUSE_S), (2.0, LONGEST_PAUSE_S / 2)])
async def test_long_waits_are_shortened_and_scaled_by_the_speed(speed: float, pause: float) -> None:
    sleeper = Sleeper()
    playback = Playback(long_log(4), speed=speed, sleep=sleeper)
    await played(playback)
    assert sleeper.slept == [0.0, pause, pause, pause]
    assert playback.position == 4


async def test_as_fast_as_possible_does_not_wait() -> None:
    sleeper = Sleeper()
    playback = Playback(long_log(500), speed=float("inf"), sleep=sleeper)
    await played(playback)
    assert set(sleeper.slept) == {0}
    assert playback.state == fold(long_log(500))


async def test_playing_at_the_end_begins_again() -> None:
    playback = Playback(long_log(3), sleep=Sleeper())
    playback.seek(3)
    await played(playback)
    assert playback.position == 3
    assert [line.text for line in playback.state.blocks if hasattr(line, "text")] == ["0", "1", "2"]


def test_event_of_a_newer_version_takes_its_place_in_time() -> None:
    playback = Playback((*long_log(2), Unknown(kind="new")))
    playback.seek(3)
    assert playback.elapsed == playback.duration == 10.0


def test_empty_log_has_no_positions() -> None:
    playback = Playback(())
    playback.seek(1)
    assert (playback.position, playback.elapsed, playback.duration) == (0, 0.0, 0.0)
