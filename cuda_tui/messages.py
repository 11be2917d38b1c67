"""What is said between person, model and tools. Stored in the session log, so nothing here is provider-specific
except `opaque`, which a provider wants back word for word (thinking signatures, encrypted reasoning)."""

from enum import StrEnum
from typing import Any, TypeAlias

from cuda_tui.evaluation.report import BuildReport, Profile, Report
from cuda_tui.records import Record


class Effect(StrEnum):
    """What a tool may do; approval modes are rules over effects."""

    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"


class ToolSpec(Record):
    """A tool as the model sees it. `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: dict[str, Any]
    effect: Effect


class ToolCall(Record):
    """The model's wish to run a tool. `arguments` are already parsed and are a JSON object.

    `problem` says why what the model sent could not be parsed; such a call is answered with it and never runs.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    problem: str = ""


class ReadDetails(Record, tag_field="kind", tag="read"):
    """A file that was read."""

    path: str
    text: str


class ChangeDetails(Record, tag_field="kind", tag="change"):
    """A file change as it was applied: a unified diff, and the commit that holds it."""

    path: str
    diff: str
    commit: str | None = None


class TraceDetails(Record, tag_field="kind", tag="trace"):
    """The model's operators: the trace format of `evaluation.worker.trace`."""

    trace: dict[str, Any]


class BuildDetails(Record, tag_field="kind", tag="build"):
    """A build on its own."""

    build: BuildReport


class ReportDetails(Record, tag_field="kind", tag="report"):
    """An evaluation (verify, measure)."""

    report: Report


class ProfileDetails(Record, tag_field="kind", tag="profile"):
    """A profile."""

    profile: Profile


Details: TypeAlias = ReadDetails | ChangeDetails | TraceDetails | BuildDetails | ReportDetails | ProfileDetails


class ToolResult(Record):
    """What a tool returned: `content` for the model (short), `details` for the screen and rule-based providers."""

    content: str
    is_error: bool = False
    details: Details | None = None


class Usage(Record):
    """Tokens of one reply as the provider counted them; None where it did not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None


class StopReason(StrEnum):
    """Why the model stopped."""

    END = "end"
    TOOL_CALLS = "tool_calls"
    MAX_TOKENS = "max_tokens"
    REFUSED = "refused"


class UserText(Record, tag_field="role", tag="user"):
    """Something the person wrote, or the task's opening."""

    text: str


class AssistantReply(Record, tag_field="role", tag="assistant"):
    """One complete reply."""

    text: str = ""
    thinking: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    stop: StopReason = StopReason.END
    opaque: tuple[dict[str, Any], ...] = ()  # provider blocks to replay verbatim to the same provider


class ToolReply(Record, tag_field="role", tag="tool"):
    """The result paired with its call."""

    call_id: str
    name: str
    result: ToolResult


Message: TypeAlias = UserText | AssistantReply | ToolReply
