"""A scrolling view of many lines in one widget: only the lines on screen are rendered."""

from dataclasses import dataclass

from rich.cells import cell_len, chop_cells
from textual.content import Content
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.visual import Visual

EMPTY = Content("")


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line: `gutter` is beside the text and outside of any selection, `background` a style for the whole row."""

    body: Content
    gutter: Content = EMPTY
    background: str = ""


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    start: int
    end: int


class LineView(ScrollView, can_focus=True):
    """Base of logs and diffs. Long lines wrap; what is copied is the logical text, without gutter and breaks."""

    DEFAULT_CSS = """
    LineView { overflow-x: hidden; overflow-y: auto; scrollbar-gutter: stable; scrollbar-size-vertical: 1; }
    """

    gutter_width = 0

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._rows: list[_Row] = []

    def line_count(self) -> int:
        """How many logical lines there are."""
        raise NotImplementedError

    def line(self, index: int) -> Line:
        """A logical line, ready to show."""
        raise NotImplementedError

    def plain(self, index: int) -> str:
        """The characters of a logical line."""
        return self.line(index).body.plain

    def reflow(self, *, follow: bool = False) -> None:
        """Lay all lines out again; stay at the end if the end was in view and `follow` is set."""
        if self.scrollable_content_region.width == 0:
            self._rows = []  # those of what was shown before; `on_resize` comes, and a row may be asked for earlier
            return
        at_end = self.is_vertical_scroll_end
        width = max(8, self.scrollable_content_region.width - self.gutter_width)
        self._rows = [row for index in range(self.line_count()) for row in _wrapped(index, self.plain(index), width)]
        self.virtual_size = Size(width + self.gutter_width, len(self._rows))
        if follow and at_end:
            self.scroll_end(animate=False, immediate=True)
        self.refresh()

    def on_resize(self) -> None:
        """Wrap for the new width."""
        self.reflow(follow=True)

    def on_show(self) -> None:
        """Lay out what came while this was hidden."""
        self.reflow(follow=True)

    def rows_at(self, width: int) -> int:
        """How many rows the lines take in `width` cells."""
        room = max(8, width - self.gutter_width)
        return sum(len(_wrapped(index, self.plain(index), room)) for index in range(self.line_count()))

    def render_line(self, y: int) -> Strip:
        """One row of the view, `y` from its top."""
        width = self.scrollable_content_region.width
        at = self.scroll_offset.y + y
        if not 0 <= at < len(self._rows):
            return Strip.blank(width, self.rich_style)
        row = self._rows[at]
        line = self.line(row.line)
        body = self._selected(line.body.expand_tabs(4) if "\t" in line.body.plain else line.body, row.line)
        body = body[row.start : row.end] if row.start or row.end < len(body) else body
        body = body.pad_right(max(0, width - self.gutter_width - body.cell_length))
        gutter = line.gutter if row.start == 0 else EMPTY
        gutter = gutter.pad_right(max(0, self.gutter_width - gutter.cell_length))
        if line.background:
            body, gutter = body.stylize_before(line.background), gutter.stylize_before(line.background)
        parts = [self._strip(gutter), self._strip(body).apply_offsets(row.start, row.line)]
        return Strip.join(parts).adjust_cell_length(width, self.rich_style)

    def _strip(self, content: Content) -> Strip:
        if not len(content):
            return Strip([])
        return Visual.to_strips(self, content, content.cell_length + 1, 1, self.visual_style, apply_selection=False)[0]

    def _selected(self, body: Content, index: int) -> Content:
        selection = self.text_selection
        span = selection.get_span(index) if selection is not None else None
        if span is None:
            return body
        start, end = span
        return body.stylize("reverse", start, len(body) if end == -1 else end)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text as it is in the file or log."""
        return selection.extract("\n".join(self.plain(index) for index in range(self.line_count()))), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Show the new selection."""
        self.refresh()


def _wrapped(index: int, text: str, width: int) -> list[_Row]:
    if "\t" in text:
        text = text.expandtabs(4)
    if len(text) <= width and (text.isascii() or cell_len(text) <= width):
        return [_Row(index, 0, len(text))]
    rows: list[_Row] = []
    start = 0
    for piece in chop_cells(text, width):
        rows.append(_Row(index, start, start + len(piece)))
        start += len(piece)
    return rows
