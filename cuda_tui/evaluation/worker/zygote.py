"""The warm parent: it has imported torch, never touched CUDA, never imports user code, and forks workers.

Control messages are single packets. `fork` carries the worker's end of a socket; `reap` ends and collects one.
"""

import contextlib
import importlib
import json
import os
import platform
import select
import signal
import socket
import sys
import sysconfig
import tempfile
import threading
import traceback
from collections.abc import Iterator
from typing import Any

from . import isolate
from .wire import Channel

KINDS = ("oracle", "candidate")
LATER = ("compiled", "randomness", "trace")  # what those two import when they need it
WATCH_MS = 50


def serve(control_fd: int) -> None:
    """Serve until the controller is gone. Ends all workers with it: each asked to die with its parent."""
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    # Where no pid namespace ends them, processes that a worker leaves behind become ours, and we end them.
    isolate.adopt_orphans()
    workers: set[int] = set()
    control = socket.socket(fileno=control_fd)
    try:
        with _ending_with(control):
            versions = _import_torch()
    except BaseException as error:  # the controller must hear of it, whatever it is
        control.send(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        return
    control.send(json.dumps({"versions": versions}).encode())
    while True:
        try:
            packet, descriptors, _, _ = socket.recv_fds(control, 1 << 18, 4)
        except OSError:
            packet, descriptors = b"", []
        if not packet:
            _end_children(set())
            os._exit(0)
        request = json.loads(packet)
        if request["op"] == "fork":
            answer = _fork(control, request, descriptors[0])
            workers.add(answer["pid"])
        else:
            workers.discard(request["pid"])
            answer = _reap(request["pid"])
            _end_children(workers)
        control.send(json.dumps(answer).encode())


@contextlib.contextmanager
def _ending_with(control: socket.socket) -> "Iterator[None]":
    """End this process at once if the controller goes meanwhile. Its thread is gone before anything is forked."""
    ready = threading.Event()
    poller = select.poll()
    poller.register(control, 0)  # nothing but a hang-up, which is always told

    def watch() -> None:
        while not ready.is_set():
            if poller.poll(WATCH_MS):
                os._exit(0)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ready.set()
        thread.join()


def _import_torch() -> "dict[str, Any]":
    import torch

    # A parallel operator in this process would hang OpenMP in every child.
    torch.set_num_threads(1)
    # Preloaded for tracing and the compile baseline: 3 s here, once, instead of in every worker.
    for name in ("torch._dynamo", "torch._inductor.compile_fx", "torch.export", "torch.profiler"):
        importlib.import_module(name)
    if torch.version.cuda:
        # The first compilation then takes 4 s in a fork and not 13. None of these touches the GPU.
        for name in ("torch._inductor.graph", "torch._inductor.codegen.triton", "triton"):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    # All of our own now: an isolated worker does not see the folder that they come from.
    for name in (*KINDS, *LATER):
        importlib.import_module("." + name, __package__)
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "executable": sys.executable,
    }


def _fork(control: socket.socket, request: "dict[str, Any]", descriptor: int) -> "dict[str, Any]":
    child = os.fork()
    if child == 0:
        control.close()
        os.setpgid(0, 0)
        _become(request, descriptor)
    os.close(descriptor)
    return {"pid": child}


def _become(request: "dict[str, Any]", descriptor: int) -> None:
    """In the child: isolate, then serve requests until the other end is gone. Never returns."""
    channel = Channel(socket.socket(fileno=descriptor))
    try:
        _quiet_descriptors(descriptor, request.get("log"))
        os.environ.update(request["environment"])
        tempfile.tempdir = None  # as TMPDIR says now
        isolate.enter(request["spec"], request["rung"])
        worker = importlib.import_module("." + request["kind"], __package__)
        serve_requests(channel, worker.Service(request))
    except BaseException as error:  # nothing may fall back into the zygote's loop
        with contextlib.suppress(BaseException):
            channel.send(failure(error, "start"))
    os._exit(0)


def _quiet_descriptors(keep: int, log: "str | None") -> None:
    """Standard input is empty, output goes to a file of its own, and nothing else is inherited."""
    empty = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(empty, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and number != keep:
            with contextlib.suppress(OSError):
                os.close(number)


def serve_requests(channel: Channel, service: Any) -> None:
    """Answer `{"op": NAME, ...}` by the service's method NAME until the other end is gone."""
    channel.send({"ready": True})
    while (request := channel.receive()) is not None:
        operation = getattr(service, request.pop("op"))
        try:
            answer = operation(**request)
        except Exception as error:
            answer = failure(error, operation.__name__)
        channel.send(answer)


def failure(error: BaseException, during: str) -> "dict[str, Any]":
    """An exception as data: its type, message and the innermost frames, as text."""
    frames = traceback.extract_tb(error.__traceback__)
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    place = _place(error, frames)
    # Only our own exceptions carry one of the report's codes; others use the name for anything.
    code = getattr(error, "code", None) if type(error).__module__.startswith(f"{__package__}.") else None
    return {
        "error": {
            "type": type(error).__name__,
            "message": str(error)[:4000],
            "during": during,
            "file": place[0],
            "line": place[1],
            "traceback": text[-8000:],
            "code": code,
        }
    }


def _place(error: BaseException, frames: "traceback.StackSummary") -> "tuple[str | None, int | None]":
    """File and line of the innermost frame in the user's code, else of the innermost one that is not ours."""
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno
    others = [frame for frame in reversed(frames) if "cuda_tui/evaluation/worker" not in frame.filename]
    libraries = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
    users = [frame for frame in others if not frame.filename.startswith((*libraries, "<frozen"))]
    chosen = next(iter([*users, *others]), None)
    return (chosen.filename, chosen.lineno) if chosen else (None, None)


def _reap(pid: int) -> "dict[str, Any]":
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    try:
        return {"status": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}
    except ChildProcessError:
        return {"status": None}


def _end_children(keep: "set[int]") -> None:
    """Kill and collect every child but these: orphans of workers that have ended, as long as new ones appear."""
    while strangers := [pid for pid in isolate.children() if pid not in keep]:
        for pid in strangers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
