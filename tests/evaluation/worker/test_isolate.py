"""A forked process isolates itself: namespaces, or Landlock. Each probe runs in a child of its own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cuda_tui.evaluation.worker import isolate
from cuda_tui.sandbox.access import system_access
from cuda_tui.sandbox.rung import ISOLATE, worker_spec

PROBE = """
import json, os, socket, sys
sys.path.insert(0, os.path.dirname(sys.argv[1]))
import isolate
spec, rung, body = json.loads(sys.argv[2]), sys.argv[3], sys.argv[4]
isolate.enter(spec, rung)
os.write(1, (json.dumps(eval(body)) + "\\n").encode())
"""
HELPERS = {
    "read": "(lambda p: open(p).read())({!r})",
    "write": "(lambda p: open(p, 'w').write('x'))({!r})",
}


@pytest.fixture(params=["namespaces", "landlock"])
def rung(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    refused = isolate.probe()[name]
    if refused:
        pytest.skip(f"{name}: {refused}")
    return name


@pytest.fixture
def inside(rung: str, tmp_path: Path) -> "Inside":
    return Inside(rung, tmp_path)


class Inside:
    """Evaluates an expression in an isolated process."""

    def __init__(self, rung: str, folder: Path) -> None:
        self.rung = rung
        self.readable, self.writable = folder / "can read", folder / "can write"
        for path in (self.readable, self.writable):
            path.mkdir()
        (self.readable / "file").write_text("text")
        (self.readable / ".env").write_text("canary-123")
        (folder / "other").write_text("canary-123")
        self.spec = worker_spec(system_access(sys.executable, read=[self.readable], write=[self.writable]))

    def evaluate(self, body: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-c", PROBE, str(ISOLATE), json.dumps(self.spec), self.rung, body]
        return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)

    def answer(self, body: str) -> object:
        done = self.evaluate(body)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def test_named_folders_can_be_read_and_written(inside: Inside) -> None:
    assert inside.answer(HELPERS["read"].format(str(inside.readable / "file"))) == "text"
    assert inside.answer(HELPERS["write"].format(str(inside.writable / "new file"))) == 1
    assert (inside.writable / "new file").read_text() == "x"


def test_readable_folder_cannot_be_written(inside: Inside) -> None:
    for path in (inside.readable / "new", inside.readable / "file", Path("/usr/written")):
        assert inside.evaluate(HELPERS["write"].format(str(path))).returncode != 0
    assert (inside.readable / "file").read_text() == "text"


def test_hidden_and_unnamed_files_cannot_be_read(inside: Inside) -> None:
    for path in (inside.readable / ".env", inside.readable.parent / "other", Path("/etc/shadow")):
        assert "canary-123" not in inside.evaluate(HELPERS["read"].format(str(path))).stdout


def test_symbolic_link_leads_nowhere_new(inside: Inside) -> None:
    (inside.readable / "link").symlink_to(inside.readable.parent / "other")
    assert inside.evaluate(HELPERS["read"].format(str(inside.readable / "link"))).returncode != 0


def test_no_connection_can_be_made(inside: Inside) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert inside.evaluate(f"socket.create_connection(('127.0.0.1', {port}), 2) and 1").returncode != 0


def test_other_processes_cannot_be_signalled(inside: Inside) -> None:
    assert inside.evaluate(f"os.kill({os.getpid()}, 0)").returncode != 0


def test_process_gains_no_privileges(inside: Inside) -> None:
    status = str(inside.answer("open('/proc/self/status').read()"))
    assert "NoNewPrivs:\t1" in status
    if inside.rung == "namespaces":
        assert "CapEff:\t0000000000000000" in status


def test_namespace_holds_two_processes_at_most(inside: Inside) -> None:
    if inside.rung != "namespaces":
        pytest.skip("Landlock has no processes of its own")
    assert len([name for name in inside.answer("os.listdir('/proc')") if name.isdigit()]) <= 2  # type: ignore[attr-defined]


def test_limit_on_memory_holds(inside: Inside) -> None:
    inside.spec["memory_bytes"] = 256 << 20
    assert "MemoryError" in inside.evaluate("len(bytearray(1 << 30))").stderr


def test_end_of_the_isolated_process_is_that_of_its_parent_too(inside: Inside) -> None:
    assert inside.evaluate("__import__('ctypes').string_at(8)").returncode == -signal.SIGSEGV
    assert inside.evaluate("os._exit(7)").returncode == 7
