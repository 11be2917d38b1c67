"""Which keys do what, by screen: for the help page and the command palette."""

from collections.abc import Sequence

from textual.binding import Binding, BindingType
from textual.screen import Screen

from cuda_tui.tui.screens.help import KeyGroup
from cuda_tui.tui.screens.live import LiveScreen
from cuda_tui.tui.screens.replay import ReplayScreen
from cuda_tui.tui.screens.session import SessionScreen
from cuda_tui.tui.widgets.approval import ApprovalPanel
from cuda_tui.tui.widgets.composer import Composer
from cuda_tui.tui.widgets.transcript import Transcript


def key_groups(screen: Screen[object], *, everywhere: Sequence[BindingType]) -> list[KeyGroup]:
    """Titles with their bindings, those of the whole app first."""
    groups: list[KeyGroup] = [("Everywhere", [*everywhere, Binding("ctrl+p", "", "All commands")])]
    if isinstance(screen, SessionScreen):
        own = screen.BINDINGS if isinstance(screen, LiveScreen) else []
        groups.append(("Session", [*SessionScreen.BINDINGS, *own]))
        groups.append(("Transcript", [*Transcript.BINDINGS, Binding("pageup,pagedown,home,end", "", "Scroll")]))
    if isinstance(screen, ReplayScreen):
        groups.append(("Replay", ReplayScreen.BINDINGS))
    elif isinstance(screen, LiveScreen):
        groups.append(("Composer", [Binding("enter", "", "Send"), *Composer.BINDINGS]))
        shown = [item for item in ApprovalPanel.BINDINGS if isinstance(item, Binding) and item.show]
        groups.append(("Approval", shown))
    return groups
