"""Where a session screen gets its state from: a running session, or a log that is played back."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from cuda_tui.agent.protocols import Approver
from cuda_tui.events import AnyEvent, Approval, Entry, ProblemMet, SettingsChanged
from cuda_tui.state.apply import apply
from cuda_tui.state.model import State

Clock = Callable[[], float]


class Feed(Protocol):
    """A state that changes with time, and the time that goes with it (seconds since the epoch)."""

    @property
    def state(self) -> State: ...

    @property
    def now(self) -> float: ...

    async def run(self) -> None:
        """Keep `state` current until cancelled or until there is nothing more."""
        ...


class Source(Protocol):
    """A running session: what `agent.runner.SessionRunner` offers to a front end."""

    @property
    def history(self) -> tuple[Entry, ...]: ...

    @property
    def approver(self) -> Approver: ...

    @approver.setter
    def approver(self, approver: Approver) -> None: ...

    @property
    def running(self) -> bool: ...

    @property
    def log_path(self) -> str: ...

    @property
    def rules(self) -> tuple[str, ...]: ...

    def forget_rule(self, rule: str) -> None: ...

    def say(self, text: str) -> None: ...

    def cancel(self) -> None: ...

    def switch(self, *, model: str | None = None, approval: Approval | None = None) -> SettingsChanged: ...

    def run(self) -> AsyncIterator[AnyEvent]: ...

    async def close(self) -> None: ...


class LiveFeed:
    """Runs a session and folds its events. `say` begins a new stretch when the session rests."""

    def __init__(self, source: Source, *, clock: Clock, begin: bool) -> None:
        self.source = source
        self._clock = clock
        self._wanted = asyncio.Event()
        self.state = State()
        for entry in source.history:
            self.state = apply(self.state, entry.event, at=entry.at)
        if begin:
            self._wanted.set()

    @property
    def now(self) -> float:
        """The present."""
        return self._clock()

    @property
    def busy(self) -> bool:
        """Whether the agent works or is about to."""
        return self.source.running or self._wanted.is_set()

    async def run(self) -> None:
        """Run stretch after stretch. A failure that is not the session's own is shown as a problem."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            async for event in self.source.run():
                self.state = apply(self.state, event, at=self._clock())

    def say(self, text: str) -> None:
        """Tell the agent: at once when it rests, before its next request when it works."""
        self.source.say(text)
        if not self.source.running:
            self._wanted.set()

    def switch(self, *, model: str | None = None, approval: Approval | None = None) -> None:
        """Change model or approval mode."""
        self.state = apply(self.state, self.source.switch(model=model, approval=approval), at=self._clock())

    def report(self, message: str, *, hint: str = "") -> None:
        """Show a problem of the front end's own; it is not part of the session's log."""
        self.state = apply(self.state, ProblemMet(message=message, hint=hint), at=self._clock())
