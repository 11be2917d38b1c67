"""The three seams of the agent: who thinks (Provider), who acts (Tool), who decides (Approver)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from cuda_tui.events import (
    AnyEvent,
    ApprovalAsked,
    ApprovalGiven,
    CallStreamed,
    Restored,
    StepCommitted,
    TextStreamed,
    ThinkingStreamed,
)
from cuda_tui.messages import AssistantReply, Effect, Message, ToolResult, ToolSpec
from cuda_tui.records import Record

Emit: TypeAlias = Callable[[AnyEvent], None]
Chunk: TypeAlias = TextStreamed | ThinkingStreamed | CallStreamed | AssistantReply


class Request(Record):
    """Everything a provider needs for one reply. Every tool call in `messages` is followed by its result."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    max_tokens: int = 16_384


class Provider(Protocol):
    """A source of replies.

    `stream` yields deltas and, last and once, the complete AssistantReply. It raises ProviderError, and a stream
    that ends without a stop reason is such an error. `name` is `provider:model` as the person chose it.
    """

    @property
    def name(self) -> str: ...

    def stream(self, request: Request) -> AsyncIterator[Chunk]: ...


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What a call would do, for the person to decide on: a unified diff, or the exact command.

    `grants` are the rules that "approve all" would add, one for each part of the call; the call runs without asking
    only where every one of them was granted before. Without grants it is always asked.
    """

    diff: str = ""
    command: str = ""
    scope: str = ""
    grants: tuple[str, ...] = ()


class Tool(Protocol):
    """One thing the agent can do."""

    @property
    def spec(self) -> ToolSpec: ...

    def propose(self, arguments: dict[str, Any]) -> Proposal:
        """What the call would do. Raises UsageError where the arguments cannot work; READ tools return an empty one."""
        ...

    async def run(self, arguments: dict[str, Any], *, emit: Emit, cancel: asyncio.Event) -> ToolResult:
        """Do it. A failure that the model can mend is a result with is_error, not an exception."""
        ...


class Checkpoints(Protocol):
    """The workspace's history, as the loop needs it. Blocking; called in a thread."""

    @property
    def path(self) -> str: ...

    def head(self) -> str: ...

    def commit(self, message: str) -> StepCommitted | None:
        """Commit what changed, or return None where nothing did."""
        ...

    def restore(self, commit: str) -> Restored | None:
        """Bring the files of `commit` back as a new commit; None where they are those already."""
        ...


class Approver(Protocol):
    """Decides on a call that needs a yes."""

    async def decide(self, asked: ApprovalAsked) -> ApprovalGiven: ...


@dataclass(kw_only=True)
class Budgets:
    """Limits of one run of the loop; None is unlimited. Times in seconds."""

    turns: int | None = 200
    tokens: int | None = None
    wall_s: float | None = None


@dataclass(kw_only=True)
class Control:
    """How the front end steers a running loop."""

    cancel: asyncio.Event = field(default_factory=asyncio.Event)
    queued: list[str] = field(default_factory=list)  # what the person typed meanwhile; sent before the next request


FINISH = "finish"
"""The tool by which the agent says that it is done; the loop ends after it."""

NEEDS_APPROVAL: dict[str, frozenset[Effect]] = {
    "step": frozenset({Effect.WRITE, Effect.EXECUTE}),
    "edits": frozenset({Effect.EXECUTE}),
    "auto": frozenset(),
}
