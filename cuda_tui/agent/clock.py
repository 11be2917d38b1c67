"""Time as the loop sees it, so that tests never sleep."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """A steady clock that can wait for an event."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""
        ...

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Wait for `event` at most `seconds`; whether it was set."""
        ...


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await event.wait()
        except TimeoutError:
            return event.is_set()


class FakeClock:
    """A clock that jumps: a wait takes no real time and is kept in `waits`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def monotonic(self) -> float:
        return self.now

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)
        return event.is_set()
