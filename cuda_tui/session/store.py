"""Writing a session's log: append only, one writer, nothing lost when the power goes."""

import fcntl
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from cuda_tui.errors import InfrastructureError, UsageError
from cuda_tui.events import (
    ApprovalAsked,
    ApprovalGiven,
    Durable,
    Entry,
    Event,
    ReplyReceived,
    SessionEnded,
    SessionResumed,
    SessionStarted,
    StepCommitted,
    ToolFinished,
    UserSpoke,
)
from cuda_tui.messages import ReadDetails, ToolResult
from cuda_tui.records import encode
from cuda_tui.session.log import LOG_FORMAT, Log, interrupted, open_calls, parse_log, split_tail

INLINE_LIMIT = 64 * 1024  # characters of tool output that stay in the log; more goes to a side file
_SHOWN = 4_000  # characters of a large output that stay in the log at either end
_BOUNDARIES: tuple[type[Event], ...] = (
    SessionStarted,
    SessionResumed,
    UserSpoke,
    ReplyReceived,
    ApprovalAsked,
    ApprovalGiven,
    StepCommitted,
    SessionEnded,
)


def _unmasked(text: str) -> str:
    return text


def new_session_id(now: float) -> str:
    """A name that sorts by time: "20261130-213512-4f1c" (local time)."""
    return time.strftime("%Y%m%d-%H%M%S", time.localtime(now)) + "-" + secrets.token_hex(2)


class Session:
    """The one writer of a session's log. Use `create` or `resume`; close it, or use it as a context manager.

    `mask` hides known secret values in every text before it is written. `dropped_bytes` counts what a torn end held
    when the session was resumed; those bytes lie in the side folder.
    """

    def __init__(self, path: Path, descriptor: int, *, mask: Callable[[str], str], clock: Callable[[], float]) -> None:
        self.path = path
        self.log = Log()
        self.dropped_bytes = 0
        self._descriptor = descriptor
        self._mask = mask
        self._clock = clock
        self._entries: list[Entry] = []
        self._next_seq = 0

    @classmethod
    def create(
        cls,
        folder: Path,
        started: SessionStarted,
        *,
        mask: Callable[[str], str] = _unmasked,
        clock: Callable[[], float] = time.time,
    ) -> "Session":
        """Start a log in `folder` with `started` as its first event. Raises UsageError where it cannot be written."""
        path = folder / f"{started.session}.jsonl"
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UsageError(
                f"cannot write a session log in {folder}: {error.strerror}",
                hint="make the folder writable, or set XDG_STATE_HOME to one that is",
            ) from error
        session = cls(path, descriptor, mask=mask, clock=clock)
        session._lock()
        session.append(msgspec.structs.replace(started, log_format=LOG_FORMAT))
        return session

    @classmethod
    def resume(
        cls, path: Path, *, mask: Callable[[str], str] = _unmasked, clock: Callable[[], float] = time.time
    ) -> "Session":
        """Open an existing log for more events.

        A torn end is moved aside; calls left open get an "interrupted" result. Raises UsageError where the log is
        missing, in use by another process, or holds no event at all.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise UsageError(
                f"cannot open the session log {path}: {error.strerror}", hint="`cuda-tui sessions` lists the sessions"
            ) from error
        session = cls(path, descriptor, mask=mask, clock=clock)
        try:
            session._lock()
            session._load()
        except BaseException:
            session.close()
            raise
        for call in open_calls(session.entries):
            session.append(interrupted(call))
        return session

    @property
    def id(self) -> str:
        """The session's name."""
        return self.path.stem

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All events that this version knows, as they were written."""
        return tuple(self._entries)

    @property
    def side_folder(self) -> Path:
        """Where large outputs and torn ends lie."""
        return self.path.with_suffix("")

    def append(self, event: Durable) -> Entry:
        """Write one event and return it as it was written: masked, with large outputs moved to side files."""
        kept = self._shortened(self._masked(event))
        entry = Entry(seq=self._next_seq, at=self._clock(), event=kept)
        self._write(encode(entry) + b"\n", durable=isinstance(event, _BOUNDARIES))
        self._next_seq += 1
        self._entries.append(entry)
        return entry

    def close(self) -> None:
        """Flush and give up the lock. Closing twice is allowed."""
        if self._descriptor < 0:
            return
        descriptor, self._descriptor = self._descriptor, -1
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(
                f"session {self.path.stem} is open in another process",
                hint="close it there, or look at it with `cuda-tui replay`",
            ) from error

    def _load(self) -> None:
        content = self.path.read_bytes()
        self.log = parse_log(content)
        if not self.log.records:
            raise UsageError(f"{self.path} holds no readable event", hint="`cuda-tui sessions` lists the sessions")
        tail = split_tail(content)
        if tail.record is not None:
            self._write(b"\n", durable=True)
        elif tail.torn:
            self._move_aside(tail.torn, whole=tail.whole)
        self._entries = list(self.log.entries)
        self._next_seq = self.log.next_seq

    def _move_aside(self, torn: bytes, *, whole: int) -> None:
        """Keep the torn bytes in a side file, safely, before the log is cut back to its last whole line."""
        _write_side_file(self.side_folder / f"torn-at-{whole}.bin", torn)
        os.ftruncate(self._descriptor, whole)
        os.fsync(self._descriptor)
        self.dropped_bytes = len(torn)

    def _write(self, line: bytes, *, durable: bool) -> None:
        if self._descriptor < 0:
            raise InfrastructureError(f"session {self.id} is closed", hint="resume it to write more")
        before = os.fstat(self._descriptor).st_size
        try:
            written = os.write(self._descriptor, line)
            if written != len(line):
                raise OSError(28, "only part of the record fitted")
            if durable:
                os.fsync(self._descriptor)
        except OSError as error:
            os.ftruncate(self._descriptor, before)
            raise InfrastructureError(
                f"cannot write the session log {self.path}: {error.strerror}", hint="free some space, then resume"
            ) from error

    def _masked(self, event: Durable) -> Durable:
        """The event with every text masked; the same object where nothing is secret."""
        before = msgspec.to_builtins(event)
        after = map_texts(before, self._mask)
        return event if after == before else msgspec.convert(after, type(event))

    def _shortened(self, event: Durable) -> Durable:
        if not isinstance(event, ToolFinished):
            return event
        result = event.result
        if len(result.content) > INLINE_LIMIT:
            result = msgspec.structs.replace(result, content=self._aside(result.content, "output"))
        match result.details:
            case ReadDetails(path=path, text=text) if len(text) > INLINE_LIMIT:
                details = ReadDetails(path=path, text=self._aside(text, "text"))
                result = msgspec.structs.replace(result, details=details)
            case _:
                pass
        return event if result is event.result else self._with_result(event, result)

    @staticmethod
    def _with_result(event: ToolFinished, result: ToolResult) -> ToolFinished:
        return msgspec.structs.replace(event, result=result)

    def _aside(self, text: str, what: str) -> str:
        """Store `text` in a side file; return its beginning, its end and where the whole is."""
        name = f"{self._next_seq}-{what}.txt"
        _write_side_file(self.side_folder / name, text.encode("utf-8", "backslashreplace"))
        left_out = len(text) - 2 * _SHOWN
        return (
            f"{text[:_SHOWN]}\n[... {left_out} characters left out; "
            f"the whole is in {self.side_folder.name}/{name} beside the session log ...]\n{text[-_SHOWN:]}"
        )


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Apply `change` to every text inside plain lists, tuples and dictionaries, keys included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {map_texts(key, change): map_texts(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [map_texts(item, change) for item in value]
    if isinstance(value, tuple):
        return tuple(map_texts(item, change) for item in value)
    return value


def _write_side_file(path: Path, content: bytes) -> None:
    """Write through a temporary name, so that the file is whole or absent."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    temporary = path.with_name(path.name + ".part")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
