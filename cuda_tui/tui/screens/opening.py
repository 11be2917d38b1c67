"""What is seen while a session is being prepared."""

from textual.app import ComposeResult
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static


class OpeningScreen(Screen[None]):
    """One sentence; the session screen follows."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what

    def compose(self) -> ComposeResult:
        """The sentence."""
        yield Static(
            Content.assemble(("Opening ", "$text-muted"), (self._what, "bold"), ("  Ctrl+C stops", "$text-muted"))
        )
