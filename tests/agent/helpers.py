"""A loop over a scripted provider, with tools small enough to see through."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cuda_tui.agent.clock import FakeClock
from cuda_tui.agent.loop import AgentLoop
from cuda_tui.agent.protocols import Chunk, Emit, Proposal, Request
from cuda_tui.errors import UsageError
from cuda_tui.events import AnyEvent, Approval, ApprovalAsked, ApprovalGiven, Restored, SessionStarted, StepCommitted
from cuda_tui.messages import AssistantReply, Details, Effect, ToolCall, ToolResult, ToolSpec
from cuda_tui.providers.scripted import ScriptedProvider, ScriptedReply
from cuda_tui.session.store import Session

TEXT_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


@dataclass(kw_only=True)
class RecordingTool:
    """Keeps the arguments it ran with; answers "ran TEXT", or what `answer` makes of them."""

    name: str = "echo"
    effect: Effect = Effect.READ
    schema: dict[str, Any] = field(default_factory=lambda: dict(TEXT_SCHEMA))
    answer: Callable[[dict[str, Any]], ToolResult] | None = None
    proposal: Callable[[dict[str, Any]], Proposal] = lambda arguments: Proposal()
    ran: list[dict[str, Any]] = field(default_factory=list)

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(name=self.name, description="a test tool", parameters=self.schema, effect=self.effect)

    def propose(self, arguments: dict[str, Any]) -> Proposal:
        return self.proposal(arguments)

    async def run(self, arguments: dict[str, Any], *, emit: Emit, cancel: asyncio.Event) -> ToolResult:
        self.ran.append(arguments)
        if self.answer is not None:
            return self.answer(arguments)
        return ToolResult(content=f"ran {arguments.get('text', '')}")


@dataclass
class HangingTool(RecordingTool):
    """Never ends by itself; says when it has begun."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, arguments: dict[str, Any], *, emit: Emit, cancel: asyncio.Event) -> ToolResult:
        self.begun.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


class MemoryCheckpoints:
    """A history of numbered commits; `dirty` says that files changed."""

    def __init__(self) -> None:
        self.path = "memory"
        self.dirty = False
        self.commits = ["c0"]
        self.restored: list[str] = []

    def head(self) -> str:
        return self.commits[-1]

    def commit(self, message: str) -> StepCommitted | None:
        if not self.dirty:
            return None
        self.dirty = False
        self.commits.append(f"c{len(self.commits)}")
        return StepCommitted(commit=self.head(), message=message)

    def restore(self, commit: str) -> Restored | None:
        if commit == self.head():
            return None
        self.restored.append(commit)
        self.commits.append(f"c{len(self.commits)}")
        return Restored(to=commit, commit=self.head())


@dataclass
class ListApprover:
    """Answers from a list of functions and keeps what it was asked."""

    answers: list[Callable[[ApprovalAsked], ApprovalGiven]]
    asked: list[ApprovalAsked] = field(default_factory=list)

    async def decide(self, asked: ApprovalAsked) -> ApprovalGiven:
        self.asked.append(asked)
        return self.answers.pop(0)(asked)


class PickyProvider(ScriptedProvider):
    """Fails the test where a request holds a call without its result, as a real server would refuse it."""

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        messages = list(request.messages)
        for index, message in enumerate(messages):
            if isinstance(message, AssistantReply) and message.tool_calls:
                wanted = [call.id for call in message.tool_calls]
                got = [getattr(reply, "call_id", None) for reply in messages[index + 1 : index + 1 + len(wanted)]]
                assert got == wanted, f"unpaired calls: {wanted} answered by {got}"
        async for chunk in super().stream(request):
            yield chunk


def says(text: str) -> ScriptedReply:
    return ScriptedReply(text=text)


def calls(*pairs: tuple[str, dict[str, Any]], text: str = "") -> ScriptedReply:
    made = tuple(ToolCall(id="", name=name, arguments=arguments) for name, arguments in pairs)
    return ScriptedReply(text=text, tool_calls=made)


def started(approval: Approval = Approval.AUTO, model: str = "scripted") -> SessionStarted:
    return SessionStarted(
        session="s1",
        title="m.py:Model",
        workspace="ws",
        device="cpu",
        model=model,
        approval=approval,
        version="0",
    )


def make_loop(
    folder: Path, replies: list[ScriptedReply], *tools: Any, approval: Approval = Approval.AUTO, **options: Any
) -> AgentLoop:
    """A loop whose log lies in `folder`. `options` are AgentLoop's own."""
    session = Session.create(folder, started(approval))
    loop = AgentLoop(
        session=session,
        provider=PickyProvider(replies),
        tools=tuple(tools),
        checkpoints=options.pop("checkpoints", None) or MemoryCheckpoints(),
        system="system",
        approval=approval,
        clock=options.pop("clock", None) or FakeClock(),
        **options,
    )
    loop.control.queued.append("go")
    return loop


async def collect(loop: AgentLoop) -> list[AnyEvent]:
    return [event async for event in loop.run()]


def of(events: list[AnyEvent], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def refuse(arguments: dict[str, Any]) -> Proposal:
    raise UsageError("there is no such file", hint="list the files")


def details_of(details: Details) -> Callable[[dict[str, Any]], ToolResult]:
    return lambda arguments: ToolResult(content="done", details=details)
