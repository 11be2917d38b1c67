"""A recorded session on the session screen."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from cuda_tui.state.model import State
from cuda_tui.tui.playback import Playback
from cuda_tui.tui.screens.session import SessionScreen
from cuda_tui.tui.widgets.approval import ApprovalPanel
from cuda_tui.tui.widgets.replaybar import Position, ReplayBar


class ReplayScreen(SessionScreen):
    """Plays, pauses, steps, seeks, jumps. Needs nothing but the log."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "play", "Play or pause", priority=True),
        Binding("left", "step(-1)", "One event back", priority=True),
        Binding("right", "step(1)", "One event on", priority=True),
        Binding("left_square_bracket", "step(-10)", "Ten events back"),
        Binding("right_square_bracket", "step(10)", "Ten events on"),
        Binding("plus,equals_sign", "speed(1)", "Faster"),
        Binding("minus", "speed(-1)", "Slower"),
        Binding("n", "verdict", "Next verdict"),
        Binding("p", "approval", "Next approval"),
        Binding("home", "seek_start", "To the beginning", priority=True),
        Binding("end", "seek_end", "To the end", priority=True),
    ]

    def __init__(self, playback: Playback, *, play: bool) -> None:
        super().__init__(playback)
        self.playback = playback
        self._play = play

    def compose_below(self) -> ComposeResult:
        """The question as it was asked, and the bar."""
        yield ApprovalPanel(id="approval")
        yield ReplayBar(id="replay")

    def on_mount(self) -> None:
        """Start the player."""
        if self._play:
            self.playback.toggle()
        self.run_worker(self.playback.run(), name="playback", exit_on_error=True)
        self.query_one("#transcript").focus()

    def follow(self) -> None:
        """Also show where the replay is."""
        super().follow()
        playback = self.playback
        self.query_one(ReplayBar).position = Position(
            at=playback.position,
            total=playback.total,
            elapsed=playback.elapsed,
            duration=playback.duration,
            playing=playback.playing,
            speed=playback.speed,
            marks=playback.verdicts,
        )

    def watch_state(self, before: State, state: State) -> None:
        """Also show a question that waits at this position."""
        super().watch_state(before, state)
        if not self.is_mounted:
            return
        panel = self.query_one(ApprovalPanel)
        if state.pending is None:
            panel.hide()
        else:
            panel.show(state.pending, note="Recorded: the answer follows with the next event.")

    def on_replay_bar_sought(self, event: ReplayBar.Sought) -> None:
        """The bar was clicked."""
        self.playback.seek(event.at)
        self.follow()

    def action_play(self) -> None:
        """Play or pause."""
        self.playback.toggle()
        self.follow()

    def action_step(self, count: int) -> None:
        """Go on or back by single events."""
        self.playback.step(count)
        self.follow()

    def action_speed(self, steps: int) -> None:
        """Play faster or slower."""
        self.playback.faster(steps)
        self.follow()

    def action_verdict(self) -> None:
        """Jump to the next verdict."""
        if not self.playback.next_of(self.playback.verdicts):
            self.notify("No later verdict.", markup=False)
        self.follow()

    def action_approval(self) -> None:
        """Jump to the next question."""
        if not self.playback.next_of(self.playback.approvals):
            self.notify("No later approval.", markup=False)
        self.follow()

    def action_seek_start(self) -> None:
        """Go to the beginning."""
        self.playback.seek(0)
        self.follow()

    def action_seek_end(self) -> None:
        """Go to the end."""
        self.playback.seek(self.playback.total)
        self.follow()
