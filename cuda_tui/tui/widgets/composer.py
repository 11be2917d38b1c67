"""Where the person writes. Enter sends, Ctrl+J or Alt+Enter breaks the line, a paste is one block and never sends."""

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea

BIG_PASTE_LINES = 40


class Composer(TextArea):
    """A text area of up to six lines. Posts `Sent`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+j,alt+enter", "break_line", "New line"),
        Binding("ctrl+up", "earlier", "Earlier message"),
        Binding("ctrl+down", "later", "Later message"),
    ]
    DEFAULT_CSS = """
    Composer { height: auto; min-height: 3; max-height: 8; border: round $panel-lighten-2; padding: 0 1;
               background: transparent; scrollbar-size-vertical: 1; }
    Composer:focus { border: round $primary; }
    """

    class Sent(Message):
        """The person sent `text`."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Typed(Message):
        """The person is typing."""

    def __init__(self, *, id: str | None = None, placeholder: str = "") -> None:
        super().__init__(id=id, placeholder=placeholder, show_line_numbers=False, soft_wrap=True, compact=False)
        self.cursor_blink = False
        self._pastes: dict[str, str] = {}
        self._sent: list[str] = []
        self._at = 0

    async def _on_key(self, event: events.Key) -> None:
        self.post_message(self.Typed())
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            self._send()
            return
        await super()._on_key(event)

    async def _on_paste(self, event: events.Paste) -> None:
        """Insert the paste as it is; a very long one as a short stand-in that is sent in full."""
        self.post_message(self.Typed())
        event.prevent_default()
        event.stop()
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if lines > BIG_PASTE_LINES:
            name = f"[paste {len(self._pastes) + 1}: {lines} lines]"
            self._pastes[name] = text
            text = name
        self.insert(text)

    def _send(self) -> None:
        text = self.text
        for name, pasted in self._pastes.items():
            text = text.replace(name, pasted)
        if not text.strip():
            return
        self._sent.append(self.text)
        self._at = len(self._sent)
        self.load_text("")
        self.post_message(self.Sent(text))

    def action_break_line(self) -> None:
        """Begin a new line."""
        self.insert("\n")

    def action_earlier(self) -> None:
        """Bring back what was sent before."""
        self._recall(-1)

    def action_later(self) -> None:
        """Go forward again."""
        self._recall(1)

    def _recall(self, step: int) -> None:
        if not self._sent:
            return
        self._at = max(0, min(len(self._sent), self._at + step))
        self.load_text(self._sent[self._at] if self._at < len(self._sent) else "")
        self.move_cursor(self.document.end)
