"""Events as lines: for a person, or as one JSON object each."""

from typing import TextIO

import msgspec

from cuda_tui.evaluation.report import Measured
from cuda_tui.events import (
    AnyEvent,
    ApprovalAsked,
    BudgetReached,
    Built,
    CandidateEvaluated,
    Event,
    LineLogged,
    NoteWritten,
    ProblemMet,
    ReplyReceived,
    Restored,
    RetryScheduled,
    SessionEnded,
    SessionStarted,
    StageEnded,
    StageStarted,
    StepCommitted,
    ToolFinished,
    ToolStarted,
    TrialChecked,
    is_durable,
)
from cuda_tui.messages import ToolCall
from cuda_tui.records import encode
from cuda_tui.tools.base import visible
from cuda_tui.tools.wording import ratio_text

WIDTH = 160


class LinePrinter:
    """Prints a short line for each event that matters to a person. Text from outside cannot steer the terminal."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show(self, event: AnyEvent) -> None:
        """Print the event, if it matters."""
        for line in lines_of(event):
            self._out.write(visible(line)[:4000] + "\n")
        self._out.flush()


class JsonPrinter:
    """Prints one JSON object a line: an entry as the log has it for durable events; transient ones are marked."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show(self, event: AnyEvent) -> None:
        """Print the event."""
        record = {"event": event} if is_durable(event) else {"event": event, "transient": True}
        self._out.write(encode(record).decode() + "\n")
        self._out.flush()


def lines_of(event: Event) -> list[str]:  # noqa: C901  # one flat table of sentences; splitting it would hide that
    """What a person reads of an event."""
    match event:
        case SessionStarted(title=title, device=device, model=model, workspace=workspace, sandbox=sandbox):
            return [f"{title} on {device}, with {model}; sandbox {sandbox}", f"workspace {workspace}"]
        case ReplyReceived(reply=reply) if reply.text.strip():
            return [line for line in reply.text.strip().splitlines() if line.strip()]
        case ToolStarted(call=call):
            return [f"> {call.name}{_subject(call)}"]
        case ToolFinished(name=name, result=result) if result.is_error:
            return [f"  {name} failed: {_first_lines(result.content)}"]
        case StageEnded(stage=stage, seconds=seconds, summary=summary):
            return [f"  {stage:<10} {seconds:6.1f} s  {summary}".rstrip()]
        case TrialChecked(name=name, passed=False, detail=detail):
            return [f"  trial {name} failed: {detail}"]
        case CandidateEvaluated():
            return _verdict(event)
        case StepCommitted(commit=commit, message=message):
            return [f"  commit {commit[:12]}  {message}"]
        case Restored(to=to, commit=commit):
            return [f"  restored the files of {to[:12]} as {commit[:12]}"]
        case RetryScheduled(reason=reason, attempt=attempt, wait_s=wait_s):
            return [f"  {reason}; attempt {attempt} failed, the next one in {wait_s:.0f} s"]
        case ProblemMet(message=message, hint=hint):
            return [f"! {message}", *([f"  {hint}"] if hint else [])]
        case BudgetReached(budget=budget, used=used, limit=limit):
            return [f"! {budget}: {used:g} of {limit:g} used"]
        case SessionEnded():
            return _ending(event)
        case _:
            return []
