"""The bar below a replay: play state, speed, time, position, verdicts as marks."""

from textual import events
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from cuda_tui.records import Record
from cuda_tui.tui.render.units import clock


class Position(Record):
    """Where a replay is; times in seconds from its beginning."""

    at: int = 0
    total: int = 0
    elapsed: float = 0.0
    duration: float = 0.0
    playing: bool = False
    speed: float = 1.0
    marks: tuple[int, ...] = ()


class ReplayBar(Widget):
    """Two lines: the scrub bar and the keys. Posts `Sought` when the bar is clicked."""

    DEFAULT_CSS = """
    ReplayBar { height: 2; background: $surface; padding: 0 1; }
    """

    position: reactive[Position] = reactive(Position)

    class Sought(Message):
        """The person wants to see position `at`."""

        def __init__(self, at: int) -> None:
            super().__init__()
            self.at = at

    def _left(self) -> str:
        position = self.position
        sign = "▶ playing" if position.playing else "‖ paused "
        speed = "max" if position.speed == float("inf") else f"{position.speed:g}x"
        times = f"{clock(position.elapsed)} / {clock(position.duration)}"
        return f"{sign}  {speed:>4}  {times:>15}  "

    def _right(self) -> str:
        total = str(self.position.total)
        return f"  event {self.position.at:>{len(total)}} of {total}"

    def _room(self) -> int:
        return max(5, self.size.width - 2 - len(self._left()) - len(self._right()))

    def render(self) -> Content:
        """Bar and keys."""
        position, room = self.position, self._room()
        done = round(room * position.at / position.total) if position.total else 0
        marks = (
            {min(room - 1, round(room * mark / position.total)) for mark in position.marks} if position.total else set()
        )
        cells = [
            ("◆" if x in marks else "━" if x < done else "─", "$text-success" if x in marks else _cell_style(x, done))
            for x in range(room)
        ]
        keys = "Space play  ←→ step  [ ] 10  - + speed  n verdict  p approval  Home End  F1 help"
        return Content.assemble(
            (self._left(), "bold"), *cells, (self._right(), "$text-muted"), "\n", (keys, "$text-muted")
        )

    def on_click(self, event: events.Click) -> None:
        """Seek to where the bar was clicked."""
        x = event.x - 1 - len(self._left())
        if event.y == 0 and 0 <= x < self._room() and self.position.total:
            self.post_message(self.Sought(round(x / max(1, self._room() - 1) * self.position.total)))


def _cell_style(x: int, done: int) -> str:
    return "$text-primary" if x < done else "$text-disabled"
