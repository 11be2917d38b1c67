"""Logs, diffs and commands as line views."""

from rich.cells import cell_len
from textual.content import Content
from textual.reactive import reactive

from cuda_tui.state.model import LogLine
from cuda_tui.tui.render.diff import DiffRow, rows
from cuda_tui.tui.render.highlight import code_lines
from cuda_tui.tui.render.text import plain, visible
from cuda_tui.tui.widgets.lines import Line, LineView

_MARKS = {"added": "+", "removed": "-"}
_BACKGROUNDS = {"added": "on $success 12%", "removed": "on $error 12%", "hunk": "on $panel"}


class LogView(LineView):
    """The lines of builds and tools, the newest at the end; stays at the end while the end is in view."""

    lines: reactive[tuple[LogLine, ...]] = reactive((), layout=False)

    def watch_lines(self) -> None:
        """Show the new lines."""
        self.reflow(follow=True)

    def line_count(self) -> int:
        """How many lines are kept."""
        return len(self.lines)

    def plain(self, index: int) -> str:
        """A line without colours."""
        return plain(self.lines[index].text).replace("\n", " ")

    def line(self, index: int) -> Line:
        """A line; errors and warnings in colour."""
        text = self.plain(index)
        if "error" in text.lower():
            return Line(body=Content.styled(text, "$text-error"))
        if "warning" in text.lower():
            return Line(body=Content.styled(text, "$text-warning"))
        return Line(body=Content(text))


class DiffView(LineView):
    """A unified diff with old and new line numbers and highlighted code."""

    diff: reactive[str] = reactive("", layout=False)

    def __init__(self, *, empty: str = "", id: str | None = None) -> None:
        super().__init__(id=id)
        self._empty = empty
        self._diff_rows: tuple[DiffRow, ...] = ()

    def watch_diff(self) -> None:
        """Show another diff from its top."""
        self._diff_rows = rows(self.diff)
        top = max((max(row.old or 0, row.new or 0) for row in self._diff_rows), default=0)
        self._digits = max(3, len(str(top)))
        self.gutter_width = 2 * self._digits + 4 if self._diff_rows else 0
        self.scroll_home(animate=False)
        self.reflow()

    def line_count(self) -> int:
        """Rows of the diff, or the one line that says there is none."""
        return len(self._diff_rows) or 1

    def line(self, index: int) -> Line:
        """A row with its numbers and mark."""
        if not self._diff_rows:
            return Line(body=Content.styled(self._empty, "$text-muted"))
        row = self._diff_rows[index]
        if row.kind == "file":
            return Line(body=row.body.stylize("bold"), gutter=Content(""), background="on $panel")
        if row.kind in ("hunk", "note"):
            title = row.body if row.kind == "note" else Content.assemble(f"line {row.new} ", row.body)
            return Line(
                body=title.stylize("$text-muted"),
                gutter=Content.styled("⋯".rjust(self._digits), "$text-muted"),
                background=_BACKGROUNDS.get(row.kind, ""),
            )
        old, new = (str(number or "").rjust(self._digits) for number in (row.old, row.new))
        mark = _MARKS.get(row.kind, " ")
        style = {"+": "$text-success bold", "-": "$text-error bold"}.get(mark, "")
        gutter = Content.assemble((f"{old} {new} ", "$text-muted"), (f"{mark} ", style))
        return Line(body=row.body, gutter=gutter, background=_BACKGROUNDS.get(row.kind, ""))

    def plain(self, index: int) -> str:
        """The code of a row."""
        if not self._diff_rows:
            return self._empty
        row = self._diff_rows[index]
        return self.line(index).body.plain if row.kind == "hunk" else row.body.plain


class TextView(LineView):
    """A command or another exact text. Characters that act on a terminal or hide are shown as escapes."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[Content] = []

    def show(self, text: str, *, language: str = "text") -> None:
        """Show `text` from its top."""
        self._lines = code_lines(visible(text), language)
        self.scroll_home(animate=False)
        self.reflow()

    def line_count(self) -> int:
        """How many lines the text has."""
        return len(self._lines)

    def line(self, index: int) -> Line:
        """A line of the text."""
        return Line(body=self._lines[index])

    @property
    def longest(self) -> int:
        """Cells of the longest line."""
        return max((cell_len(line.plain) for line in self._lines), default=0)
