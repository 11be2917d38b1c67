"""One line of tabs."""

from textual import events
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

Tab = tuple[str, str, str]  # identity, title, short title


class TabStrip(Widget):
    """Shows which tab is active and posts `Picked` when another is clicked. Short titles where room is scarce."""

    DEFAULT_CSS = """
    TabStrip { height: 1; width: 1fr; background: $panel; color: $text-muted; }
    """

    active: reactive[str] = reactive("")
    marked: reactive[frozenset[str]] = reactive(frozenset[str])

    class Picked(Message):
        """The person wants to see this tab."""

        def __init__(self, tab: str) -> None:
            super().__init__()
            self.tab = tab

    def __init__(self, tabs: tuple[Tab, ...], *, active: str, id: str | None = None) -> None:
        super().__init__(id=id)
        self._tabs = tabs
        self.set_reactive(TabStrip.active, active)

    def _labels(self) -> list[str]:
        full = [f" {title} " for _, title, _ in self._tabs]
        if sum(len(label) for label in full) <= self.size.width:
            return full
        short = [f" {name} " for _, _, name in self._tabs]
        return (
            short if sum(len(label) for label in short) <= self.size.width else [label.strip() + " " for label in short]
        )

    def render(self) -> Content:
        """The titles; those with news since they were last in view stand out."""
        parts: list[Content] = []
        for (tab, _, _), label in zip(self._tabs, self._labels(), strict=True):
            if tab == self.active:
                parts.append(Content.styled(label, "bold $text on $surface"))
            elif tab in self.marked:
                parts.append(Content.styled(label, "$text-primary"))
            else:
                parts.append(Content(label))
        return Content("").join(parts)

    def on_click(self, event: events.Click) -> None:
        """Find the title under the pointer."""
        at = 0
        for (tab, _, _), label in zip(self._tabs, self._labels(), strict=True):
            at += len(label)
            if event.x < at:
                self.post_message(self.Picked(tab))
                return
