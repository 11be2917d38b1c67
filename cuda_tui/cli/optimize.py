"""`cuda-tui optimize`, `cuda-tui resume`, and `cuda-tui` alone: a session on the screen, or as lines."""

import asyncio
import sys
from typing import TYPE_CHECKING

from cuda_tui.agent.runner import Opening, SessionRunner
from cuda_tui.cli.headless import require_auto, run_headless
from cuda_tui.cli.surroundings import Surroundings
from cuda_tui.errors import UsageError
from cuda_tui.events import Approval

if TYPE_CHECKING:
    from cuda_tui.cli.wiring import Wiring
    from cuda_tui.tui.app import Start


def has_terminal() -> bool:
    """Whether a person sits at both ends."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def optimize(around: Surroundings, opening: Opening, *, headless: bool, as_json: bool) -> int:
    """A new session. Returns the exit code."""
    if headless or as_json or not has_terminal():
        require_auto(Approval(around.settings.approve))

        async def open_session() -> SessionRunner:
            return await _wiring(around).open(opening)

        return run_headless(open_session, as_json=as_json)
    return _show(around, opening)


def resume(around: Surroundings, name: str | None, opening: Opening, *, headless: bool, as_json: bool) -> int:
    """An old session, continued. Returns the exit code."""
    if headless or as_json or not has_terminal():
        require_auto(opening.approval or Approval(around.settings.approve))

        async def resume_session() -> SessionRunner:
            return await _wiring(around).resume(name, opening)

        return run_headless(resume_session, as_json=as_json)
    from cuda_tui.session.listing import find_session
    from cuda_tui.tui.app import Resuming

    path = find_session(around.folders.sessions, name)
    return _show(around, Resuming(session=str(path)), resuming=opening)


def start_screen(around: Surroundings) -> int:
    """The TUI's start screen: recent sessions, or a new one."""
    if not has_terminal():
        raise UsageError(
            "there is no terminal", hint="try `cuda-tui optimize FILE --headless --approve auto`, or --help"
        )
    return _show(around, None)


def _wiring(around: Surroundings) -> "Wiring":
    from cuda_tui.cli.wiring import Wiring

    return Wiring(around)


def _show(around: Surroundings, start: "Start", *, resuming: Opening | None = None) -> int:
    """The screen paints first; what a session needs is imported in a thread when one is opened."""
    from cuda_tui.cli.screen import show

    async def open_session(opening: Opening) -> SessionRunner:
        wiring = await asyncio.to_thread(_wiring, around)
        return await wiring.open(opening)

    async def resume_session(name: str) -> SessionRunner:
        wiring = await asyncio.to_thread(_wiring, around)
        return await wiring.resume(name, resuming)

    return show(around, start, open_session=open_session, resume_session=resume_session)
