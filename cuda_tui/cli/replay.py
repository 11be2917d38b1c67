"""`cuda-tui replay FILE|ID`: a past session on the screen. Needs no key, GPU, torch or workspace."""

from cuda_tui.cli.screen import require_terminal, show
from cuda_tui.cli.surroundings import Surroundings
from cuda_tui.errors import UsageError
from cuda_tui.session.listing import log_of
from cuda_tui.tui.app import Recording
from cuda_tui.tui.playback import SPEEDS


def parse_speed(text: str) -> float:
    """`0.5` to `16`, or `max`. Raises UsageError."""
    word = text.strip().lower()
    try:
        speed = float("inf") if word == "max" else float(word.removesuffix("x"))
    except ValueError:
        speed = 0.0
    if speed not in SPEEDS:
        names = ", ".join("max" if value == float("inf") else f"{value:g}" for value in SPEEDS)
        raise UsageError(f"there is no replay speed {text!r}", hint=f"one of {names}")
    return speed


def run(target: str | None, *, speed: str = "1", paused: bool = False) -> int:
    """Replay a log by its id, the beginning of its id, or its path; None is the newest. Returns the exit code.

    Raises UsageError where there is no such session, no event in it, or no terminal.
    """
    pace = parse_speed(speed)
    around = Surroundings.read({})
    path, log = log_of(around.folders.sessions, target)
    if not log.records:
        raise UsageError(f"{path} holds no event that can be read", hint="`cuda-tui sessions` lists the sessions")
    require_terminal(instead="read the log itself, one JSON event a line: " + str(path))
    return show(around, Recording(records=log.records, name=str(path), speed=pace, play=not paused))
