"""The talk: finished blocks frozen in one Static each, the newest 150 mounted, the streamed reply at the end."""

from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Static

from cuda_tui.state.model import Block, State, VerdictBlock
from cuda_tui.tui.render import blocks as rendering

MOUNTED = 150
MORE = 100  # blocks that come back when the person scrolls to the top


class _Shown(NamedTuple):
    block: Block
    widget: Static
    best: bool


class Transcript(VerticalScroll, can_focus=True):
    """Shows the state's blocks and its stream. Takes the whole state, since verdicts refer to candidates."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("y", "copy_last", "Copy the last block")]
    DEFAULT_CSS = """
    Transcript { scrollbar-size-vertical: 1; padding: 0 1; }
    Transcript Static { height: auto; margin: 0 0 1 0; }
    """

    state: reactive[State] = reactive(State, layout=False)
    unfolded: reactive[bool] = reactive(False, layout=False)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._shown: list[_Shown] = []
        self._first = 0  # index of the first mounted block
        self._window = MOUNTED
        self._older = Static(id="older", classes="quiet")
        self._stream = Static(id="stream")

    def compose(self) -> ComposeResult:
        """A line for what is not mounted, and the reply that is being written."""
        yield self._older
        yield self._stream

    def on_mount(self) -> None:
        """Stay at the end until the person scrolls away."""
        self._older.display = self._stream.display = False
        self.anchor()
        self._refill()

    def watch_state(self, before: State, after: State) -> None:
        """Bring the blocks and the stream up to date."""
        if not self.is_attached:
            return
        if before.blocks is not after.blocks or before.candidates is not after.candidates:
            self._refill()
        if before.stream is not after.stream:
            self._stream.display = not after.stream.empty
            self._stream.update(rendering.streaming(after.stream))

    def watch_unfolded(self) -> None:
        """Render all mounted blocks again."""
        if not self.is_attached:
            return
        for shown in self._shown:
            shown.widget.update(rendering.render(shown.block, self.state, unfolded=self.unfolded))

    def watch_scroll_y(self, before: float, after: float) -> None:
        """At the top, bring back older blocks."""
        super().watch_scroll_y(before, after)
        if after <= 0 < before and self._first > 0:
            self._window += MORE
            self._refill()

    def _refill(self) -> None:
        blocks = self.state.blocks
        first = max(0, len(blocks) - self._window)
        best = self.state.best
        best_number = best.number if best else None
        with self.app.batch_update():
            self._drop(first, len(blocks))
            added: list[Static] = []
            earlier: list[Static] = []
            shown: list[_Shown] = []
            for index in range(first, len(blocks)):
                block = blocks[index]
                is_best = isinstance(block, VerdictBlock) and block.number == best_number
                at = index - self._first
                if 0 <= at < len(self._shown):
                    shown.append(self._renewed(self._shown[at], block, is_best))
                    continue
                widget = Static(self._content_of(block), classes=rendering.css_class(block, self.state))
                shown.append(_Shown(block, widget, is_best))
                (earlier if at < 0 else added).append(widget)
            if earlier:
                self.mount_all(earlier, after=self._older)
            if added:
                self.mount_all(added, before=self._stream)
            self._shown, self._first = shown, first
            self._older.display = first > 0
            self._older.update(Content(f"{first} earlier blocks; scroll to the top to bring them back"))

    def _content_of(self, block: Block) -> Content:
        return rendering.render(block, self.state, unfolded=self.unfolded)

    def _renewed(self, shown: _Shown, block: Block, best: bool) -> _Shown:
        if shown.block is block and shown.best is best:
            return shown
        shown.widget.update(self._content_of(block))
        shown.widget.set_classes(rendering.css_class(block, self.state))
        return _Shown(block, shown.widget, best)

    def _drop(self, first: int, end: int) -> None:
        """Unmount what lies before `first`, and what a step back in a replay has undone."""
        kept: list[_Shown] = []
        gone: list[Static] = []
        for offset, shown in enumerate(self._shown):
            index = self._first + offset
            (kept.append(shown) if first <= index < end else gone.append(shown.widget))
        if gone:
            self.app.call_later(self._remove, gone)
            for widget in gone:
                widget.display = False
        if self._shown:
            self._first = max(self._first, first) if kept else first
        else:
            self._first = first
        self._shown = kept

    async def _remove(self, widgets: list[Static]) -> None:
        await self.remove_children(widgets)

    def action_copy_last(self) -> None:
        """Copy the newest block's logical text."""
        if self.state.blocks:
            self.app.copy_to_clipboard(rendering.copied(self.state.blocks[-1], self.state))
