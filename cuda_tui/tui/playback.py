"""A recorded session, played: position, speed, jumps. Needs nothing but the log."""

import asyncio
import bisect
from collections.abc import Awaitable, Callable, Sequence

from cuda_tui.events import ApprovalAsked, CandidateEvaluated, Entry, MachineSampled, Unknown
from cuda_tui.state.apply import apply
from cuda_tui.state.model import State

SPEEDS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, float("inf"))
LONGEST_PAUSE_S = 3.0  # at speed 1; longer waits of the recording are shortened
_CHECKPOINT = 100  # a state is kept every so many events, so that going back costs no more than that
_BATCH = 50  # events between two looks at the clock at full speed

Sleep = Callable[[float], Awaitable[None]]


class Playback:
    """The feed of a replay. `position` counts the events that have happened, from 0 to `total`."""

    def __init__(self, records: Sequence[Entry | Unknown], *, speed: float = 1.0, sleep: Sleep = asyncio.sleep) -> None:
        self._records = tuple(records)
        self._times = _times(self._records)
        self._sleep = sleep
        self._kept = [State()]
        self._moved = asyncio.Event()
        self._resting = asyncio.Event()
        self.state = State()
        self.position = 0
        self.playing = False
        self.speed = speed
        self.verdicts = self._positions(CandidateEvaluated)
        self.approvals = self._positions(ApprovalAsked)

    @property
    def total(self) -> int:
        """How many events there are."""
        return len(self._records)

    @property
    def now(self) -> float:
        """The recording's time at this position."""
        return self.state.now

    @property
    def elapsed(self) -> float:
        """Seconds from the recording's beginning to this position."""
        return self._times[self.position - 1] - self._times[0] if self.position else 0.0

    @property
    def duration(self) -> float:
        """Seconds from the first event to the last."""
        return self._times[-1] - self._times[0] if self._times else 0.0

    def _positions(self, kind: type[CandidateEvaluated] | type[ApprovalAsked]) -> tuple[int, ...]:
        return tuple(
            index + 1
            for index, record in enumerate(self._records)
            if isinstance(record, Entry) and isinstance(record.event, kind)
        )

    async def run(self) -> None:
        """Play while `playing`; returns never, so that a replay that has ended can be played again."""
        while True:
            if not self.playing or self.position >= self.total:
                self.playing = False
                self._moved.clear()
                self._resting.set()
                await self._moved.wait()
                continue
            if self.speed == float("inf"):
                self._go(min(self.total, self.position + _BATCH))
                await self._sleep(0)
                continue
            before = self.position
            await self._sleep(self._pause() / self.speed)
            if self.playing and self.position == before:
                self._go(before + 1)

    def _pause(self) -> float:
        """Seconds to the next event; samples of the machine do not hold up the talk."""
        record = self._records[self.position]
        if self.position == 0 or (isinstance(record, Entry) and isinstance(record.event, MachineSampled)):
            return 0.0
        return min(LONGEST_PAUSE_S, max(0.0, self._times[self.position] - self._times[self.position - 1]))

    async def rest(self) -> None:
        """Wait until nothing plays any more."""
        await self._resting.wait()

    def toggle(self) -> None:
        """Play or pause; at the end, play from the beginning."""
        if not self.playing and self.position >= self.total:
            self._go(0)
        self.playing = not self.playing
        self._resting.clear()
        self._moved.set()

    def seek(self, position: int) -> None:
        """Go to a position and stay there."""
        self.playing = False
        self._go(max(0, min(self.total, position)))

    def step(self, count: int) -> None:
        """Go on or back by `count` events."""
        self.seek(self.position + count)

    def next_of(self, positions: tuple[int, ...]) -> bool:
        """Go to the first of `positions` after this one; False where there is none."""
        index = bisect.bisect_right(positions, self.position)
        if index == len(positions):
            return False
        self.seek(positions[index])
        return True

    def faster(self, steps: int) -> None:
        """Choose the next speed up or down."""
        index = min(range(len(SPEEDS)), key=lambda at: abs(min(SPEEDS[at], 99.0) - min(self.speed, 99.0)))
        self.speed = SPEEDS[max(0, min(len(SPEEDS) - 1, index + steps))]

    def _go(self, position: int) -> None:
        start = self.position if position >= self.position else -1
        nearest = min(position // _CHECKPOINT, len(self._kept) - 1)
        if start < nearest * _CHECKPOINT:
            start, self.state = nearest * _CHECKPOINT, self._kept[nearest]
        for index in range(start, position):
            record = self._records[index]
            event = record.event if isinstance(record, Entry) else record
            self.state = apply(self.state, event, at=self._times[index])
            if (index + 1) % _CHECKPOINT == 0 and (index + 1) // _CHECKPOINT == len(self._kept):
                self._kept.append(self.state)
        self.position = position


def _times(records: Sequence[Entry | Unknown]) -> tuple[float, ...]:
    """When each happened; an event of a newer version happened when the one before it did."""
    times: list[float] = []
    for record in records:
        if isinstance(record, Entry):
            times.append(record.at)
        else:
            times.append(times[-1] if times else 0.0)
    return tuple(times)
