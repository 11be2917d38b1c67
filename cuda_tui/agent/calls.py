"""Running one reply's tool calls: checked, approved, executed, recorded; every call ends with a result."""

import asyncio
import json
import logging
from dataclasses import dataclass, field
from typing import Any

from cuda_tui.agent.approval import ApprovalPolicy, RefuseAll
from cuda_tui.agent.clock import Clock, SystemClock
from cuda_tui.agent.protocols import Approver, Emit, Proposal, Tool
from cuda_tui.agent.schema import problems_of
from cuda_tui.errors import Cancelled, CudaTuiError
from cuda_tui.events import Approval, ApprovalAsked, ApprovalGiven, Decision, ProblemMet, ToolFinished, ToolStarted
from cuda_tui.messages import ToolCall, ToolResult

_log = logging.getLogger(__name__)

GRACE_S = 1.2  # what a tool gets to stop by itself, of the two seconds that a cancel may take
ASK_AT, STOP_AT = 3, 5
CANCELLED_RUNNING = "cancelled by the person while it ran; state unknown. Look before you go on."
CANCELLED_WAITING = "cancelled by the person before it ran; nothing happened."


class RepeatedTooOften(CudaTuiError):
    """The model made the same call over and over."""

    exit_code = 3


@dataclass(kw_only=True)
class CallRunner:
    """Runs calls one after the other. `approval` and `approver` may change between calls."""

    tools: dict[str, Tool]
    emit: Emit
    cancel: asyncio.Event
    approval: Approval
    approver: Approver = field(default_factory=RefuseAll)
    policy: ApprovalPolicy = field(default_factory=ApprovalPolicy)
    clock: Clock = field(default_factory=SystemClock)
    _last: tuple[str, str] = ("", "")
    _repeats: int = 0
    _executing: bool = False

    async def run(self, call: ToolCall) -> ToolFinished:
        """Run one call to its end. Emits its events; what can fail comes back as an error result.

        Raises Cancelled and RepeatedTooOften, in both cases after the call was closed with a result.
        """
        started = self.clock.monotonic()
        self._executing = False
        try:
            result = await self._result(call)
        except (Cancelled, RepeatedTooOften) as error:
            cancelled = CANCELLED_RUNNING if self._executing else CANCELLED_WAITING
            content = cancelled if isinstance(error, Cancelled) else error.message
            self._finish(call, ToolResult(content=content, is_error=True), started)
            raise
        return self._finish(call, result, started)

    def _finish(self, call: ToolCall, result: ToolResult, started: float) -> ToolFinished:
        seconds = self.clock.monotonic() - started
        finished = ToolFinished(call_id=call.id, name=call.name, result=result, seconds=seconds)
        self.emit(finished)
        return finished

    async def _result(self, call: ToolCall) -> ToolResult:
        if self.cancel.is_set():
            raise Cancelled("stopped before the call ran")
        problem = self._problem(call)
        if problem:
            return ToolResult(content=problem, is_error=True)
        tool = self.tools[call.name]
        repeats = self._count(call)
        try:
            decided = await self._approved(call, tool, repeats)
        except Cancelled:
            raise
        except CudaTuiError as error:
            return ToolResult(content=str(error), is_error=True)
        if isinstance(decided, ToolResult):
            return decided
        result = await self._execute(ToolCall(id=call.id, name=call.name, arguments=decided), tool)
        return self._annotated(result, call, decided, repeats)

    def _problem(self, call: ToolCall) -> str:
        """Why the call cannot run, for the model to mend."""
        if call.name not in self.tools:
            return f"there is no tool {call.name!r}; the tools are {', '.join(sorted(self.tools))}"
        if call.problem:
            return f"the arguments could not be read: {call.problem}. Send them again as one JSON object."
        problems = problems_of(call.arguments, self.tools[call.name].spec.parameters)
        return "the arguments do not fit:\n" + "\n".join(problems) if problems else ""

    def _count(self, call: ToolCall) -> int:
        """How many times running this very call was made, this one included."""
        key = (call.name, json.dumps(call.arguments, sort_keys=True, default=str))
        self._repeats = self._repeats + 1 if key == self._last else 1
        self._last = key
        if self._repeats >= STOP_AT:
            raise RepeatedTooOften(
                f"the model called {call.name} with the same arguments {self._repeats} times running",
                hint="tell it what to do instead, then resume",
            )
        return self._repeats

    async def _approved(self, call: ToolCall, tool: Tool, repeats: int) -> dict[str, Any] | ToolResult:
        """The arguments that may run, or the refusal for the model. Raises what `propose` raises."""
        arguments = call.arguments
        proposal = await asyncio.to_thread(tool.propose, arguments)
        repeating = repeats >= ASK_AT and self.approval is not Approval.AUTO
        while repeating or self.policy.needs_yes(self.approval, tool.spec.effect, proposal):
            given = await self._ask(call, tool, proposal, repeats if repeating else 0)
            if given.decision is Decision.REJECTED:
                reason = f" Their reason: {given.reason}" if given.reason else " They gave no reason."
                return ToolResult(content="The person rejected this call; nothing ran." + reason, is_error=True)
            if given.edited is not None:
                arguments = dict(given.edited)
                problems = problems_of(arguments, tool.spec.parameters)
                if problems:
                    return ToolResult(content="the edited arguments do not fit: " + "; ".join(problems), is_error=True)
                return arguments
            fresh = await asyncio.to_thread(tool.propose, arguments)
            if fresh == proposal:
                if given.decision is Decision.APPROVED_ALL:
                    self.policy.grant(proposal)
                return arguments
            proposal = fresh  # a file changed between preview and yes: the yes is void
        return arguments

    async def _ask(self, call: ToolCall, tool: Tool, proposal: Proposal, repeats: int) -> ApprovalGiven:
        asked = ApprovalAsked(
            call=call,
            effect=tool.spec.effect,
            scope=proposal.scope or "this call only",
            diff=proposal.diff,
            command=proposal.command,
            evidence=f"the same call, {repeats} times running" if repeats else "",
        )
        self.emit(asked)
        given = await self._until_cancelled(self.approver.decide(asked))
        self.emit(given)
        return given

    async def _until_cancelled(self, decision: Any) -> ApprovalGiven:
        deciding = asyncio.ensure_future(decision)
        stopping = asyncio.create_task(self.cancel.wait())
        try:
            await asyncio.wait({deciding, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not deciding.done():
                raise Cancelled("stopped while waiting for a yes")
            given: ApprovalGiven = deciding.result()
            return given
        finally:
            deciding.cancel()
            stopping.cancel()

    async def _execute(self, call: ToolCall, tool: Tool) -> ToolResult:
        self._executing = True
        self.emit(ToolStarted(call=call, effect=tool.spec.effect))
        running = asyncio.create_task(tool.run(call.arguments, emit=self.emit, cancel=self.cancel))
        stopping = asyncio.create_task(self.cancel.wait())
        try:
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await asyncio.wait({running}, timeout=GRACE_S)
            if not running.done():
                raise Cancelled("stopped while a tool ran")
            return running.result()
        except CudaTuiError as error:
            if isinstance(error, Cancelled):
                raise
            return ToolResult(content=str(error), is_error=True)
        except Exception as error:
            return self._own_fault(call, error)
        finally:
            running.cancel()
            stopping.cancel()

    def _own_fault(self, call: ToolCall, error: Exception) -> ToolResult:
        """A fault of ours: said to the person and to the model, with the traceback in the program's log."""
        _log.exception("tool %s failed", call.name)
        message = f"{call.name} failed inside cuda-tui: {type(error).__name__}: {error}"
        self.emit(ProblemMet(message=message, hint="the traceback is in the program's log; please report it"))
        return ToolResult(content=message + ". This says nothing about your code.", is_error=True)

    def _annotated(self, result: ToolResult, call: ToolCall, ran: dict[str, Any], repeats: int) -> ToolResult:
        notes = []
        if ran != call.arguments:
            notes.append("The person edited the arguments. This ran instead: " + json.dumps(ran, ensure_ascii=False))
        if repeats >= ASK_AT and self.approval is Approval.AUTO:
            notes.append(f"You made this very call {repeats} times running. Do something else; at {STOP_AT} I stop.")
        if not notes:
            return result
        content = "\n".join([*notes, result.content])
        return ToolResult(content=content, is_error=result.is_error, details=result.details)
