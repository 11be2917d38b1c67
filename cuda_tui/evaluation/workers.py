"""The controller's handles: the warm zygote in the user's interpreter, and the workers it forks."""

import contextlib
import dataclasses
import json
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from cuda_tui import process
from cuda_tui.errors import Cancelled, InfrastructureError
from cuda_tui.sandbox.access import Access
from cuda_tui.sandbox.rung import Rung, worker_spec

WORKER = Path(__file__).parent / "worker"
POLL_S = 0.05
START_LIMIT_S = 120.0
LARGEST_ANSWER = 64 << 20  # bytes; an honest one has at most some numbers for each timed call


class WorkerDied(Exception):
    """A worker ended without an answer. `status` is its exit code, or minus the signal."""

    def __init__(self, status: int | None) -> None:
        super().__init__(f"the worker ended with status {status}")
        self.status = status


class WorkerTimedOut(Exception):
    """A worker did not answer in time and was killed."""

    def __init__(self, operation: str, limit_s: float) -> None:
        super().__init__(f"{operation} did not end in {limit_s:.0f} s")
        self.operation = operation
        self.limit_s = limit_s


class WorkerFault(Exception):
    """An operation raised; `error` has type, message, file, line, traceback and perhaps a code."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['type']}: {error['message']}")
        self.error = error

    @property
    def place(self) -> str:
        """`file:line` of the innermost frame outside our own code, or an empty string."""
        return f"{self.error['file']}:{self.error['line']}" if self.error.get("file") else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placement:
    """How a worker runs: threads, the core it is pinned to, its device, variables added to the environment."""

    threads: int = 1
    cpu: int | None = None
    device: str = "cpu"
    environment: dict[str, str] = dataclasses.field(default_factory=dict)


class WarmParent:
    """A zygote that starts on first use, shared by everything that looks at one user's models in one process."""

    def __init__(self, *, python: str, env: Mapping[str, str], log: Path) -> None:
        self._python = python
        self._env = env
        self._log = log
        self._zygote: Zygote | None = None
        self._starting = threading.Lock()

    def zygote(self, cancel: threading.Event | None = None) -> "Zygote":
        """The warm parent; about 4 s the first time. Raises InfrastructureError and Cancelled."""
        with self._starting:
            if self._zygote is None:
                self._log.parent.mkdir(parents=True, exist_ok=True)
                self._zygote = Zygote(python=self._python, env=self._env, log=self._log, cancel=cancel)
            return self._zygote

    def close(self) -> None:
        """End it and every worker."""
        with self._starting:
            if self._zygote is not None:
                self._zygote.close()
                self._zygote = None


class Zygote:
    """A process that has imported torch and forks workers. It and they die with this process."""

    def __init__(
        self, *, python: str, env: Mapping[str, str], log: Path, cancel: threading.Event | None = None
    ) -> None:
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = mine
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self.log = log
        with theirs, log.open("ab") as out:
            self._process = subprocess.Popen(
                [python, str(WORKER), str(theirs.fileno())],
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.versions = self._greeting(python, cancel)

    def _greeting(self, python: str, cancel: threading.Event | None) -> dict[str, str]:
        answer = json.loads(self._first_packet(cancel))
        if "error" in answer:
            self.close()
            raise InfrastructureError(
                f"PyTorch cannot be imported by {python}: {answer['error']}",
                hint=f"Name an interpreter that has torch with --python. Its output is in {self.log}.",
            )
        self._control.settimeout(30)
        return {key: str(value) for key, value in answer["versions"].items()}

    def _first_packet(self, cancel: threading.Event | None) -> bytes:
        deadline = time.monotonic() + START_LIMIT_S
        self._control.settimeout(POLL_S)
        while time.monotonic() < deadline:
            if cancel is not None and cancel.is_set():
                self.close()
                raise Cancelled("the start of the workers was cancelled")
            with contextlib.suppress(TimeoutError):
                return self._control.recv(1 << 16) or b'{"error": "it ended at once"}'
        return json.dumps({"error": f"no answer in {START_LIMIT_S:.0f} s"}).encode()

    def fork(
        self,
        kind: Literal["oracle", "candidate"],
        *,
        access: Access,
        rung: Rung,
        log: Path,
        placement: "Placement",
    ) -> "Worker":
        """A new isolated worker. Raises InfrastructureError where isolation fails."""
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        request = {"op": "fork", "kind": kind, "spec": worker_spec(access), "rung": rung.worker, "log": str(log)}
        with theirs:
            answer = self._ask(request | dataclasses.asdict(placement), [theirs.fileno()])
        self._connections.add(mine)
        return Worker(self, pid=answer["pid"], connection=mine, kind=kind)

    def forget(self, connection: socket.socket) -> None:
        """Close a worker's connection."""
        self._connections.discard(connection)
        with contextlib.suppress(OSError):
            connection.close()

    def reap(self, pid: int) -> int | None:
        """Kill a worker's group and collect its status."""
        try:
            status: int | None = self._ask({"op": "reap", "pid": pid})["status"]
        except (OSError, InfrastructureError):
            return None
        return status

    def _ask(self, request: dict[str, Any], descriptors: list[int] | None = None) -> dict[str, Any]:
        with self._lock:
            socket.send_fds(self._control, [json.dumps(request).encode()], descriptors or [])
            packet = self._control.recv(1 << 16)
        if not packet:
            raise InfrastructureError("The worker parent ended.", hint=f"Its output is in {self.log}.")
        answer: dict[str, Any] = json.loads(packet)
        return answer

    def close(self) -> None:
        """End it and every worker."""
        for connection in list(self._connections):
            self.forget(connection)
        self._control.close()
        process.kill_tree(self._process.pid)
        self._process.wait()


class Worker:
    """One forked process; a context manager. After any failure it is dead, and a new one must be forked."""

    def __init__(self, zygote: Zygote, *, pid: int, connection: socket.socket, kind: str) -> None:
        self._zygote = zygote
        self.pid = pid
        self.kind = kind
        self._connection = connection
        self._buffer = b""
        self._dead = False
        greeting = self._receive("start", START_LIMIT_S, None)
        if "error" in greeting:
            self.close()
            error = greeting["error"]
            failed = "could not be isolated" if error["type"] == "IsolationFailed" else "did not start"
            raise InfrastructureError(f"The {kind} process {failed}: {error['message']}", hint="Run cuda-tui doctor.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether it can still be asked."""
        return not self._dead

    def ask(
        self, operation: str, *, limit_s: float, cancel: threading.Event | None = None, **fields: Any
    ) -> dict[str, Any]:
        """One request and its answer.

        Raises WorkerFault (the operation raised), WorkerDied, WorkerTimedOut or Cancelled; all but the first end
        the worker.
        """
        if self._dead:
            raise WorkerDied(None)
        try:
            self._connection.settimeout(limit_s)
            self._connection.sendall(json.dumps({"op": operation} | fields).encode() + b"\n")
        except OSError:
            raise WorkerDied(self._end()) from None
        answer = self._receive(operation, limit_s, cancel)
        if "error" in answer:
            raise WorkerFault(_error(answer["error"]))
        return answer

    def _receive(self, operation: str, limit_s: float, cancel: threading.Event | None) -> dict[str, Any]:
        deadline = time.monotonic() + limit_s
        self._connection.settimeout(POLL_S)
        while b"\n" not in self._buffer:
            if cancel is not None and cancel.is_set():
                self._end()
                raise Cancelled(f"{operation} was cancelled")
            if time.monotonic() > deadline:
                self._end()
                raise WorkerTimedOut(operation, limit_s)
            try:
                chunk = self._connection.recv(1 << 20)
            except TimeoutError:
                continue
            except OSError:
                chunk = b""
            if not chunk:
                raise WorkerDied(self._end())
            self._buffer += chunk
            if len(self._buffer) > LARGEST_ANSWER:
                raise self._forged()
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        # Our own code on the worker's side answers once, with an object; a second answer was written by another's.
        if not isinstance(answer, dict) or self._buffer:
            raise self._forged()
        return answer

    def _forged(self) -> WorkerFault:
        self._end()
        return WorkerFault(_error({"type": "Protocol", "message": "forged answer", "code": "FORGED_RESULT"}))

    def _end(self) -> int | None:
        self._dead = True
        self._zygote.forget(self._connection)
        return self._zygote.reap(self.pid)

    def close(self) -> None:
        """Kill and collect."""
        if not self._dead:
            self._end()


def _error(found: Any) -> dict[str, Any]:
    """A worker's account of an exception, with every field there and of its type."""
    fields = found if isinstance(found, dict) else {}
    line = fields.get("line")
    texts = {name: str(fields.get(name) or "") for name in ("type", "message", "during", "file", "traceback", "code")}
    return texts | {"line": line if isinstance(line, int) else 0}
