"""The speedup chart, drawn cell by cell: candidates from left to right, speedup upwards on a logarithmic scale."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from textual.content import Content, Span

from cuda_tui.evaluation.report import Ratio, Verdict
from cuda_tui.state.model import Candidate, best_of
from cuda_tui.tui.render.speed import compile_ratio
from cuda_tui.tui.render.units import times

AXIS = 8  # cells left of the plot: " 1.05x ┤"
COMPILE, EAGER, BEST, REJECTED, OPEN = "$text-success", "$text-primary", "$text-success", "$text-error", "$text-warning"
_TICKS = (
    1.0,
    1.05,
    2.0,
    1.5,
    3.0,
    5.0,
    10.0,
    0.5,
    1.25,
    4.0,
    20.0,
    0.8,
    0.25,
    7.0,
    50.0,
    100.0,
    0.1,
    1.75,
    2.5,
    6.0,
    8.0,
)


@dataclass
class Grid:
    """Cells with a style each; later marks lie over earlier ones."""

    width: int
    height: int
    cells: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)

    def put(self, x: int, y: int, sign: str, style: str) -> None:
        """Set one cell, if it lies inside."""
        if 0 <= x < self.width and 0 <= y < self.height:
            self.cells[x, y] = (sign, style)

    def write(self, x: int, y: int, text: str, style: str) -> None:
        """Set a run of cells."""
        for offset, sign in enumerate(text):
            self.put(x + offset, y, sign, style)

    def lines(self) -> list[Content]:
        """Row by row."""
        found: list[Content] = []
        for y in range(self.height):
            row = [self.cells.get((x, y), (" ", "")) for x in range(self.width)]
            spans = [Span(x, x + 1, style) for x, (_, style) in enumerate(row) if style]
            found.append(Content("".join(sign for sign, _ in row), spans=spans))
        return found


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Rows 0 (top, `high`) to `rows - 1` (bottom, `low`) on a logarithmic scale."""

    low: float
    high: float
    rows: int

    def y(self, value: float) -> int:
        """The row of a ratio."""
        share = (math.log(self.high) - math.log(value)) / (math.log(self.high) - math.log(self.low))
        return max(0, min(self.rows - 1, round(share * (self.rows - 1))))


def chart(candidates: Sequence[Candidate], width: int, height: int) -> list[Content]:
    """A chart of `height` rows: legend, plot, numbers, and the codes of what was rejected.

    The plot holds as many of the newest candidates as fit at four columns each.
    """
    grid = Grid(width, height)
    room = width - AXIS - 1
    shown = candidates[-max(1, room // 4) :]
    pitch = max(4, min(14, room // max(1, len(shown))))
    rows = max(3, height - 4)
    scale = _scale(shown, rows)
    _legend(grid, hidden=len(candidates) - len(shown))
    _axes(grid, scale)
    columns = [AXIS + 1 + pitch // 2 + index * pitch for index in range(len(shown))]
    _best_line(grid, scale, candidates, shown, columns)
    for candidate, x in zip(shown, columns, strict=True):
        _mark(grid, scale, candidate, x, pitch)
    return grid.lines()


def _scale(candidates: Sequence[Candidate], rows: int) -> Scale:
    ratios = [ratio for item in candidates if item.measured for ratio in item.measured.ratios]
    low = min([0.95, *(ratio.low for ratio in ratios)])
    high = max([1.15, *(ratio.high for ratio in ratios)])
    margin = (high / low) ** 0.06
    return Scale(low=max(0.01, low / margin), high=high * margin, rows=rows)


def _legend(grid: Grid, *, hidden: int) -> None:
    parts = (
        ("● ", COMPILE, "vs fastest compile   "),
        ("○ ", EAGER, "vs eager   "),
        ("━ ", BEST, "best so far   "),
        ("× ", REJECTED, "rejected   "),
        ("", "", f"{hidden} earlier not shown" if hidden else "┬┴ 95%"),
    )
    x = 1
    for sign, style, words in parts:
        grid.write(x, 0, sign, style)
        grid.write(x + len(sign), 0, words, "$text-muted")
        x += len(sign) + len(words)


def _axes(grid: Grid, scale: Scale) -> None:
    for value, sign in ((1.0, "─"), (1.05, "╌")):
        for x in range(AXIS + 1, grid.width):
            grid.put(x, scale.y(value) + 1, sign, "$text-disabled")
    for y in range(scale.rows):
        grid.put(AXIS, y + 1, "│", "$text-disabled")
    taken: list[int] = []
    for value in _TICKS:
        y = scale.y(value)
        near = 1 if value in (1.0, 1.05) else 2
        if not scale.low <= value <= scale.high or any(abs(y - other) < near for other in taken):
            continue
        taken.append(y)
        grid.write(0, y + 1, times(value).rjust(AXIS - 1), "bold" if value in (1.0, 1.05) else "$text-muted")
        grid.put(AXIS, y + 1, "┤", "$text-disabled")
    grid.put(AXIS, scale.rows + 1, "└", "$text-disabled")
    for x in range(AXIS + 1, grid.width):
        grid.put(x, scale.rows + 1, "─", "$text-disabled")


def _best_line(
    grid: Grid, scale: Scale, candidates: Sequence[Candidate], shown: Sequence[Candidate], columns: Sequence[int]
) -> None:
    """A step for every new best, drawn to the right edge."""
    before = len(candidates) - len(shown)
    level: int | None = None
    for index, x in enumerate(columns):
        best = best_of(tuple(candidates[: before + index + 1]))
        ratio = best.headline if best else None
        if ratio is None:
            continue
        y = scale.y(ratio.value) + 1
        if level is not None and y < level:
            for row in range(y + 1, level):
                grid.put(x, row, "┃", BEST)
            grid.put(x, y, "┏", BEST)
            grid.put(x, level, "┛", BEST)
        end = columns[index + 1] if index + 1 < len(columns) else grid.width
        for column in range(x + 1, end):
            grid.put(column, y, "━", BEST)
        level = y


def _mark(grid: Grid, scale: Scale, candidate: Candidate, x: int, pitch: int) -> None:
    report = candidate.report
    label = str(candidate.number)
    grid.write(x - len(label) // 2, scale.rows + 2, label, "$text-muted")
    measured = candidate.measured
    if measured is not None:
        _whisker(grid, scale, measured.ratio_to("eager"), x + 1, "○", EAGER)
        _whisker(grid, scale, compile_ratio(measured), x, "●", COMPILE)
        return
    rejected = report.verdict is Verdict.REJECTED
    style = REJECTED if rejected else OPEN
    grid.put(x, scale.rows, "×" if rejected else "?", style)
    code = report.code.value if report.code else "passed"
    if len(code) > pitch - 1:
        code = code[: max(0, pitch - 2)] + "…"
    grid.write(max(AXIS + 1, x - len(code) // 2), scale.rows + 3, code, style)


def _whisker(grid: Grid, scale: Scale, ratio: Ratio | None, x: int, sign: str, style: str) -> None:
    if ratio is None:
        return
    top, bottom = scale.y(ratio.high) + 1, scale.y(ratio.low) + 1
    for y in range(top, bottom + 1):
        grid.put(x, y, "│", style)
    if bottom > top:
        grid.put(x, top, "┬", style)
        grid.put(x, bottom, "┴", style)
    grid.put(x, scale.y(ratio.value) + 1, sign, f"bold {style}")
