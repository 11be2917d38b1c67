"""Where events leave the loop: durable ones are in the log before anyone sees them."""

import asyncio
import threading
from collections.abc import Callable

import msgspec

from cuda_tui.events import DURABLE, AnyEvent, Durable
from cuda_tui.session.store import Session, map_texts


class Outlet:
    """Takes events from the loop and its tools, also from their threads, and hands them to one reader.

    Secrets are masked in both kinds of events.
    """

    def __init__(self, session: Session, *, mask: Callable[[str], str]) -> None:
        self._session = session
        self._mask = mask
        self._queue: asyncio.Queue[AnyEvent | None] = asyncio.Queue()
        self._thread = threading.get_ident()
        self._loop = asyncio.get_running_loop()

    def emit(self, event: AnyEvent) -> None:
        """Log a durable event, and pass every event on. Callable from any thread."""
        if threading.get_ident() == self._thread:
            self._put(event)
        else:
            self._loop.call_soon_threadsafe(self._put, event)

    def end(self) -> None:
        """Nothing more will come."""
        self._queue.put_nowait(None)

    async def next(self) -> AnyEvent | None:
        """The next event; None at the end."""
        return await self._queue.get()

    def _put(self, event: AnyEvent) -> None:
        if isinstance(event, DURABLE):
            self._queue.put_nowait(self._log(event))  # type: ignore[arg-type]  # DURABLE is the union's own members
        else:
            before = msgspec.to_builtins(event)
            after = map_texts(before, self._mask)
            self._queue.put_nowait(event if after == before else msgspec.convert(after, type(event)))

    def _log(self, event: Durable) -> Durable:
        return self._session.append(event).event
