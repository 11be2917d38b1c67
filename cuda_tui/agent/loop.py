"""The turn loop: build the request from the log, stream, approve, execute, append, repeat, within budgets."""

import asyncio
import contextlib
import logging
import textwrap
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from cuda_tui.agent.approval import ApprovalPolicy, RefuseAll
from cuda_tui.agent.asking import Asker, RetryRules
from cuda_tui.agent.budget import BudgetMeter
from cuda_tui.agent.calls import CallRunner
from cuda_tui.agent.candidates import Candidates
from cuda_tui.agent.clock import Clock, SystemClock
from cuda_tui.agent.context import messages_from, with_unique_ids
from cuda_tui.agent.outlet import Outlet
from cuda_tui.agent.protocols import FINISH, Approver, Budgets, Checkpoints, Control, Provider, Request, Tool
from cuda_tui.errors import Cancelled, CudaTuiError
from cuda_tui.events import (
    AnyEvent,
    Approval,
    Durable,
    MachineSampled,
    Outcome,
    ProblemMet,
    ReplyReceived,
    SessionEnded,
    UserSpoke,
)
from cuda_tui.messages import (
    AssistantReply,
    BuildDetails,
    Effect,
    ProfileDetails,
    ReportDetails,
    StopReason,
    ToolCall,
    ToolResult,
)
from cuda_tui.session.log import interrupted, open_calls
from cuda_tui.session.store import Session

_log = logging.getLogger(__name__)

SAMPLE_EVERY_S = 1.0
CLOSING_S = 5.0  # the most that a stretch gets to end after its reader went away
GO_ON = "Go on."
SUBJECT = 72  # characters of a commit message's first line


def _unmasked(text: str) -> str:
    return text


@dataclass(kw_only=True)
class AgentLoop:
    """One session's loop. `run` may be called again after it ended; the log carries everything between runs."""

    session: Session
    provider: Provider
    tools: tuple[Tool, ...]
    checkpoints: Checkpoints
    system: str
    approval: Approval
    approver: Approver = field(default_factory=RefuseAll)
    budgets: Budgets = field(default_factory=Budgets)
    control: Control = field(default_factory=Control)
    policy: ApprovalPolicy = field(default_factory=ApprovalPolicy)
    clock: Clock = field(default_factory=SystemClock)
    retry: RetryRules = field(default_factory=RetryRules)
    mask: Callable[[str], str] = _unmasked
    sample: Callable[[], MachineSampled] | None = None  # blocking; called once a second in a thread
    running: bool = False
    exit_code: int = 0  # what the last stretch's end means for the process

    @property
    def workspace_path(self) -> str:
        """The folder of the files that are being optimised."""
        return self.checkpoints.path

    async def run(self) -> AsyncIterator[AnyEvent]:
        """Work until done, stopped or out of budget. Durable events are logged before they are yielded.

        What the person said in the very moment of the end begins another stretch.
        """
        self.control.cancel.clear()
        self.running = True
        try:
            while True:
                async with aclosing(self._stretch()) as events:
                    async for event in events:
                        yield event
                if not self.control.queued or self.exit_code != 0:
                    break
        finally:
            self.running = False

    async def _stretch(self) -> AsyncGenerator[AnyEvent, None]:
        outlet = Outlet(self.session, mask=self.mask)
        stretch = _Stretch(self, outlet)
        working = asyncio.create_task(stretch.work())
        sampling = asyncio.create_task(stretch.sample_machine())
        try:
            while (event := await outlet.next()) is not None:
                yield event
            await working
        finally:
            if not working.done():
                self.control.cancel.set()
            await asyncio.wait({working, sampling}, timeout=CLOSING_S)
            working.cancel()
            sampling.cancel()


class _Stretch:
    """One run of the loop."""

    def __init__(self, loop: AgentLoop, outlet: Outlet) -> None:
        self._loop = loop
        self._emit = outlet.emit
        self._end = outlet.end
        self._cancel = loop.control.cancel
        self._ended = asyncio.Event()
        self._asker = Asker(emit=outlet.emit, cancel=self._cancel, clock=loop.clock, rules=loop.retry)
        self._calls = CallRunner(
            tools={tool.spec.name: tool for tool in loop.tools},
            emit=outlet.emit,
            cancel=self._cancel,
            approval=loop.approval,
            policy=loop.policy,
            clock=loop.clock,
        )
        self._meter = BudgetMeter(loop.budgets, started_at=loop.clock.monotonic())
        self._candidates = Candidates.of(event.event for event in loop.session.entries)
        self._turn = sum(isinstance(entry.event, ReplyReceived) for entry in loop.session.entries)

    async def work(self) -> None:
        """Turn after turn. Whatever happens, open calls are closed and the last event is SessionEnded."""
        try:
            ended = await self._outcome()
            self._close_calls()
            self._ended.set()
            self._emit(ended)
        finally:
            self._ended.set()
            self._end()

    async def _outcome(self) -> SessionEnded:
        code = 3
        try:
            outcome, message = await self._turns()
            code = 0 if outcome is Outcome.DONE else 3
            if outcome in (Outcome.DONE, Outcome.BUDGET):
                await self._restore_best()
        except Cancelled:
            outcome, message = Outcome.CANCELLED, "stopped by the person"
        except CudaTuiError as error:
            self._emit(ProblemMet(message=error.message, hint=error.hint))
            outcome, message, code = Outcome.FAILED, error.message, error.exit_code
        except Exception as error:
            _log.exception("the agent's loop failed")
            message = f"cuda-tui failed: {type(error).__name__}: {error}"
            self._emit(ProblemMet(message=message, hint="the traceback is in the program's log; please report it"))
            outcome, code = Outcome.FAILED, 2
        self._loop.exit_code = code
        best = self._candidates.best
        return SessionEnded(
            outcome=outcome,
            message=message,
            best_candidate=best.number if best else None,
            best_commit=best.commit if best else None,
        )

    async def _turns(self) -> tuple[Outcome, str]:
        self._begin()
        while True:
            if self._cancel.is_set():
                raise Cancelled("stopped between two turns")
            exhausted = self._budget_used_up()
            if exhausted:
                return Outcome.BUDGET, exhausted
            self._take_queued()
            reply = await self._ask()
            if reply.stop is StopReason.REFUSED:
                return Outcome.FAILED, "the model refused to go on" + (f": {reply.text}" if reply.text else "")
            finished = await self._execute(reply)
            if finished is not None:
                return Outcome.DONE, finished
            if not reply.tool_calls and not self._loop.control.queued:
                return Outcome.DONE, reply.text.strip().partition("\n")[0]

    def _begin(self) -> None:
        """Something must be waiting for an answer."""
        messages = messages_from(self._events(), model=self._loop.provider.name)
        if not self._loop.control.queued and (not messages or isinstance(messages[-1], AssistantReply)):
            self._loop.control.queued.append(GO_ON)

    def _take_queued(self) -> None:
        queued = self._loop.control.queued
        while queued:
            self._emit(UserSpoke(text=queued.pop(0)))

    def _budget_used_up(self) -> str:
        message = ""
        for reached in self._meter.reached(now=self._loop.clock.monotonic()):
            self._emit(reached)
            if reached.exhausted:
                message = f"the budget of {reached.budget} is used up ({reached.used:g} of {reached.limit:g})"
        return message

    async def _ask(self) -> AssistantReply:
        provider = self._loop.provider
        request = Request(
            system=self._loop.system,
            messages=messages_from(self._events(), model=provider.name),
            tools=tuple(tool.spec for tool in self._loop.tools),
        )
        started = self._loop.clock.monotonic()
        reply = await self._asker.ask(provider, request)
        self._turn += 1
        reply = with_unique_ids(reply, turn=self._turn)
        self._meter.count(reply.usage)
        seconds = self._loop.clock.monotonic() - started
        self._emit(ReplyReceived(turn=self._turn, reply=reply, seconds=seconds))
        return reply

    async def _execute(self, reply: AssistantReply) -> str | None:
        """Run a reply's calls in order; the message of `finish`, if it was called."""
        self._calls.approval = self._loop.approval
        self._calls.approver = self._loop.approver
        finished = None
        try:
            for call in reply.tool_calls:
                if self._effect(call) is not Effect.WRITE:
                    await self._commit(reply)
                ended = await self._calls.run(call)
                await self._record(call, ended.result)
                if call.name == FINISH and not ended.result.is_error:
                    finished = ended.result.content
        finally:
            await self._commit(reply)
        return finished

    def _effect(self, call: ToolCall) -> Effect:
        tool = self._calls.tools.get(call.name)
        return tool.spec.effect if tool else Effect.READ

    async def _record(self, call: ToolCall, result: ToolResult) -> None:
        """The durable events that a result's details stand for."""
        if isinstance(result.details, BuildDetails | ReportDetails | ProfileDetails):
            commit = await asyncio.to_thread(self._loop.checkpoints.head)
            for event in self._candidates.events_of(call, result, commit=commit):
                self._emit(event)

    async def _commit(self, reply: AssistantReply) -> None:
        """Commit what an accepted step changed, if anything."""
        committed = await asyncio.to_thread(self._loop.checkpoints.commit, step_message(reply))
        if committed is not None:
            self._emit(committed)

    async def _restore_best(self) -> None:
        """Leave the workspace at its best candidate."""
        best = self._candidates.best
        if best is None or best.commit is None:
            return
        restored = await asyncio.to_thread(self._loop.checkpoints.restore, best.commit)
        if restored is not None:
            self._emit(restored)

    def _close_calls(self) -> None:
        for call in open_calls(self._loop.session.entries):
            self._emit(interrupted(call))

    def _events(self) -> list[Durable]:
        return [entry.event for entry in self._loop.session.entries]

    async def sample_machine(self) -> None:
        """Log the machine's load once a second while the stretch runs."""
        sample = self._loop.sample
        if sample is None:
            return
        with contextlib.suppress(CudaTuiError):
            while not await self._loop.clock.wait(self._ended, SAMPLE_EVERY_S):
                sampled = await asyncio.to_thread(sample)
                if not self._ended.is_set():
                    self._emit(sampled)


def step_message(reply: AssistantReply) -> str:
    """A commit message for a reply's changes: what the model said first, else which files it wrote."""
    said = next((line.strip() for line in reply.text.splitlines() if line.strip()), "")
    paths = dict.fromkeys(str(call.arguments["path"]) for call in reply.tool_calls if "path" in call.arguments)
    if not said:
        return f"Change {', '.join(paths)}"[:SUBJECT] if paths else "Notes"
    if len(said) <= SUBJECT:
        return said
    subject = textwrap.shorten(said, SUBJECT, placeholder=" ...")
    return f"{subject}\n\n{textwrap.fill(said, SUBJECT)}"
