"""`apply(state, event)`: the one way in which a session's events become what is shown."""

from typing import TypeAlias

from msgspec.structs import replace

from cuda_tui.events import (
    AnyEvent,
    ApprovalAsked,
    ApprovalGiven,
    BudgetReached,
    Built,
    CallStreamed,
    CandidateEvaluated,
    LineLogged,
    MachineSampled,
    NoteWritten,
    ProblemMet,
    Profiled,
    ReplyReceived,
    Restored,
    RetryScheduled,
    SessionEnded,
    SessionResumed,
    SessionStarted,
    SettingsChanged,
    SliceMeasured,
    StageEnded,
    StageStarted,
    StepCommitted,
    StreamWithdrawn,
    TextStreamed,
    ThinkingStreamed,
    ToolFinished,
    ToolStarted,
    TrialChecked,
    Unknown,
    UserSpoke,
)
from cuda_tui.state import evaluating, talking
from cuda_tui.state.model import MACHINE_SAMPLES, NoticeBlock, State, Stream

Talk: TypeAlias = UserSpoke | ReplyReceived | TextStreamed | ThinkingStreamed | CallStreamed | StreamWithdrawn
Calls: TypeAlias = ApprovalAsked | ApprovalGiven | ToolStarted | ToolFinished
Evaluation: TypeAlias = (
    Built | CandidateEvaluated | Profiled | LineLogged | StageStarted | StageEnded | TrialChecked | SliceMeasured
)
Notices: TypeAlias = NoteWritten | RetryScheduled | ProblemMet | BudgetReached | StepCommitted | Restored | Unknown
Session: TypeAlias = SessionStarted | SessionResumed | SettingsChanged | SessionEnded | MachineSampled


def apply(state: State, event: AnyEvent | Unknown, *, at: float | None = None) -> State:
    """The state after `event`. `at` is when it happened, seconds since the epoch; None leaves the time as it was."""
    state = replace(state, events=state.events + 1, now=state.now if at is None else at)
    match event:
        case UserSpoke() | ReplyReceived() | TextStreamed() | ThinkingStreamed() | CallStreamed() | StreamWithdrawn():
            return _talk(state, event)
        case ApprovalAsked() | ApprovalGiven() | ToolStarted() | ToolFinished():
            return _call(state, event)
        case (
            Built()
            | CandidateEvaluated()
            | Profiled()
            | LineLogged()
            | StageStarted()
            | StageEnded()
            | TrialChecked()
            | SliceMeasured()
        ):
            return _evaluation(state, event)
        case (
            NoteWritten() | RetryScheduled() | ProblemMet() | BudgetReached() | StepCommitted() | Restored() | Unknown()
        ):
            return _notice(state, event)
        case SessionStarted() | SessionResumed() | SettingsChanged() | SessionEnded() | MachineSampled():
            return _session(state, event)


def _talk(state: State, event: Talk) -> State:
    match event:
        case UserSpoke(text=text):
            return talking.user_spoke(state, text)
        case ReplyReceived():
            return talking.reply_received(state, event)
        case TextStreamed(text=text):
            return replace(state, stream=replace(state.stream, text=state.stream.text + text), retry="")
        case ThinkingStreamed(text=text):
            return replace(state, stream=replace(state.stream, thinking=state.stream.thinking + text), retry="")
        case CallStreamed():
            return talking.call_streamed(state, event)
        case StreamWithdrawn():
            return replace(state, stream=Stream())


def _call(state: State, event: Calls) -> State:
    match event:
        case ApprovalAsked():
            return talking.approval_asked(state, event)
        case ApprovalGiven():
            return talking.approval_given(state, event)
        case ToolStarted():
            return talking.tool_started(state, event)
        case ToolFinished():
            return talking.tool_finished(state, event)


def _evaluation(state: State, event: Evaluation) -> State:
    match event:
        case Built(build=build):
            return replace(state, build=build, builds=(*state.builds, build))
        case CandidateEvaluated():
            return evaluating.candidate_evaluated(state, event)
        case Profiled(profile=profile):
            return evaluating.profiled(state, profile)
        case LineLogged(source=source, text=text):
            return evaluating.line_logged(state, source, text)
        case StageStarted(stage=stage, detail=detail):
            return evaluating.stage_started(state, stage, detail)
        case StageEnded():
            return evaluating.stage_ended(state, event)
        case TrialChecked():
            return evaluating.trial_checked(state, event)
        case SliceMeasured():
            return evaluating.slice_measured(state, event)


def _notice(state: State, event: Notices) -> State:
    match event:
        case NoteWritten(text=text):
            return talking.noticed(state, NoticeBlock(kind="note", text=text))
        case RetryScheduled(reason=reason, attempt=attempt, wait_s=wait_s):
            text = f"{reason}; attempt {attempt + 1} in {wait_s:.0f} s"
            return talking.noticed(replace(state, retry=text, stream=Stream()), NoticeBlock(kind="retry", text=text))
        case ProblemMet(message=message, hint=hint):
            return talking.noticed(state, NoticeBlock(kind="problem", text=message, hint=hint))
        case BudgetReached():
            word = "used up" if event.exhausted else "nearly used up"
            text = f"Budget of {event.budget} {word}: {event.used:,.0f} of {event.limit:,.0f}"
            return talking.noticed(state, NoticeBlock(kind="budget", text=text))
        case StepCommitted():
            return talking.step_committed(state, event)
        case Restored(to=to, commit=commit, diff_from_start=diff):
            text = f"Files restored to {to[:8]} (recorded as {commit[:8]})"
            state = replace(state, diff=diff, commit=commit)
            return talking.noticed(state, NoticeBlock(kind="restore", text=text))
        case Unknown(kind=kind):
            text = f"An event of a newer version, not shown: {kind}"
            return talking.noticed(state, NoticeBlock(kind="unknown", text=text))


def _session(state: State, event: Session) -> State:
    match event:
        case SessionStarted():
            return replace(
                state, session=event, started_at=state.now, model=event.model, approval=event.approval, ended=None
            )
        case SessionResumed():
            return talking.resumed(state, event)
        case SettingsChanged(model=model, approval=approval):
            text = f"Now {model}, approval {approval.value}"
            state = replace(state, model=model, approval=approval)
            return talking.noticed(state, NoticeBlock(kind="settings", text=text))
        case SessionEnded(message=message, outcome=outcome):
            state = talking.interrupted(replace(state, ended=event, pending=None, stream=Stream()))
            return talking.noticed(state, NoticeBlock(kind="end", text=message or f"Session ended: {outcome.value}"))
        case MachineSampled():
            return replace(state, machine=(*state.machine, event)[-MACHINE_SAMPLES:])
