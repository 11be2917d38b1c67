"""`cuda-tui profile WORKSPACE`: the agent's profile tools for a person: times, memory checks, machine code."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cuda_tui.cli.devices import Host, look, on_device
from cuda_tui.evaluation.pipeline import Evaluator
from cuda_tui.evaluation.profile.sanitizer import Check
from cuda_tui.evaluation.progress import Line, Progress
from cuda_tui.evaluation.runtime import Interpreter
from cuda_tui.records import Record, encode
from cuda_tui.sandbox.rung import detect
from cuda_tui.tools.wording import checked_text, profile_text, sass_text
from cuda_tui.workspace.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What to look at: a check, or the machine code of a kernel, else where the time of a side goes."""

    reference: bool = False
    check: Check | None = None
    sass: str | None = None
    line: int | None = None
    device: str | None = None


def run(workspace: Path, wanted: Wanted, *, host: Host, cache: Path, as_json: bool) -> int:
    """Look and print, for a person or as one JSON object. Returns 0; what a check finds changes nothing of that.

    Raises ReferenceFault where the side does not run, and UsageError where the device is not there.
    """
    opened = on_device(Workspace.open(workspace), wanted.device)
    for note in look(opened.task.device, host).notes:
        print(f"note: {note}", file=sys.stderr)
    evaluator = Evaluator(
        opened,
        interpreter=Interpreter.at(host.python, environment=host.env, rung=detect(), cache=cache),
        on_progress=_print,
    )
    try:
        found, text = _look(evaluator, wanted)
    finally:
        evaluator.close()
    sys.stdout.write((encode(found).decode() if as_json else text()) + "\n")
    return 0


def _look(evaluator: Evaluator, wanted: Wanted) -> tuple[Record, Callable[[], str]]:
    if wanted.check is not None:
        checked = evaluator.sanitize(wanted.check)
        return checked, lambda: checked_text(checked)
    if wanted.sass is not None:
        code = evaluator.sass(wanted.sass, wanted.line)
        return code, lambda: sass_text(code)
    profile = evaluator.profile("reference" if wanted.reference else "candidate")
    return profile, lambda: profile_text(profile)


def _print(progress: Progress) -> None:
    if isinstance(progress, Line):
        print(f"  {progress.source}: {progress.text}", file=sys.stderr)
