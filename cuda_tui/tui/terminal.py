"""Owning the terminal: while the app has the screen, nothing else can write on it."""

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter


class _Screen(io.FileIO):
    """The terminal's descriptor. Once the terminal is gone, what is written to it is dropped.

    Textual's writing thread would end with the error, and whoever then writes would wait for it for ever.
    """

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return len(data)


@contextmanager
def owned_terminal(log: Path) -> Iterator[TextIO]:
    """Point descriptors 1 and 2 at `log`, and give the app a private one for the screen.

    Textual draws on `sys.__stderr__` and asks `sys.__stdout__` for the window's size, so both names are replaced by
    the private descriptor, which children do not inherit.
    Whatever a library or child prints to 1 or 2 ends in the log. All is put back at the end.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    raw = _Screen(os.dup(1), "w")
    screen = io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", newline="")
    saved = [os.dup(1), os.dup(2)]
    originals = (sys.__stdout__, sys.__stderr__)
    log.parent.mkdir(parents=True, exist_ok=True)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        sys.__stdout__ = sys.__stderr__ = screen  # type: ignore[misc]  # where Textual looks for the terminal
        yield screen
    finally:
        sys.__stdout__, sys.__stderr__ = originals  # type: ignore[misc]  # as above
        for descriptor, copy in enumerate(saved, start=1):
            os.dup2(copy, descriptor)
            os.close(copy)
        os.close(target)
        screen.close()


_ASCII = str.maketrans(
    {
        **dict.fromkeys("─━╌┄▔▁▂▃▄═", "-"),
        **dict.fromkeys("│┃┆▏▕▎▍▌▋▊▉▐┤├║", "|"),
        **dict.fromkeys("┌┐└┘┏┓┗┛╭╮╰╯┬┴┼┳┻╋", "+"),
        **dict.fromkeys("█▇▆▅▓", "#"),
        "\u00a0": " ",
        "▒": "=",
        "░": ":",
        "●": "*",
        "○": "o",
        "◆": "*",
        "×": "x",
        "✓": "v",
        "✗": "x",
        "▸": ">",
        "▶": ">",
        "‖": "|",
        "■": "#",
        "•": "-",
        "·": ".",
        "…": "~",
        "–": "-",
        "⋯": ".",
        "✎": "+",
        "↻": "@",
        "↶": "<",
        "←": "<",
        "→": ">",
        "±": "~",
        "µ": "u",
        "°": " ",
        "−": "-",
    }
)


class AsciiFilter(LineFilter):
    """For terminals without UTF-8: our signs and borders as ASCII, all other characters as a question mark."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Translate one line; every character keeps its single cell."""
        return [
            segment if segment.text.isascii() else Segment(_ascii(segment.text), segment.style, segment.control)
            for segment in segments
        ]


def _ascii(text: str) -> str:
    return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")
