"""Run a command in its own process group, stream its lines, and end the whole group.

Children never inherit the terminal: standard input is empty, output goes through a pipe, and they start a session of
their own. When a command ends, however it ends, so do its descendants, also those that moved to another group or
session or lost their parent: every one of them carries a mark of this run in its environment.
"""

import contextlib
import os
import secrets
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.05  # how often a cancel or a time limit is looked at; both must answer within 2 s
MARK = "CUDA_TUI_RUN"  # in the environment of a command and of all that it starts


@dataclass(frozen=True, kw_only=True)
class Finished:
    """How a command ended. `output` is standard output and error, merged in order."""

    returncode: int
    output: str
    seconds: float
    timed_out: bool = False
    cancelled: bool = False


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    on_line: Callable[[str], None] | None = None,
    timeout_s: float | None = None,
    cancel: threading.Event | None = None,
) -> Finished:
    """Run to the end, to the limit or to the cancel, whichever comes first. Raises OSError where it cannot start."""
    started = time.monotonic()
    mark = secrets.token_hex(16)
    process = subprocess.Popen(
        list(argv),
        cwd=cwd,
        env={**env, MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    lines = _Lines(on_line)
    stop = ""
    try:
        stop = _pump(process, lines, deadline=started + timeout_s if timeout_s else None, cancel=cancel)
    finally:
        # Not yet waited for, so its number cannot have gone to another process or group.
        kill_tree(process.pid)
        kill_marked(mark)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        lines.finish()
    return Finished(
        returncode=process.returncode,
        output=lines.text(),
        seconds=time.monotonic() - started,
        timed_out=stop == "timeout",
        cancelled=stop == "cancel",
    )


def kill_tree(pid: int) -> None:
    """End a process, its group, and every descendant, also those in sessions of their own."""
    family = [pid, *descendants(pid)]
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for member in family:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(member, signal.SIGKILL)


def kill_marked(mark: str) -> None:
    """End every process whose environment carries the mark of one run."""
    entry = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if entry in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)


def has_ended(pid: int) -> bool:
    """Whether a child has ended; it stays a zombie, so that its number is not given to another process."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def descendants(pid: int) -> list[int]:
    """All living descendants of a process, from /proc; empty where there is none to read."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    queue = [pid]
    while queue:
        children = parents.get(queue.pop(), [])
        found += children
        queue += children
    return found


def _pump(
    process: subprocess.Popen[bytes],
    lines: "_Lines",
    *,
    deadline: float | None,
    cancel: threading.Event | None,
) -> str:
    """Read until the pipe closes or the process ends. Returns "", "timeout" or "cancel"."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    os.set_blocking(descriptor, False)
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while True:
            if cancel is not None and cancel.is_set():
                return "cancel"
            if deadline is not None and time.monotonic() > deadline:
                return "timeout"
            if selector.select(POLL_S):
                chunk = os.read(descriptor, 65_536)
                if not chunk:
                    # The pipe may close before the process ends; a process that closed it can still hang.
                    if has_ended(process.pid):
                        return ""
                    time.sleep(POLL_S / 10)
                    continue
                lines.feed(chunk)
            elif has_ended(process.pid):
                # A background grandchild may hold the pipe open; the command itself is over.
                return ""


class _Lines:
    """Bytes to whole lines, each handed on as it completes."""

    def __init__(self, on_line: Callable[[str], None] | None) -> None:
        self._on_line = on_line
        self._parts: list[bytes] = []
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        self._parts.append(chunk)
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        for line in whole:
            self._send(line)

    def finish(self) -> None:
        if self._rest:
            self._send(self._rest)
            self._rest = b""

    def text(self) -> str:
        return b"".join(self._parts).decode("utf-8", "replace")

    def _send(self, line: bytes) -> None:
        if self._on_line is not None:
            self._on_line(line.rstrip(b"\r").decode("utf-8", "replace"))
