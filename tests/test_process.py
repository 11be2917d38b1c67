"""process.run: limits, cancel, and that nothing a command started is left behind."""

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from cuda_tui.process import run

ENV = {"PATH": os.defpath}


def is_alive(pid: int) -> bool:
    """Running, and not a zombie that waits for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 5
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"


def test_output_of_both_streams_comes_in_order_and_by_line(tmp_path: Path) -> None:
    lines: list[str] = []
    finished = run(
        ["sh", "-c", "echo one; echo two >&2; printf three; exit 7"], cwd=tmp_path, env=ENV, on_line=lines.append
    )
    assert finished.returncode == 7
    assert lines == ["one", "two", "three"]
    assert finished.output == "one\ntwo\nthree"
    assert not finished.timed_out


def test_bytes_that_are_no_text_are_kept_as_replacements(tmp_path: Path) -> None:
    finished = run(["printf", "\\377\\n"], cwd=tmp_path, env=ENV)
    assert finished.output == "\N{REPLACEMENT CHARACTER}\n"


def test_standard_input_is_empty(tmp_path: Path) -> None:
    finished = run(["cat"], cwd=tmp_path, env=ENV, timeout_s=5)
    assert finished.returncode == 0
    assert finished.output == ""


def test_only_the_environment_given_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVIDER_API_KEY", "canary-123")
    assert "canary-123" not in run(["env"], cwd=tmp_path, env=ENV).output


def test_command_that_does_not_exist_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run(["no-such-command-here"], cwd=tmp_path, env=ENV)


def test_time_limit_ends_a_command_that_ignores_signals(tmp_path: Path) -> None:
    began = time.monotonic()
    finished = run(["sh", "-c", "trap '' TERM INT HUP; while :; do :; done"], cwd=tmp_path, env=ENV, timeout_s=0.2)
    assert finished.timed_out
    assert time.monotonic() - began < 2


def test_cancel_answers_within_two_seconds(tmp_path: Path) -> None:
    cancel = threading.Event()
    began = time.monotonic()
    finished = run(
        ["sh", "-c", "echo ready; exec sleep 60"],
        cwd=tmp_path,
        env=ENV,
        cancel=cancel,
        on_line=lambda _: cancel.set(),
    )
    assert finished.cancelled
    assert time.monotonic() - began < 2


@pytest.mark.slow
def test_huge_output_is_read_whole(tmp_path: Path) -> None:
    code = "import sys; sys.stdout.write(('x' * 99 + chr(10)) * 300_000)"
    lines: list[str] = []
    finished = run([sys.executable, "-c", code], cwd=tmp_path, env=ENV, on_line=lines.append)
    assert len(finished.output) == 30_000_000
    assert len(lines) == 300_000


def test_closed_pipe_of_a_command_that_hangs_on_is_no_end(tmp_path: Path) -> None:
    finished = run(["sh", "-c", "exec >&- 2>&-; sleep 60"], cwd=tmp_path, env=ENV, timeout_s=0.3)
    assert finished.timed_out


@pytest.mark.parametrize("ending", ["timeout", "cancel", "normal"])
@pytest.mark.parametrize("how", ["background", "new session", "orphan in a new session"])
def test_grandchild_is_ended_with_the_command(tmp_path: Path, ending: str, how: str) -> None:
    start = {
        "background": "sleep 60 &",
        "new session": "setsid sleep 60 &",
        "orphan in a new session": "(setsid sh -c 'sleep 60 & echo $! > pid' &); while [ ! -s pid ]; do :; done;",
    }[how]
    record = "" if how.startswith("orphan") else "echo $! > pid;"
    rest = "echo ready; exit 0" if ending == "normal" else "echo ready; sleep 60"
    cancel = threading.Event()
    run(
        ["sh", "-c", f"{start} {record} {rest}"],
        cwd=tmp_path,
        env=ENV,
        timeout_s=0.5 if ending == "timeout" else None,
        cancel=cancel,
        on_line=(lambda _: cancel.set()) if ending == "cancel" else None,
    )
    wait_until_gone(int((tmp_path / "pid").read_text()))
