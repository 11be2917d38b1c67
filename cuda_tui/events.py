"""The closed union of what can happen in a session.

*Durable* events are appended to the log: what happened. *Transient* ones stream past: what is happening. A durable
event supersedes the transient ones before it, so a withdrawn stream leaves no trace in the truth. Live screen,
headless output, replay and reports all read these events, through `state.apply`.
"""

from enum import StrEnum
from typing import TypeAlias, get_args

import msgspec

from cuda_tui.evaluation.report import BuildReport, Profile, Report
from cuda_tui.messages import AssistantReply, Effect, ToolCall, ToolResult
from cuda_tui.records import Record


class Approval(StrEnum):
    """How much runs without asking: `step` asks for every write and command, `edits` for commands, `auto` for none."""

    STEP = "step"
    EDITS = "edits"
    AUTO = "auto"


class Decision(StrEnum):
    """What the person answered. APPROVED_ALL also covers later requests of the scope that was shown."""

    APPROVED = "approved"
    APPROVED_ALL = "approved_all"
    REJECTED = "rejected"


class Outcome(StrEnum):
    """How a session ended."""

    DONE = "done"
    CANCELLED = "cancelled"
    BUDGET = "budget"
    FAILED = "failed"


class Event(Record, tag_field="kind"):
    """Base of all events."""


# ---- durable


class SessionStarted(Event, tag="session_started"):
    """The first event of every log."""

    session: str
    title: str  # what is optimised: "model.py:Model"
    workspace: str
    device: str  # "cpu", "cuda:0"
    model: str  # "autopilot", "anthropic:NAME"
    approval: Approval
    version: str  # of cuda-tui
    source: str = ""  # the user's file
    sandbox: str = ""
    forked_from: str | None = None
    log_format: int = 0  # version of the log's format; 0 where it was not written by `session`


class SessionResumed(Event, tag="session_resumed"):
    """The same session in a new process. Calls left open before it were interrupted."""

    model: str
    approval: Approval
    version: str
    dropped_lines: int = 0


class UserSpoke(Event, tag="user_spoke"):
    """The person, or the task's opening text, spoke to the agent."""

    text: str


class ReplyReceived(Event, tag="reply_received"):
    """The model's complete reply; supersedes every delta before it."""

    turn: int
    reply: AssistantReply
    seconds: float = 0.0


class ApprovalAsked(Event, tag="approval_asked"):
    """A call waits for the person. `diff` is what would change, `command` what would run, exactly."""

    call: ToolCall
    effect: Effect
    scope: str  # what "approve all" would cover, in words: "every file edit in this workspace"
    diff: str = ""
    command: str = ""
    evidence: str = ""  # what a shadow check found, one line


class ApprovalGiven(Event, tag="approval_given"):
    """The person's answer. `edited` are the arguments after they edited the proposal."""

    call_id: str
    decision: Decision
    reason: str = ""
    edited: dict[str, object] | None = None


class ToolStarted(Event, tag="tool_started"):
    """A call runs."""

    call: ToolCall
    effect: Effect


class ToolFinished(Event, tag="tool_finished"):
    """A call ended; rejected and interrupted calls end too."""

    call_id: str
    name: str
    result: ToolResult
    seconds: float = 0.0


class Built(Event, tag="built"):
    """A build ended, on its own or as a stage of an evaluation."""

    build: BuildReport


class CandidateEvaluated(Event, tag="candidate_evaluated"):
    """A verdict. `number` counts the session's candidates from 1; `commit` holds its files."""

    number: int
    report: Report
    commit: str | None = None
    label: str = ""


class Profiled(Event, tag="profiled"):
    """A profile was taken."""

    profile: Profile


class StepCommitted(Event, tag="step_committed"):
    """An accepted step became a commit of the workspace."""

    commit: str
    message: str
    files: tuple[str, ...] = ()
    diff_from_start: str = ""  # unified diff of the workspace against its first commit


class Restored(Event, tag="restored"):
    """The workspace's files went back to a commit; `commit` is the new commit that did it."""

    to: str
    commit: str
    diff_from_start: str = ""


class NoteWritten(Event, tag="note_written"):
    """A line for the lab notebook."""

    text: str


class MachineSampled(Event, tag="machine_sampled"):
    """Load of the machine, once a second at most. None where the machine does not say."""

    cpu_load: float | None = None  # cores busy
    memory_used_bytes: int | None = None
    gpu_utilisation: float | None = None  # 0 to 1
    gpu_memory_used_bytes: int | None = None
    gpu_clock_mhz: int | None = None
    gpu_power_w: float | None = None
    gpu_temperature_c: int | None = None
    throttle: str | None = None
    gpu_name: str | None = None
    gpu_memory_total_bytes: int | None = None
    gpu_missing: dict[str, str] = msgspec.field(
        default_factory=dict
    )  # reading and why it is not there, when it changes


class RetryScheduled(Event, tag="retry_scheduled"):
    """The provider failed in a way that may pass; the next attempt comes after `wait_s`."""

    reason: str
    attempt: int
    wait_s: float


class ProblemMet(Event, tag="problem_met"):
    """Something failed that the person should know; the session goes on or ends as the next event says."""

    message: str
    hint: str = ""


class BudgetReached(Event, tag="budget_reached"):
    """A budget is nearly (80%) or wholly used up."""

    budget: str  # "turns", "tokens", "wall time"
    used: float
    limit: float
    exhausted: bool


class SettingsChanged(Event, tag="settings_changed"):
    """The person switched model or approval in mid-session."""

    model: str
    approval: Approval


class SessionEnded(Event, tag="session_ended"):
    """The agent is finished or was stopped. A resumed session may follow it with more events."""

    outcome: Outcome
    message: str
    best_candidate: int | None = None
    best_commit: str | None = None


# ---- transient


class TextStreamed(Event, tag="text_streamed"):
    """A piece of the reply's text."""

    text: str


class ThinkingStreamed(Event, tag="thinking_streamed"):
    """A piece of the reply's thinking."""

    text: str


class CallStreamed(Event, tag="call_streamed"):
    """A piece of a tool call's arguments as raw JSON text. Provisional: nothing runs on it."""

    index: int
    name: str
    fragment: str


class StreamWithdrawn(Event, tag="stream_withdrawn"):
    """The attempt failed; its deltas never happened."""

    reason: str


class LineLogged(Event, tag="line_logged"):
    """A line of a running build, tool or evaluation."""

    source: str  # "build", "shell", "evaluate"
    text: str


class StageStarted(Event, tag="stage_started"):
    """A stage of an evaluation began."""

    stage: str
    detail: str = ""


class StageEnded(Event, tag="stage_ended"):
    """A stage of an evaluation ended."""

    stage: str
    seconds: float
    summary: str = ""


class TrialChecked(Event, tag="trial_checked"):
    """One trial of a running verification."""

    name: str
    passed: bool
    detail: str = ""


class SliceMeasured(Event, tag="slice_measured"):
    """Progress of a running measurement."""

    side: str
    process: int
    processes: int
    median_us: float


Durable: TypeAlias = (
    SessionStarted
    | SessionResumed
    | UserSpoke
    | ReplyReceived
    | ApprovalAsked
    | ApprovalGiven
    | ToolStarted
    | ToolFinished
    | Built
    | CandidateEvaluated
    | Profiled
    | StepCommitted
    | Restored
    | NoteWritten
    | MachineSampled
    | RetryScheduled
    | ProblemMet
    | BudgetReached
    | SettingsChanged
    | SessionEnded
)
Transient: TypeAlias = (
    TextStreamed
    | ThinkingStreamed
    | CallStreamed
    | StreamWithdrawn
    | LineLogged
    | StageStarted
    | StageEnded
    | TrialChecked
    | SliceMeasured
)
AnyEvent: TypeAlias = Durable | Transient

DURABLE: tuple[type[Event], ...] = get_args(Durable)


class Unknown(Record):
    """An event of a newer version: shown, never fatal."""

    kind: str
    raw: dict[str, object] = msgspec.field(default_factory=dict)


class Entry(Record):
    """One line of a session log. `at` is seconds since the epoch, `seq` counts from 0 without gaps."""

    seq: int
    at: float
    event: Durable


def is_durable(event: AnyEvent) -> bool:
    """Whether the event belongs in the log."""
    return isinstance(event, DURABLE)


DECODER = msgspec.json.Decoder(Entry)
