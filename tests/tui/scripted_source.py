"""A running session without an agent: it asks for what a list says and tells what was answered."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from cuda_tui.agent.approval import RefuseAll
from cuda_tui.agent.protocols import Approver
from cuda_tui.events import (
    AnyEvent,
    Approval,
    ApprovalAsked,
    ApprovalGiven,
    Entry,
    Outcome,
    SessionEnded,
    SettingsChanged,
    TextStreamed,
    UserSpoke,
)
from tests.fixtures_session import KERNEL, KERNEL_DIFF, asked, shell_asked, started, write_call

NASTY = (
    "k.cu(12): error in a[i][/*x*/j]",
    "note: [/usr/include/x.h:3]",
    "out[i] = in[i];",
    "std::array<int,3> a[N];",
    "warn [-Wunused] x[/N]",
    "[link=http://x]click[/link]",
)


def questions() -> list[ApprovalAsked]:
    """An edit, then a long command that ends in something to be seen, then one with control characters."""
    return [
        asked(write_call(1, "kernels/rms_norm_swiglu.cpp", KERNEL), KERNEL_DIFF, evidence="builds; 5 of 5 draws pass"),
        shell_asked("echo " + "a" * 3000 + " ; rm -rf build"),
        shell_asked("echo ok \x1b[2K\r rm -rf build \u202e"),
    ]


@dataclass
class ScriptedSource:
    """Implements `cuda_tui.tui.feed.Source`."""

    script: Sequence[ApprovalAsked | AnyEvent] = field(default_factory=questions)
    approver: Approver = field(default_factory=RefuseAll)
    history: tuple[Entry, ...] = ()
    running: bool = False
    log_path: str = "session.jsonl"
    rules: tuple[str, ...] = ()
    answers: list[ApprovalGiven] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    closed: bool = False
    noise: bool = False  # write to descriptors 1 and 2, as a native library would

    def __post_init__(self) -> None:
        self._queued: list[str] = []
        self._cancelled = asyncio.Event()

    def say(self, text: str) -> None:
        """Queue a text."""
        self.said.append(text)
        self._queued.append(text)

    def cancel(self) -> None:
        """Stop."""
        self._cancelled.set()

    def forget_rule(self, rule: str) -> None:
        """Drop a rule."""
        self.rules = tuple(item for item in self.rules if item != rule)

    def switch(self, *, model: str | None = None, approval: Approval | None = None) -> SettingsChanged:
        """Report the settings."""
        return SettingsChanged(model=model or "scripted", approval=approval or Approval.STEP)

    async def close(self) -> None:
        """End."""
        self.cancel()
        self.closed = True

    async def run(self) -> AsyncIterator[AnyEvent]:
        """Play the script once, then answer what is said."""
        self.running = True
        self._cancelled.clear()
        try:
            if not self.answers and not self.said:
                yield started()
                yield UserSpoke(text="Make it faster.\n" + "\n".join(NASTY))
            if self.noise:
                os.write(1, b"\x1b[2Jprintf from a kernel\n")
                os.write(2, b"\x1b[2Jstderr of a library\n")
            for text in self._queued:
                yield UserSpoke(text=text)
            self._queued.clear()
            for item in self.script:
                yield item
                if isinstance(item, ApprovalAsked):
                    given = await self._decide(item)
                    if given is None:
                        yield SessionEnded(outcome=Outcome.CANCELLED, message="stopped by the person")
                        return
                    self.answers.append(given)
                    yield given
            self.script = ()
            yield TextStreamed(text="All questions are ")
            yield SessionEnded(outcome=Outcome.DONE, message="Nothing more to ask.")
        finally:
            self.running = False

    async def _decide(self, item: ApprovalAsked) -> ApprovalGiven | None:
        deciding = asyncio.ensure_future(self.approver.decide(item))
        stopping = asyncio.ensure_future(self._cancelled.wait())
        await asyncio.wait({deciding, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not deciding.done():
            deciding.cancel()
            return None
        return deciding.result()
