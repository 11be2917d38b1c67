"""Reading a session's log: JSON lines, split on line feeds only, damage reported and never fatal."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from cuda_tui.errors import UsageError
from cuda_tui.events import DECODER, DURABLE, Entry, ReplyReceived, ToolFinished, Unknown
from cuda_tui.messages import ToolCall, ToolResult
from cuda_tui.records import Record

LOG_FORMAT = 1
INTERRUPTED = "interrupted, state unknown: the session stopped while this call was open. Look before you go on."

LogRecord: TypeAlias = Entry | Unknown
_KNOWN_KINDS = frozenset(str(kind.__struct_config__.tag) for kind in DURABLE)


class Problem(Record):
    """A line that could not be read. `line` counts from 1."""

    line: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Log:
    """What a log holds, in order. `torn_bytes` counts what follows the last whole record."""

    records: tuple[LogRecord, ...] = ()
    problems: tuple[Problem, ...] = ()
    torn_bytes: int = 0

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The events that this version knows."""
        return tuple(record for record in self.records if isinstance(record, Entry))

    @property
    def next_seq(self) -> int:
        """The number of the next entry to be appended."""
        return max((entry.seq for entry in self.entries), default=-1) + 1


@dataclass(frozen=True, kw_only=True)
class Tail:
    """How a log's bytes end: `whole` bytes are good lines; what follows is `torn`, unless it is a whole record."""

    whole: int
    torn: bytes
    record: LogRecord | None = None  # the last record, where only its line feed is missing


def read_log(path: Path) -> Log:
    """Read a log file. Raises UsageError where there is no such file or it cannot be opened."""
    try:
        return parse_log(path.read_bytes())
    except OSError as error:
        raise UsageError(
            f"cannot read the session log {path}: {error.strerror}", hint="`cuda-tui sessions` lists the sessions"
        ) from error


def parse_log(content: bytes) -> Log:
    """Read a log's bytes."""
    tail = split_tail(content)
    records: list[LogRecord] = []
    problems: list[Problem] = []
    lines = content[: tail.whole].split(b"\n")[:-1]
    for number, line in enumerate(lines, start=1):
        if not line.strip(b"\0 \t\r"):
            if line:
                problems.append(Problem(line=number, reason=f"{len(line)} bytes without a record"))
            continue
        parsed = parse_line(line.lstrip(b"\0"))
        if isinstance(parsed, str):
            problems.append(Problem(line=number, reason=parsed))
        else:
            records.append(parsed)
    if tail.record is not None:
        records.append(tail.record)
    elif tail.torn:
        problems.append(Problem(line=len(lines) + 1, reason=f"incomplete: {len(tail.torn)} bytes at the end"))
    return Log(
        records=tuple(records), problems=tuple(problems), torn_bytes=0 if tail.record is not None else len(tail.torn)
    )


def split_tail(content: bytes) -> Tail:
    """Find where the last whole line ends. Only a line feed ends a line: U+2028 inside a text does not."""
    whole = content.rfind(b"\n") + 1
    torn = content[whole:]
    parsed = parse_line(torn) if torn else ""
    return Tail(whole=whole, torn=torn, record=None if isinstance(parsed, str) else parsed)


def parse_line(line: bytes) -> LogRecord | str:
    """One line's record, or why it is none."""
    try:
        return DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _unknown(line) or str(error)


def _unknown(line: bytes) -> Unknown | None:
    """An event of a kind that this version does not know, if the line is one."""
    try:
        entry: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    event = entry.get("event") if isinstance(entry, dict) else None
    if not isinstance(event, dict):
        return None
    kind = event.get("kind")
    if not isinstance(kind, str) or kind in _KNOWN_KINDS:
        return None
    return Unknown(kind=kind, raw=event)


def open_calls(entries: tuple[Entry, ...]) -> tuple[ToolCall, ...]:
    """The calls of the last reply that have no result: the process ended while they were open."""
    pending: dict[str, ToolCall] = {}
    for entry in entries:
        match entry.event:
            case ReplyReceived(reply=reply):
                pending = {call.id: call for call in reply.tool_calls}
            case ToolFinished(call_id=call_id):
                pending.pop(call_id, None)
            case _:
                pass
    return tuple(pending.values())


def interrupted(call: ToolCall) -> ToolFinished:
    """The result of a call whose end nobody saw."""
    return ToolFinished(call_id=call.id, name=call.name, result=ToolResult(content=INTERRUPTED, is_error=True))
