"""Owning a real terminal: what others print stays off the screen, and the terminal comes back as it was."""

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.segment import Segment
from textual.color import Color

from cuda_tui.tui.terminal import AsciiFilter

pytestmark = pytest.mark.slow

PROGRAM = """
import fcntl, sys, termios
from pathlib import Path
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # a hang-up reaches us, as it does in a shell
from cuda_tui.tui.app import Opening, Options, run_app
from tests.tui.scripted_source import ScriptedSource

async def opened(opening):
    return ScriptedSource(noise=True)

sys.exit(run_app(Options(open_session=opened), start=Opening(target="model.py"), log=Path(sys.argv[1])))
"""
TIMEOUT_S = 30.0


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, process: "subprocess.Popen[bytes]", descriptor: int) -> None:
        self.process = process
        self.descriptor = descriptor
        self.output = b""

    def read_until(self, expected: bytes) -> None:
        """Read until `expected` has been written. Fails after a while, showing the end of what came instead."""
        limit = time.monotonic() + TIMEOUT_S
        while expected not in self.output:
            assert time.monotonic() < limit, self.output[-2000:]
            if select.select([self.descriptor], [], [], 0.2)[0]:
                self.output += os.read(self.descriptor, 65_536)

    def hang_up(self) -> None:
        """Close the window."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def read_to_the_end(self) -> int:
        """Read until the program has ended; its exit code."""
        while True:
            try:
                chunk = os.read(self.descriptor, 65_536)
            except OSError:
                break
            if not chunk:
                break
            self.output += chunk
        return self.process.wait(TIMEOUT_S)


@contextmanager
def running(log: Path) -> Iterator[Terminal]:
    """The program with a session that asks for an approval, on a terminal of 100 by 30."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (30, 100))
    environment = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", "COLUMNS": "", "LINES": ""}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(log)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=Path(__file__).parents[2],
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    terminal = Terminal(process, ours)
    try:
        yield terminal
    finally:
        process.kill()
        process.wait()
        terminal.hang_up()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_terminal_is_given_back_when_a_signal_ends_the_program(tmp_path: Path, number: int, code: int) -> None:
    with running(tmp_path / "log") as terminal:
        terminal.read_until(b"Reject r")
        terminal.process.send_signal(number)
        assert terminal.read_to_the_end() == code
        assert b"\x1b[?1049l" in terminal.output  # the alternate screen is left
        assert b"\x1b[?1000l" in terminal.output  # and the mouse


def test_program_ends_when_its_terminal_is_closed(tmp_path: Path) -> None:
    with running(tmp_path / "log") as terminal:
        terminal.read_until(b"Reject r")
        terminal.hang_up()
        assert terminal.process.wait(TIMEOUT_S) == 129


def test_what_libraries_and_children_print_goes_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running(log) as terminal:
        terminal.read_until(b"Reject r")
        terminal.process.send_signal(signal.SIGTERM)
        terminal.read_to_the_end()
        assert b"printf from a kernel" not in terminal.output
        assert b"stderr of a library" not in terminal.output
    written = log.read_bytes()
    assert b"printf from a kernel" in written
    assert b"stderr of a library" in written


def test_ctrl_c_twice_leaves_with_zero(tmp_path: Path) -> None:
    with running(tmp_path / "log") as terminal:
        terminal.read_until(b"Reject r")
        os.write(terminal.descriptor, b"\x03")
        terminal.read_until(b"Ctrl+C again leaves")
        os.write(terminal.descriptor, b"\x03")
        assert terminal.read_to_the_end() == 0
        assert b"Session log: session.jsonl" in terminal.output


def test_without_utf8_every_sign_becomes_one_ascii_sign() -> None:
    line = [Segment("┌─● 12 µs ±3% […] ✓╌"), Segment("plain")]
    shown = AsciiFilter().apply(line, Color(0, 0, 0))
    assert "".join(segment.text for segment in shown) == "+-* 12 us ~3% [~] v-plain"
