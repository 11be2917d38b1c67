"""Events as lines: for a person, or as one JSON object each."""

import time
from collections.abc import Callable
from typing import Protocol, TextIO

from cuda_tui.evaluation.conditions import gpu_lines
from cuda_tui.evaluation.report import Measured, NotMeasured
from cuda_tui.events import (
    AnyEvent,
    BudgetReached,
    CandidateEvaluated,
    Entry,
    ProblemMet,
    ReplyReceived,
    Restored,
    RetryScheduled,
    SessionEnded,
    SessionResumed,
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

LONGEST_LINE = 2_000  # characters
SLOW_STAGES = frozenset({"build", "baselines", "measure"})  # their beginning is worth a line
CONTEXT_LINES = 6  # of a failed tool's message


class Printer(Protocol):
    """Shows events one by one."""

    def show(self, event: AnyEvent) -> None: ...


class LinePrinter:
    """Prints a short line for each event that matters to a person. Text from outside cannot steer the terminal."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show(self, event: AnyEvent) -> None:
        """Print the event, if it matters."""
        for line in lines_of(event):
            self._out.write(visible(line)[:LONGEST_LINE] + "\n")
        self._out.flush()


class JsonPrinter:
    """Prints one JSON object a line: durable events as their log entries, transient ones marked as such.

    `entries` returns the session's log so far, in which each durable event is found.
    """

    def __init__(self, out: TextIO, *, entries: Callable[[], tuple[Entry, ...]]) -> None:
        self._out = out
        self._entries = entries
        self._next = 0

    def show(self, event: AnyEvent) -> None:
        """Print the event."""
        line = encode(self._entry(event)) if is_durable(event) else self._transient(event)
        self._out.write(line.decode() + "\n")
        self._out.flush()

    def _entry(self, event: AnyEvent) -> Entry:
        entries = self._entries()
        self._next = next(index for index in range(self._next, len(entries)) if entries[index].event is event) + 1
        return entries[self._next - 1]

    @staticmethod
    def _transient(event: AnyEvent) -> bytes:
        return encode({"at": time.time(), "transient": True, "event": event})


def lines_of(event: AnyEvent) -> list[str]:
    """What a person reads of an event."""
    return _session_lines(event) or _work_lines(event) or _trouble_lines(event)


def _session_lines(event: AnyEvent) -> list[str]:
    match event:
        case SessionStarted(title=title, device=device, model=model, workspace=workspace, sandbox=sandbox):
            return [f"{title} on {device}, with {model}; sandbox: {sandbox}", f"workspace {workspace}"]
        case SessionResumed(model=model, dropped_lines=dropped):
            return [f"resumed with {model}" + (f"; {dropped} lines of the log could not be read" if dropped else "")]
        case ReplyReceived(reply=reply):
            return [line for line in reply.text.splitlines() if line.strip()]
        case SessionEnded(outcome=outcome, message=message, best_candidate=best, best_commit=commit):
            kept = "no candidate measured faster than every baseline"
            if best:
                kept = f"best: candidate {best}, commit {(commit or '')[:12]}"
            return [f"{outcome.value}: {message}", kept]
        case _:
            return []


def _work_lines(event: AnyEvent) -> list[str]:
    match event:
        case ToolStarted(call=call):
            return [f"> {call.name}{_subject(call)}"]
        case ToolFinished(name=name, result=result) if result.is_error:
            shown = result.content.splitlines()[:CONTEXT_LINES]
            return [f"  {name} failed: {shown[0] if shown else ''}", *(f"    {line}" for line in shown[1:])]
        case StageStarted(stage=stage) if stage in SLOW_STAGES:
            return [f"  {stage} ..."]
        case StageEnded(stage=stage, seconds=seconds, summary=summary):
            return [f"  {stage:<10} {seconds:6.1f} s  {summary}".rstrip()]
        case CandidateEvaluated():
            return _verdict(event)
        case StepCommitted(commit=commit, message=message):
            return [f"  commit {commit[:12]}  {message.splitlines()[0] if message else ''}"]
        case Restored(to=to, commit=commit):
            return [f"  the files of {to[:12]} are back, as {commit[:12]}"]
        case _:
            return []


def _trouble_lines(event: AnyEvent) -> list[str]:
    match event:
        case TrialChecked(name=name, passed=False, detail=detail):
            return [f"  trial {name} failed: {detail}"]
        case RetryScheduled(reason=reason, attempt=attempt, wait_s=wait_s):
            return [f"  {reason}; attempt {attempt} failed, the next one in {wait_s:.0f} s"]
        case ProblemMet(message=message, hint=hint):
            return [f"! {message}", *([f"  {hint}"] if hint else [])]
        case BudgetReached(budget=budget, used=used, limit=limit):
            return [f"! {budget}: {used:.4g} of {limit:g} used"]
        case _:
            return []


def _subject(call: ToolCall) -> str:
    """The one argument that says most."""
    for name in ("path", "command", "label", "subject", "commit", "pattern"):
        value = call.arguments.get(name)
        if isinstance(value, str) and value:
            return f" {value.splitlines()[0]}"
    return ""


def _verdict(event: CandidateEvaluated) -> list[str]:
    report = event.report
    code = f"({report.code.value})" if report.code is not None else ""
    label = f" {event.label}" if event.label else ""
    head = f"  candidate {event.number}{label}: {report.verdict.value}{code}  {report.message}"
    match report.performance:
        case Measured() as measured:
            rows = [f"    {ratio_text(ratio)} against {ratio.baseline}" for ratio in measured.ratios]
            rows += [f"    {line}" for line in gpu_lines(measured)]
            return [head, *rows, f"    milestone {report.milestone.value} of 3"]
        case NotMeasured():
            return [head]
