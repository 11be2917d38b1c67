"""One session as a front end sees it: text goes in, events come out, an approver decides.

The screen and headless use it in the same way:

    runner.approver = my_approver
    runner.say("make it faster")
    async for event in runner.run():      # ends with SessionEnded
        show(event)
    runner.say("now try fp16 weights")    # a later stretch of the same session
    async for event in runner.run(): ...
    await runner.close()
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

from cuda_tui.agent.loop import AgentLoop
from cuda_tui.agent.protocols import Approver, Provider
from cuda_tui.errors import UsageError
from cuda_tui.events import AnyEvent, Approval, Entry, SettingsChanged
from cuda_tui.records import Record


class Opening(Record):
    """What a front end asks for when it opens a new session; None leaves the choice to the settings."""

    target: str  # FILE[:Class], package.module:Class, or a workspace folder
    inputs: str | None = None
    device: str | None = None
    architectures: str | None = None  # CUDA targets, "sm_80,sm_90"
    model: str | None = None  # "autopilot", "anthropic:NAME"
    approval: Approval | None = None
    workspace: str | None = None
    python: str | None = None
    turns: int | None = None
    minutes: float | None = None


class SessionRunner:
    """Runs one session. Everything here is called from the event loop's thread.

    `approver` may be replaced before `run`; `history` is what the log held when the session was opened, to be folded
    before the first live event. `provider` builds a provider by its name, for `switch`. `auto_refused` says why this
    machine has no auto mode; empty where it has.
    """

    def __init__(self, loop: AgentLoop, *, provider: Callable[[str], Provider], auto_refused: str = "") -> None:
        self._loop = loop
        self._provider = provider
        self._auto_refused = auto_refused
        self.history: tuple[Entry, ...] = loop.session.entries
        self._closers: list[Callable[[], None]] = []

    @property
    def session_id(self) -> str:
        """The name under which the session can be resumed and replayed."""
        return self._loop.session.id

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The log so far, `history` included."""
        return self._loop.session.entries

    @property
    def log_path(self) -> str:
        """The session's JSONL file."""
        return str(self._loop.session.path)

    @property
    def workspace_path(self) -> str:
        """The folder of the files that are being optimised."""
        return self._loop.workspace_path

    @property
    def approver(self) -> Approver:
        """Who decides on calls that need a yes."""
        return self._loop.approver

    @approver.setter
    def approver(self, approver: Approver) -> None:
        self._loop.approver = approver

    @property
    def running(self) -> bool:
        """Whether a stretch is under way."""
        return self._loop.running

    @property
    def exit_code(self) -> int:
        """What the process should end with after the last stretch: 0 done, 1 usage, 2 infrastructure, 3 unfinished."""
        return self._loop.exit_code

    @property
    def rules(self) -> tuple[str, ...]:
        """What was approved for all later calls of this session, in words."""
        return self._loop.policy.rules

    def forget_rule(self, rule: str) -> None:
        """Ask again for what `rule` covered."""
        self._loop.policy.forget(rule)

    def say(self, text: str) -> None:
        """Queue the person's text. It is sent before the next request, also while the agent works."""
        self._loop.control.queued.append(text)

    def cancel(self) -> None:
        """Stop the step under way; `run` then ends within two seconds with SessionEnded(CANCELLED)."""
        self._loop.control.cancel.set()

    def switch(self, *, model: str | None = None, approval: Approval | None = None) -> SettingsChanged:
        """Change model or approval mode from the next request on. Raises ProviderError or UsageError."""
        if approval is Approval.AUTO and self._auto_refused:
            raise UsageError(f"there is no auto mode here: {self._auto_refused}", hint="`cuda-tui doctor` says more")
        if model is not None:
            self._loop.provider = self._provider(model)
        if approval is not None:
            self._loop.approval = approval
        event = SettingsChanged(model=self._loop.provider.name, approval=self._loop.approval)
        self._loop.session.append(event)
        return event

    def run(self) -> AsyncIterator[AnyEvent]:
        """Work until the agent is done, is stopped or runs out of budget; the last event is SessionEnded.

        Durable events are in the log before they are yielded. Closing the iterator early cancels the step.
        """
        return self._loop.run()

    def on_close(self, closer: Callable[[], None]) -> None:
        """Have `closer` called by `close`, last registered first."""
        self._closers.append(closer)

    async def close(self) -> None:
        """End everything that the session started: step, workers, log. Blocking parts run in a thread."""
        self.cancel()
        for closer in reversed(self._closers):
            await asyncio.to_thread(closer)
        self._closers.clear()
        self._loop.session.close()


OpenSession: TypeAlias = Callable[[Opening], Awaitable[SessionRunner]]
ResumeSession: TypeAlias = Callable[[str], Awaitable[SessionRunner]]
