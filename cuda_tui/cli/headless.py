"""A session without a screen: events as lines, signals that end everything, an exit code."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable

from cuda_tui.agent.runner import SessionRunner
from cuda_tui.cli.printing import JsonPrinter, LinePrinter, Printer
from cuda_tui.errors import UsageError
from cuda_tui.events import AnyEvent, Approval, Entry, SessionResumed, SessionStarted
from cuda_tui.process import descendants

ENDING = (signal.SIGTERM, signal.SIGHUP)
UNFINISHED = 3


def require_auto(approval: Approval) -> None:
    """Without a person to ask, only auto mode can work. Raises UsageError."""
    if approval is not Approval.AUTO:
        raise UsageError(
            f"nobody can be asked here, and --approve is {approval.value}",
            hint="use a terminal, or say --approve auto: everything then runs unasked, inside the sandbox",
        )


def run_headless(open_session: Callable[[], Awaitable[SessionRunner]], *, as_json: bool) -> int:
    """Run a session to its end and return the exit code.

    The first Ctrl-C stops the step and ends the session in order; the second one leaves at once. SIGTERM and SIGHUP
    count as Ctrl-C. In all cases nothing is left running.
    """
    code = asyncio.run(_run(open_session, as_json=as_json))
    if code == UNFINISHED:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # we are leaving already; one more changes nothing
    return code


async def _run(open_session: Callable[[], Awaitable[SessionRunner]], *, as_json: bool) -> int:
    interrupts = _Interrupts()
    if not as_json:
        sys.stderr.write("opening: the model is imported and tried once; this takes some seconds\n")
    opening = asyncio.ensure_future(open_session())
    interrupts.cancel = opening.cancel
    try:
        runner = await opening
    except asyncio.CancelledError:
        # The threads that were opening it end here, where a second signal can still cut them short.
        await asyncio.get_running_loop().shutdown_default_executor()
        return UNFINISHED
    try:
        working = asyncio.ensure_future(_show(runner, as_json=as_json))
        interrupts.cancel = runner.cancel
        interrupts.leave = working.cancel
        await working
        return runner.exit_code
    except asyncio.CancelledError:
        return UNFINISHED
    finally:
        await runner.close()


class _Interrupts:
    """What the signals do: the first one cancels, the second one leaves, the third one waits for nothing."""

    def __init__(self) -> None:
        self.cancel: Callable[[], object] = lambda: None
        self.leave: Callable[[], object] = end_now
        self._seen = 0
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, *ENDING):
            loop.add_signal_handler(number, self._arrived)

    def _arrived(self) -> None:
        self._seen += 1
        if self._seen == 1:
            sys.stderr.write("\nstopping; once more leaves at once\n")
            self.cancel()
        elif self._seen == 2:
            self.leave()
        else:
            end_now()


def end_now() -> None:
    """End all our descendants and this process, in order or not. The log is whole up to its last line."""
    for pid in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    os._exit(UNFINISHED)


async def _show(runner: SessionRunner, *, as_json: bool) -> None:
    printer = _printer(runner, as_json=as_json)
    for event in beginning(runner.history):
        printer.show(event)
    async for event in runner.run():
        printer.show(event)
    if not as_json:
        sys.stdout.write(f"workspace {runner.workspace_path}\nsession {runner.session_id}  {runner.log_path}\n")


def beginning(history: tuple[Entry, ...]) -> list[AnyEvent]:
    """How this process began: the last start or resumption in the log, and what followed it."""
    began = (index for index, entry in enumerate(history) if isinstance(entry.event, SessionStarted | SessionResumed))
    return [entry.event for entry in history[max(began, default=0) :]]


def _printer(runner: SessionRunner, *, as_json: bool) -> Printer:
    def entries() -> tuple[Entry, ...]:
        return runner.entries

    return JsonPrinter(sys.stdout, entries=entries) if as_json else LinePrinter(sys.stdout)
