"""The screen of a session, live or replayed: transcript, evidence, and what lies below them."""

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.reactive import reactive
from textual.screen import Screen

from cuda_tui.state.model import State
from cuda_tui.tui.feed import Feed
from cuda_tui.tui.render.blocks import copied
from cuda_tui.tui.widgets.evidence import TABS, CorrectnessPage, Evidence
from cuda_tui.tui.widgets.status import StatusLine
from cuda_tui.tui.widgets.tabstrip import Tab, TabStrip
from cuda_tui.tui.widgets.transcript import Transcript

REFRESH_S = 0.075  # what arrives in between is drawn together
TALK: Tab = ("talk", "Session", "Sess")


# What each tab shows; it keeps its identity while nothing in it changes.
_SLICES: dict[str, Callable[[State], object]] = {
    "compile": lambda state: state.build,
    "correctness": lambda state: state.candidates,
    "speedup": lambda state: state.candidates,
    "kernels": lambda state: state.profiles,
    "diff": lambda state: state.diff,
}


class SessionScreen(Screen[None]):
    """Folded state in, pictures out. Narrow windows show one pane at a time, with the transcript as a tab."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f2", "tab('talk')", "Session"),
        *(Binding(f"f{number}", f"tab('{tab}')", title) for number, (tab, title, _) in enumerate(TABS, start=3)),
        Binding("ctrl+o", "unfold", "Show all tool output"),
        Binding("ctrl+pageup", "candidate(-1)", "Correctness of the candidate before"),
        Binding("ctrl+pagedown", "candidate(1)", "Correctness of the next candidate"),
        Binding("alt+left", "turn(-1)", "Tab to the left"),
        Binding("alt+right", "turn(1)", "Tab to the right"),
    ]

    state: reactive[State] = reactive(State, layout=False)
    pane: reactive[str] = reactive("talk", layout=False)

    def __init__(self, feed: Feed) -> None:
        super().__init__()
        self._feed: Feed = feed

    def compose(self) -> ComposeResult:
        """Panes, the mode's own widgets, status."""
        yield TabStrip((TALK, *TABS), active="talk", id="all-tabs")
        with Horizontal(id="panes"):
            yield Transcript(id="transcript")
            yield Evidence(id="evidence")
        yield from self.compose_below()
        yield StatusLine(id="status")

    def compose_below(self) -> ComposeResult:
        """What a live session or a replay has between panes and status."""
        yield from ()

    def on_mount(self) -> None:
        """Begin to follow the feed."""
        self.follow()
        self.set_interval(REFRESH_S, self.follow)

    def follow(self) -> None:
        """Take the feed's state if it has changed, and its time."""
        if self._feed.state is not self.state:
            self.state = self._feed.state
        now = self._feed.now
        status = self.query_one(StatusLine)
        if int(now) != int(status.now):
            status.now = now
            self.query_one(Evidence).now = now

    def watch_state(self, before: State, state: State) -> None:
        """Hand each widget its slice, and mark the tabs that have news."""
        if not self.is_mounted:
            return
        news = {tab for tab, slice_of in _SLICES.items() if slice_of(before) is not slice_of(state)}
        in_view = {self.pane, self.query_one(Evidence).active} if self.has_class("-wide") else {self.pane}
        self._mark((self.query_one("#all-tabs", TabStrip).marked | news) - in_view)
        self.query_one(Transcript).state = state
        self.query_one(Evidence).state = state
        self.query_one(StatusLine).state = state

    def _mark(self, tabs: frozenset[str]) -> None:
        for strip in self.query(TabStrip):
            strip.marked = tabs

    def watch_pane(self, pane: str) -> None:
        """Show a tab; in a narrow window it takes the transcript's place."""
        if not self.is_mounted:
            return
        self.query_one("#all-tabs", TabStrip).active = pane
        self.set_class(pane != "talk", "-evidence")
        if pane != "talk":
            self.query_one(Evidence).active = pane
        self._mark(self.query_one("#all-tabs", TabStrip).marked - {pane})

    def on_tab_strip_picked(self, event: TabStrip.Picked) -> None:
        """A tab was clicked."""
        self.pane = event.tab

    def action_tab(self, tab: str) -> None:
        """Show a tab."""
        self.pane = tab
        if tab == "talk":
            self.query_one(Transcript).focus()

    def action_turn(self, step: int) -> None:
        """Show the neighbouring tab."""
        names = [tab for tab, _, _ in (TALK, *TABS)]
        self.pane = names[(names.index(self.pane) + step) % len(names)]

    def action_candidate(self, step: int) -> None:
        """Show the comparison of another candidate."""
        self.pane = "correctness"
        self.query_one(CorrectnessPage).turn(step)

    def action_unfold(self) -> None:
        """Show or fold all tool output."""
        transcript = self.query_one(Transcript)
        transcript.unfolded = not transcript.unfolded

    def action_copy_block(self) -> None:
        """Copy the newest block's text."""
        if self.state.blocks:
            self.app.copy_to_clipboard(copied(self.state.blocks[-1], self.state))

    def on_approval_panel_opened(self) -> None:
        """Make room for the question."""
        self.add_class("-asking")

    def on_approval_panel_closed(self) -> None:
        """Give the room back."""
        self.remove_class("-asking")

    def interrupt(self) -> bool:
        """Stop what runs; False where nothing does."""
        return False

    async def finish(self) -> None:
        """End everything that belongs to this screen."""
