"""What the screen needs from the command line: a terminal, and the person's choices for it."""

import os
import sys
from collections.abc import Mapping

from cuda_tui.agent.runner import OpenSession, ResumeSession
from cuda_tui.cli.surroundings import Surroundings
from cuda_tui.config import PROVIDERS
from cuda_tui.errors import CudaTuiError, UsageError
from cuda_tui.session.listing import list_sessions
from cuda_tui.tui.app import Options, Start, run_app
from cuda_tui.tui.screens.start import Offer


def require_terminal(*, instead: str) -> None:
    """Raises UsageError with the way around it where there is no terminal to draw on."""
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        raise UsageError("the screen needs a terminal, and there is none", hint=instead)


def speaks_utf8(environ: Mapping[str, str]) -> bool:
    """Whether the locale says that the terminal shows UTF-8."""
    locale = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
    return "utf-8" in locale.lower() or "utf8" in locale.lower()


def show(
    around: Surroundings,
    start: Start,
    *,
    open_session: OpenSession | None = None,
    resume_session: ResumeSession | None = None,
) -> int:
    """Run the screen until the person leaves. Returns the exit code. There must be a terminal."""
    folders = around.folders
    environ = around.environ
    options = Options(
        open_session=open_session,
        resume_session=resume_session,
        sessions=lambda: list_sessions(folders.sessions),
        models=(around.settings.model, *(name for name in ("autopilot", *_named()) if name != around.settings.model)),
        offer=lambda: offer(around),
        editor=environ.get("VISUAL") or environ.get("EDITOR") or "vi",
        utf8=speaks_utf8(environ),
        theme=around.settings.theme or Options.theme,
    )
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    return run_app(options, start=start, log=folders.log)


def offer(around: Surroundings) -> Offer:
    """What the start screen offers to work on. Never raises: what cannot be looked at is a note."""
    from cuda_tui.cli.devices import named_devices

    try:
        choice = around.choice
        devices, target = named_devices(choice.device, around.host)
    except CudaTuiError as error:
        return Offer(default="cpu", devices={"cpu": ""}, note=error.message)
    return Offer(default=choice.device, devices=devices, target=target, note=choice.reason)


def _named() -> tuple[str, ...]:
    return tuple(f"{name}:" for name in PROVIDERS)
