"""The approval panel: exactly what would change or run, and the person's answer."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Button, Input, Static

from cuda_tui.events import ApprovalAsked, ApprovalGiven, Decision
from cuda_tui.tui.render.blocks import call_subject
from cuda_tui.tui.render.diff import counts
from cuda_tui.tui.render.text import plain, visible
from cuda_tui.tui.widgets.code import DiffView, TextView
from cuda_tui.tui.widgets.lines import LineView

IGNORE_KEYS_S = 0.5  # keys meant for what was there before do not answer
FURNITURE = 9  # rows of the panel that are not the body, at most
TYPING_S = 1.0  # while the person types, the panel waits


class ApprovalPanel(Vertical):
    """Implements `agent.protocols.Approver`. The body scrolls, the buttons stay, "reject" has the focus.

    `monotonic` is the clock, in seconds, against which keys are ignored at first.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "answer('approve')", "Approve"),
        Binding("r", "answer('reject')", "Reject"),
        Binding("e", "answer('edit')", "Edit"),
        Binding("A", "answer('all')", "Approve all of this kind"),
        Binding("up", "body('up')", "Scroll up", show=False),
        Binding("down", "body('down')", "Scroll down", show=False),
        Binding("pageup", "body('page_up')", "Page up", show=False),
        Binding("pagedown,space", "body('page_down')", "Page down", show=False),
        Binding("home", "body('home')", "Top", show=False),
        Binding("end", "body('end')", "End", show=False),
        Binding("left", "app.focus_previous", "Left", show=False),
        Binding("right", "app.focus_next", "Right", show=False),
    ]
    DEFAULT_CSS = """
    ApprovalPanel { border-top: heavy $warning; background: $surface; height: 60%; min-height: 8; display: none; }
    ApprovalPanel.-asking { display: block; }
    ApprovalPanel > .head { height: auto; max-height: 3; padding: 0 1; }
    ApprovalPanel > LineView { height: 1fr; min-height: 1; padding: 0 1; background: $background; }
    ApprovalPanel > .facts { height: auto; max-height: 3; padding: 0 1; }
    ApprovalPanel Input, ApprovalPanel Input:focus { height: 1; border: none; padding: 0 1; background: $panel; }
    ApprovalPanel Input { display: none; }
    ApprovalPanel.-reason Input { display: block; }
    ApprovalPanel Horizontal { height: 1; }
    ApprovalPanel Button { min-width: 6; width: auto; padding: 0; margin: 0 1 0 0; }
    ApprovalPanel Button, ApprovalPanel Button:hover { background: $panel-lighten-1; color: $text; text-style: none; }
    ApprovalPanel #reject { color: $text-error; }
    ApprovalPanel #approve { color: $text-success; }
    ApprovalPanel Button:focus { background: $foreground; color: $background; text-style: bold; }
    ApprovalPanel #reject:focus { background: $text-error; color: $background; }
    ApprovalPanel #approve:focus { background: $text-success; color: $background; }
    ApprovalPanel.-early Button { text-opacity: 60%; }
    """

    class EditWanted(Message):
        """The person wants to change the proposal in their editor."""

        def __init__(self, asked: ApprovalAsked) -> None:
            super().__init__()
            self.asked = asked

    class Closed(Message):
        """The question is answered or withdrawn."""

    class Opened(Message):
        """A question has come up."""

    def __init__(self, *, id: str | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__(id=id)
        self._monotonic = monotonic
        self._answer: asyncio.Future[ApprovalGiven] | None = None
        self._asked: ApprovalAsked | None = None
        self._opened_at = 0.0
        self._typed_at = float("-inf")  # when the person last typed elsewhere
        self._head = Static(classes="head")
        self._facts = Static(classes="facts")

    def compose(self) -> ComposeResult:
        """Head, body, facts, buttons."""
        yield self._head
        yield DiffView(id="approval-diff")
        yield TextView(id="approval-command")
        yield self._facts
        yield Input(placeholder="Reason for the model (Enter rejects, Esc goes back)")
        with Horizontal():
            yield Button("Reject r", id="reject", compact=True)
            yield Button("Approve a", id="approve", compact=True)
            yield Button("Edit e", id="edit", compact=True)
            yield Button("All A", id="all", compact=True)

    def person_typed(self) -> None:
        """The person types elsewhere: wait with the focus."""
        self._typed_at = self._monotonic()

    # ---- the question

    async def decide(self, asked: ApprovalAsked) -> ApprovalGiven:
        """Show the question and wait for the answer; a cancelled wait closes the panel."""
        self._answer = asyncio.get_running_loop().create_future()
        self._come_up(asked)
        try:
            return await self._answer
        finally:
            self._answer = None
            self.hide()

    def show(self, asked: ApprovalAsked, *, note: str = "") -> None:
        """Show a question; `note` replaces the hint at the bottom where it cannot be answered (a replay)."""
        if asked is self._asked:
            return
        self._asked = asked
        self._opened_at = self._monotonic()
        self._head.update(_head(asked))
        self._facts.update(Content.styled(note, "$text-muted") if note else _facts(asked))
        self.query_one(Input).clear()
        diff, command = self.query_one(DiffView), self.query_one(TextView)
        diff.display, command.display = bool(asked.diff), not asked.diff
        self.set_class(True, "-asking", "-early")
        if asked.diff:
            diff.diff = asked.diff
        else:
            command.show(asked.command or repr(asked.call.arguments), language="bash" if asked.command else "text")
        body: LineView = diff if asked.diff else command
        self.styles.max_height = max(8, body.rows_at(self.app.size.width - 4) + FURNITURE)
        for button in self.query(Button):
            button.disabled = bool(note)
        self.set_timer(IGNORE_KEYS_S, lambda: self.remove_class("-early"))
        self.post_message(self.Opened())

    def hide(self) -> None:
        """Close the panel."""
        if self._asked is None:
            return
        self._asked = None
        self.remove_class("-asking", "-reason", "-early")
        self.post_message(self.Closed())

    @property
    def asking(self) -> bool:
        """Whether a question is shown and waits for the person."""
        return self._answer is not None and self._asked is not None

    def _come_up(self, asked: ApprovalAsked) -> None:
        """Show the question with the focus on "reject", as soon as the person does not type elsewhere."""
        if self._answer is None:
            return
        wait = self._typed_at + TYPING_S - self._monotonic()
        if wait > 0:
            self.set_timer(wait, partial(self._come_up, asked))
            return
        self.show(asked)
        self.query_one("#reject", Button).focus()

    # ---- the answer

    def action_answer(self, choice: str) -> None:
        """Answer by key or button. Too early ones are not meant for this question."""
        asked = self._asked
        if asked is None or self._answer is None or self._monotonic() - self._opened_at < IGNORE_KEYS_S:
            return
        if choice == "approve":
            self.answer(ApprovalGiven(call_id=asked.call.id, decision=Decision.APPROVED))
        elif choice == "all":
            self.answer(ApprovalGiven(call_id=asked.call.id, decision=Decision.APPROVED_ALL))
        elif choice == "edit":
            self.post_message(self.EditWanted(asked))
        else:
            self.add_class("-reason")
            self.query_one(Input).focus()

    def answer(self, given: ApprovalGiven) -> None:
        """Give the answer to whoever waits in `decide`."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(given)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """A click, or Enter on the focused button."""
        event.stop()
        self.action_answer(event.button.id or "reject")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The reason is written: reject."""
        event.stop()
        if self._asked is not None:
            reason = event.value.strip()
            event.input.clear()
            self.answer(ApprovalGiven(call_id=self._asked.call.id, decision=Decision.REJECTED, reason=reason))

    def back(self) -> bool:
        """Leave the field for the reason; False where it was not open."""
        if not self.has_class("-reason"):
            return False
        self.remove_class("-reason")
        self.query_one("#reject", Button).focus()
        return True

    def action_body(self, move: str) -> None:
        """Scroll what is shown, whatever has the focus."""
        body: LineView = self.query_one(DiffView)
        if not body.display:
            body = self.query_one(TextView)
        {
            "up": body.scroll_up,
            "down": body.scroll_down,
            "page_up": body.scroll_page_up,
            "page_down": body.scroll_page_down,
            "home": body.scroll_home,
            "end": body.scroll_end,
        }[move](animate=False)


def _head(asked: ApprovalAsked) -> Content:
    tail = ""
    if asked.diff:
        added, removed = counts(asked.diff)
        tail = f"  +{added}/-{removed}"
    subject = "" if asked.command else f" {call_subject(asked.call)}"
    return Content.assemble(
        ("Approve? ", "bold $text-warning"),
        (visible(asked.call.name), "bold"),
        subject,
        (f"  {asked.effect.value}{tail}", "$text-muted"),
    )


def _facts(asked: ApprovalAsked) -> Content:
    parts: list[Content] = []
    if asked.evidence:
        parts.append(Content.assemble(("Checked: ", "$text-success"), plain(asked.evidence)))
    parts.append(Content.assemble(("A approves ", "$text-muted"), (visible(asked.scope), "$text-muted")))
    return Content("\n").join(parts)
