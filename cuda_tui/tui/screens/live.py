"""A running session on the session screen: composer, approvals, commands."""

import shlex
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from cuda_tui.errors import CudaTuiError, UsageError
from cuda_tui.events import ApprovalAsked, ApprovalGiven, Decision
from cuda_tui.tui.commands import SlashCommand, approval_of, parse_command
from cuda_tui.tui.editing import edit_call, run_on_terminal
from cuda_tui.tui.feed import LiveFeed
from cuda_tui.tui.screens.session import SessionScreen
from cuda_tui.tui.widgets.approval import ApprovalPanel
from cuda_tui.tui.widgets.composer import Composer
from cuda_tui.tui.widgets.evidence import TABS, CorrectnessPage

if TYPE_CHECKING:
    from cuda_tui.tui.app import CudaTui


class LiveScreen(SessionScreen):
    """What the person types goes to the agent; what needs a yes comes to the person."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "Stop the step")]

    def __init__(self, feed: LiveFeed, *, editor: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__(feed)
        self.feed = feed
        self._editor = shlex.split(editor)
        self._monotonic = monotonic
        self._finished = False

    def compose_below(self) -> ComposeResult:
        """The panel for approvals, hidden, and the composer."""
        yield ApprovalPanel(id="approval", monotonic=self._monotonic)
        yield Composer(id="composer", placeholder="Tell the agent…  Enter sends, Ctrl+J breaks the line, /help")

    def on_mount(self) -> None:
        """Become the session's approver and let it run."""
        self.feed.source.approver = self.query_one(ApprovalPanel)
        self.query_one(Composer).focus()
        self._work()

    @work(exclusive=True, group="session")
    async def _work(self) -> None:
        """Run the session; what it cannot handle itself is shown, and the next message tries again."""
        while True:
            try:
                await self.feed.run()
            except CudaTuiError as error:
                self.feed.report(error.message, hint=error.hint)

    # ---- what the person says

    def on_composer_typed(self) -> None:
        """The approval panel waits while the person types."""
        self.query_one(ApprovalPanel).person_typed()

    def on_composer_sent(self, event: Composer.Sent) -> None:
        """A command runs, talk goes to the agent."""
        try:
            command = parse_command(event.text)
            if command is None:
                self.feed.say(event.text)
                if self.feed.source.running:
                    self.notify("Queued: sent before the next request.", markup=False)
            else:
                self._run(command)
        except CudaTuiError as error:
            self.notify(f"{error.message}\n{error.hint}", severity="warning", markup=False)

    def _run(self, command: SlashCommand) -> None:
        app = self._app()
        name, argument = command.name, command.argument
        if name in ("help", "quit"):
            self.call_later(app.run_action, "help" if name == "help" else "leave")
        elif name == "cancel":
            self.action_cancel()
        elif name in ("approve", "model"):
            self._switch(name, argument)
        elif name in ("rules", "forget"):
            self._rules(name, argument)
        elif name == "tab":
            self._tab(argument)
        elif name == "candidate":
            self._candidate(argument)
        elif name == "unfold":
            self.action_unfold()
        elif name == "theme":
            app.change_theme(argument)
        elif name == "export":
            app.export(self.state, argument)
        else:
            self.action_copy_block()

    def _switch(self, name: str, argument: str) -> None:
        if name == "approve":
            self.feed.switch(approval=approval_of(argument))
        else:
            self.feed.switch(model=argument)

    def _rules(self, name: str, argument: str) -> None:
        source = self.feed.source
        if name == "forget":
            if argument not in source.rules:
                raise UsageError(f"no rule reads {argument!r}", hint="/rules lists them word for word")
            source.forget_rule(argument)
        rules = "\n".join(source.rules) or "Nothing is approved in advance."
        self.notify(rules, title="Approved for later calls", markup=False)

    def _candidate(self, argument: str) -> None:
        if not argument.isdecimal() or self.state.candidate(int(argument)) is None:
            raise UsageError(f"there is no candidate {argument!r}", hint="the Speedup tab lists them")
        self.pane = "correctness"
        self.query_one(CorrectnessPage).chosen = int(argument)

    def _tab(self, argument: str) -> None:
        names = ("talk", *(tab for tab, _, _ in TABS))
        found = next((tab for tab in names if tab.startswith(argument.lower())), None)
        if found is None:
            raise UsageError(f"there is no tab {argument!r}", hint="one of " + ", ".join(names))
        self.pane = found

    # ---- stopping

    def action_cancel(self) -> None:
        """Leave a field, else stop the step under way."""
        if self.query_one(ApprovalPanel).back():
            return
        if not self.interrupt():
            self.notify("Nothing runs.", markup=False)

    def interrupt(self) -> bool:
        """Stop the step under way."""
        if not self.feed.source.running:
            return False
        self.feed.source.cancel()
        return True

    async def finish(self) -> None:
        """Stop the session and everything that it started; once is enough."""
        if not self._finished:
            self._finished = True
            await self.feed.source.close()

    async def on_unmount(self) -> None:
        """However the screen goes away, a crash of the app included, nothing is left running."""
        await self.finish()

    # ---- approvals

    def on_approval_panel_opened(self) -> None:
        """Also tell the person, who may look elsewhere."""
        super().on_approval_panel_opened()
        self.app.bell()

    def on_approval_panel_closed(self) -> None:
        """Back to the composer."""
        super().on_approval_panel_closed()
        self.query_one(Composer).focus()

    def on_approval_panel_edit_wanted(self, event: ApprovalPanel.EditWanted) -> None:
        """Open the proposal in the person's editor, outside of the screen."""
        self._edit(event.asked)

    def _edit(self, asked: ApprovalAsked) -> None:
        terminal = self._app().terminal
        if terminal is None:
            self.notify("No terminal to open the editor on.", severity="warning", markup=False)
            return
        try:
            with self.app.suspend():
                edited = edit_call(
                    asked.call,
                    editor=self._editor,
                    run=lambda command: run_on_terminal(command, terminal=terminal.fileno()),
                )
        except CudaTuiError as error:
            self.notify(f"{error.message}\n{error.hint}", severity="warning", markup=False)
            return
        if edited is None:
            self.notify("Unchanged; the question stands.", markup=False)
            return
        given = ApprovalGiven(call_id=asked.call.id, decision=Decision.APPROVED, edited=edited)
        self.query_one(ApprovalPanel).answer(given)

    def _app(self) -> "CudaTui":
        from cuda_tui.tui.app import CudaTui

        assert isinstance(self.app, CudaTui)
        return self.app
