"""What the screen, the headless output and the reports know of a session, folded from its events."""

from enum import StrEnum
from typing import Literal, TypeAlias

from cuda_tui.evaluation.report import BuildReport, Measured, Outcome, Profile, Ratio, Report, Verdict, superseded
from cuda_tui.events import Approval, ApprovalAsked, Decision, MachineSampled, SessionEnded, SessionStarted
from cuda_tui.messages import Effect, ToolCall, ToolResult
from cuda_tui.records import Record

LOG_LINES = 5_000
MACHINE_SAMPLES = 600  # ten minutes at 1 Hz


class ToolStatus(StrEnum):
    """Where a tool call stands."""

    ASKED = "waiting for you"
    APPROVED = "approved"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    REJECTED = "rejected"
    INTERRUPTED = "interrupted"


class UserBlock(Record, tag="user"):
    """What the person, or the task's opening, said."""

    text: str


class ReplyBlock(Record, tag="reply"):
    """The model's complete reply; its tool calls follow as blocks of their own."""

    turn: int
    text: str
    thinking: str = ""
    seconds: float = 0.0


class ToolBlock(Record, tag="tool"):
    """One tool call from proposal to result. `started_at` is seconds since the epoch."""

    call: ToolCall
    effect: Effect
    status: ToolStatus
    diff: str = ""
    command: str = ""
    evidence: str = ""
    decision: Decision | None = None
    reason: str = ""
    edited: bool = False
    started_at: float | None = None
    seconds: float | None = None
    result: ToolResult | None = None


class VerdictBlock(Record, tag="verdict"):
    """An evaluated candidate, where it happened in the talk."""

    number: int


class NoticeBlock(Record, tag="notice"):
    """One line that is neither talk nor tool."""

    kind: Literal["session", "note", "commit", "restore", "retry", "problem", "budget", "settings", "end", "unknown"]
    text: str
    hint: str = ""


Block: TypeAlias = UserBlock | ReplyBlock | ToolBlock | VerdictBlock | NoticeBlock


class CallDraft(Record):
    """A tool call whose arguments are still arriving."""

    index: int
    name: str
    arguments: str


class Stream(Record):
    """The reply that is being written. Provisional: it vanishes when the attempt is withdrawn."""

    text: str = ""
    thinking: str = ""
    calls: tuple[CallDraft, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing has arrived."""
        return not (self.text or self.thinking or self.calls)


class LogLine(Record):
    """One line of a running build, tool or evaluation."""

    source: str
    text: str


class Stage(Record):
    """A stage of the evaluation under way or just ended. `seconds` is None while it runs."""

    name: str
    started_at: float
    detail: str = ""
    seconds: float | None = None
    summary: str = ""


class TrialProgress(Record):
    """A trial of the running verification."""

    name: str
    passed: bool
    detail: str = ""


class SliceProgress(Record):
    """How far one side of the running measurement is; times in microseconds."""

    side: str
    process: int
    processes: int
    median_us: float


class Candidate(Record):
    """An evaluated candidate; `number` counts from 1, `at` is seconds since the epoch."""

    number: int
    report: Report
    at: float
    label: str = ""
    commit: str | None = None

    @property
    def measured(self) -> Measured | None:
        """Its timing, where it passed and was measured."""
        if self.report.verdict is Verdict.PASSED and isinstance(self.report.performance, Measured):
            return self.report.performance
        return None

    @property
    def headline(self) -> Ratio | None:
        """The ratio to the fastest valid baseline, where it passed and was measured."""
        return self.measured.headline if self.measured else None


class Tokens(Record):
    """Sums over all replies, as the providers counted them."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    known: bool = False  # whether any reply was counted

    @property
    def total(self) -> int:
        """Read and written, cache reads included."""
        return self.input + self.output + self.cache_read


class State(Record):
    """Everything at one moment. Every field keeps its identity while nothing in it changes."""

    now: float = 0.0  # time of the last event, seconds since the epoch
    events: int = 0
    session: SessionStarted | None = None
    started_at: float | None = None
    model: str = ""
    approval: Approval = Approval.STEP
    blocks: tuple[Block, ...] = ()
    stream: Stream = Stream()
    turn: int = 0
    pending: ApprovalAsked | None = None
    log: tuple[LogLine, ...] = ()
    log_dropped: int = 0
    build: BuildReport | None = None
    builds: tuple[BuildReport, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    profiles: tuple[Profile, ...] = ()
    diff: str = ""
    commit: str | None = None
    stages: tuple[Stage, ...] = ()
    trials: tuple[TrialProgress, ...] = ()
    slices: tuple[SliceProgress, ...] = ()
    tokens: Tokens = Tokens()
    machine: tuple[MachineSampled, ...] = ()
    retry: str = ""
    ended: SessionEnded | None = None

    @property
    def running_tool(self) -> ToolBlock | None:
        """The call that runs now, if any."""
        for block in reversed(self.blocks):
            if isinstance(block, ToolBlock) and block.status is ToolStatus.RUNNING:
                return block
            if isinstance(block, UserBlock):
                return None
        return None

    @property
    def running_stage(self) -> Stage | None:
        """The stage of an evaluation that runs now, if any."""
        return next((stage for stage in reversed(self.stages) if stage.seconds is None), None)

    def candidate(self, number: int) -> Candidate | None:
        """The candidate of that number."""
        return next((item for item in self.candidates if item.number == number), None)

    @property
    def best(self) -> Candidate | None:
        """The passed candidate with the highest ratio to the fastest baseline, when that ratio says *faster*."""
        return best_of(self.candidates)


def best_of(candidates: tuple[Candidate, ...]) -> Candidate | None:
    """The fastest of those whose interval says *faster*; the earlier one at a tie.

    Of several measurements of the same sources the last one counts.
    """
    best: Candidate | None = None
    earlier = superseded([candidate.report for candidate in candidates])
    for position, candidate in enumerate(candidates):
        ratio = candidate.headline
        if position in earlier or ratio is None or ratio.outcome is not Outcome.FASTER:
            continue
        if best is None or best.headline is None or ratio.value > best.headline.value:
            best = candidate
    return best
