"""What is seen while a session is being prepared."""

import time

from textual.app import ComposeResult
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from cuda_tui.tui.render.units import clock


class OpeningScreen(Screen[None]):
    """One sentence and how long it takes; the session screen follows."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what
        self._began = time.monotonic()

    def compose(self) -> ComposeResult:
        """The sentence."""
        yield Static(self._sentence())

    def on_mount(self) -> None:
        """Count the seconds."""
        self.set_interval(1.0, lambda: self.query_one(Static).update(self._sentence()))

    def _sentence(self) -> Content:
        return Content.assemble(
            ("Preparing ", "$text-muted"),
            (self._what, "bold"),
            (f"  {clock(time.monotonic() - self._began)}", "$text-primary"),
            ("\nworkspace, sandbox, reference model, toolchain; Ctrl+C twice leaves", "$text-muted"),
        )
