"""The application: which screen, which session, how to leave."""

import asyncio
import contextlib
import gc
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar, TextIO, TypeAlias

from textual import work
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.screen import Screen
from textual.widgets import TextArea

from cuda_tui.agent.runner import Opening, OpenSession, ResumeSession, SessionRunner
from cuda_tui.errors import CudaTuiError, UsageError
from cuda_tui.export import write_report
from cuda_tui.session.listing import Summary
from cuda_tui.session.log import LogRecord, read_log
from cuda_tui.state.model import State
from cuda_tui.tui.feed import LiveFeed, Source
from cuda_tui.tui.keys import key_groups
from cuda_tui.tui.playback import Playback
from cuda_tui.tui.render.text import visible
from cuda_tui.tui.screens.help import HelpScreen
from cuda_tui.tui.screens.live import LiveScreen
from cuda_tui.tui.screens.opening import OpeningScreen
from cuda_tui.tui.screens.replay import ReplayScreen
from cuda_tui.tui.screens.session import SessionScreen
from cuda_tui.tui.screens.start import Offer, StartScreen
from cuda_tui.tui.terminal import AsciiFilter, owned_terminal
from cuda_tui.tui.theme import CUDA_TUI

SECOND_PRESS_S = 3.0  # a second Ctrl+C within this time leaves
WIDE = 104  # cells from which transcript and evidence stand side by side
TALL = 20  # rows below which everything gives way to what is asked
CLOSING_S = 5.0  # the most that ending a session may take


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A session to play back."""

    records: tuple[LogRecord, ...]
    name: str = ""
    speed: float = 1.0
    play: bool = False


@dataclass(frozen=True, kw_only=True)
class Resuming:
    """A session to go on with, by its id or log."""

    session: str


Start: TypeAlias = Opening | Resuming | Recording | None


def _no_sessions() -> tuple[Summary, ...]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line decides for the screen. `utf8` is False on terminals that cannot show it."""

    open_session: OpenSession | None = None
    resume_session: ResumeSession | None = None
    sessions: Callable[[], tuple[Summary, ...]] = _no_sessions
    models: tuple[str, ...] = ("autopilot",)
    offer: Callable[[], Offer] | None = None  # looks for devices; runs in a thread
    file: str = ""
    editor: str = "vi"
    utf8: bool = True
    theme: str = CUDA_TUI.name
    clock: Callable[[], float] = field(default=time.time)


class CudaTui(App[int], inherit_bindings=False):
    """Shows one session, live or replayed, or the start screen. The exit value is the process's exit code."""

    TITLE = "cuda-tui"
    CSS_PATH = Path(__file__).with_name("styles.tcss")
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+p"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "help", "Help: keys and commands"),
        Binding("ctrl+c", "interrupt", "Copy the selection, else stop the step; twice: leave", priority=True),
        Binding("f10", "leave", "Leave"),
    ]

    def __init__(self, options: Options, *, start: Start = None, terminal: TextIO | None = None) -> None:
        super().__init__()
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]
        self.VERTICAL_BREAKPOINTS = [(0, "-short"), (TALL, "-tall")]
        self.options = options
        self.terminal = terminal
        self.session_log: str | None = None
        self._start = start
        self._interrupted_at = float("-inf")
        self.register_theme(CUDA_TUI)
        self.theme = options.theme
        if not options.utf8:
            self._filters.append(AsciiFilter())

    def on_mount(self) -> None:
        """Show what was asked for; end cleanly when the terminal goes away."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            with contextlib.suppress(RuntimeError, ValueError):  # not in the main thread: a test or a server
                loop.add_signal_handler(number, partial(self._terminated, number))
        match self._start:
            case Opening() | Resuming() as start:
                self.open(start)
            case Recording() as recording:
                self.play(recording)
            case None:
                self.welcome()
        if not self.options.utf8:
            self.notify("This terminal does not speak UTF-8: signs are shown as ASCII.", markup=False)

    # ---- screens

    def welcome(self, *, problem: str = "") -> None:
        """The start screen."""
        options = self.options
        screen = StartScreen(
            options.sessions(), models=options.models, offer=options.offer, file=options.file, problem=problem
        )
        self.push_screen(screen)

    def play(self, recording: Recording) -> None:
        """The replay screen."""
        playback = Playback(recording.records, speed=recording.speed)
        self.push_screen(ReplayScreen(playback, play=recording.play))

    @work(exclusive=True, group="open")
    async def open(self, start: Opening | Resuming) -> None:
        """Prepare a session, then show it; a failure leads back to the start screen and says why."""
        what = start.target if isinstance(start, Opening) else start.session
        await self.push_screen(OpeningScreen(visible(what)))
        try:
            runner = await self._runner(start)
        except CudaTuiError as error:
            self.pop_screen()
            self.welcome(problem=str(error))
            return
        self.session_log = runner.log_path
        await self.switch_screen(self._live(runner, begin=isinstance(start, Opening)))

    async def _runner(self, start: Opening | Resuming) -> SessionRunner:
        options = self.options
        if isinstance(start, Opening):
            if options.open_session is None:
                raise UsageError("this screen only replays", hint="use `cuda-tui optimize FILE`")
            return await options.open_session(start)
        if options.resume_session is None:
            raise UsageError("this screen only replays", hint="use `cuda-tui resume ID`")
        return await options.resume_session(start.session)

    def _live(self, source: Source, *, begin: bool) -> LiveScreen:
        return LiveScreen(LiveFeed(source, clock=self.options.clock, begin=begin), editor=self.options.editor)

    def on_start_screen_begin(self, event: StartScreen.Begin) -> None:
        """A new session."""
        self.open(event.opening)

    def on_start_screen_resume(self, event: StartScreen.Resume) -> None:
        """An old session, continued."""
        self.open(Resuming(session=event.session))

    def on_start_screen_replay(self, event: StartScreen.Replay) -> None:
        """An old session, played."""
        try:
            log = read_log(Path(event.session))
        except CudaTuiError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        self.play(Recording(records=log.records, name=event.session))

    # ---- actions

    def action_help(self) -> None:
        """Keys and commands."""
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(key_groups(self.screen, everywhere=self.BINDINGS)))

    def get_css_variables(self) -> dict[str, str]:
        """The theme's colours. Where a theme leaves quiet text to its background, mix it: our texts lie on several."""
        variables = super().get_css_variables()
        if self.current_theme.ansi:
            return variables
        background, foreground = Color.parse(variables["background"]), Color.parse(variables["foreground"])
        for name, share in (("text-muted", 0.6), ("text-disabled", 0.35)):
            if variables[name].startswith("auto"):
                variables[name] = background.blend(foreground, share).hex
        return variables

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Every action, for the command palette."""
        for title, bindings in key_groups(screen, everywhere=self.BINDINGS):
            for binding in bindings:
                if isinstance(binding, Binding) and binding.action and title in ("Everywhere", "Session", "Replay"):
                    run = partial(
                        self.call_later, self.run_action, binding.action, screen if title != "Everywhere" else self
                    )
                    yield SystemCommand(binding.description, f"{title}, {binding.key}", run)
        if isinstance(screen, SessionScreen):
            yield SystemCommand("Copy the latest block", "Session, /copy", screen.action_copy_block)
            yield SystemCommand("Export a Markdown report", "Session, /export", lambda: self.export(screen.state, ""))
        yield SystemCommand("Next theme", "Colours, /theme", lambda: self.change_theme(""))
        yield SystemCommand("Choose a theme", "Colours", self.action_change_theme)

    def action_interrupt(self) -> None:
        """Ctrl+C: copy what is selected; else stop what runs; pressed again, leave."""
        if self._copy_selection():
            return
        now = time.monotonic()
        if now - self._interrupted_at < SECOND_PRESS_S:
            self.action_leave()
            return
        self._interrupted_at = now
        stopped = isinstance(self.screen, SessionScreen) and self.screen.interrupt()
        self.notify(
            "Stopping the step. Ctrl+C again leaves." if stopped else "Ctrl+C again leaves.",
            timeout=SECOND_PRESS_S,
            markup=False,
        )

    def _copy_selection(self) -> bool:
        focused = self.focused
        text = self.screen.get_selected_text() or (focused.selected_text if isinstance(focused, TextArea) else "")
        if not text:
            return False
        self.copy_to_clipboard(text)
        self.screen.clear_selection()
        if isinstance(focused, TextArea):
            focused.move_cursor(focused.cursor_location)
        return True

    def copy_to_clipboard(self, text: str) -> None:
        """Send text to the terminal's clipboard (OSC 52), and say no more than that."""
        super().copy_to_clipboard(text)
        self.notify(f"{len(text)} characters sent to the terminal's clipboard.", markup=False)

    def change_theme(self, name: str) -> None:
        """Use a theme by name; without a name, the next one. Raises UsageError."""
        names = sorted(self.available_themes)
        if not name:
            name = names[(names.index(self.theme) + 1) % len(names)]
        if name not in names:
            raise UsageError(f"there is no theme {name!r}", hint="one of " + ", ".join(names))
        self.theme = name
        self.notify(f"Theme {name}", markup=False)

    def export(self, state: State, path: str) -> None:
        """Write a Markdown report of the session; never over another file."""
        session = state.session.session if state.session else "session"
        try:
            written = write_report(state, Path(path or f"{session}.md").expanduser())
        except CudaTuiError as error:
            self.notify(str(error), severity="error", markup=False)
        else:
            self.notify(f"Report written to {written}", markup=False)

    # ---- leaving

    def _terminated(self, number: signal.Signals) -> None:
        self._leave(128 + number)

    def action_leave(self) -> None:
        """End the session's work, then the program."""
        self._leave(0)

    @work(exclusive=True, group="leave")
    async def _leave(self, code: int) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, SessionScreen):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(screen.finish(), timeout=CLOSING_S)
        self.exit(code)


def run_app(options: Options, *, start: Start, log: Path) -> int:
    """Own the terminal, run the app, give the terminal back. Returns the exit code.

    A failure of our own leaves its traceback in `log`, and one line on the terminal that says so.
    """
    with owned_terminal(log) as terminal:
        app = CudaTui(options, start=start, terminal=terminal)
        code = app.run()
        gc.collect()  # what was abandoned by leaving early complains when it is collected: into the log, not the shell
    failed = code is None and bool(app.return_code)
    if failed:
        _say_goodbye(f"cuda-tui failed; the traceback is in {log}")
    elif app.session_log:
        from cuda_tui.tui.farewell import farewell

        _say_goodbye(farewell(Path(app.session_log)))
    return 2 if failed else code or 0


def _say_goodbye(text: str) -> None:
    """One line on the person's shell, if it is still there."""
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode("utf-8", "backslashreplace"))
