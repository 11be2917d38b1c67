"""Tables as aligned lines of text: numbers to the right, words to the left, columns dropped where there is no room."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from textual.content import Content

GAP = 2


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column. Those of the highest `drop` go first when the table is wider than the room; 0 is never dropped.

    The one column that is `flexible` shrinks down to `least` cells before anything is dropped.
    """

    title: str
    align: Literal["left", "right"] = "left"
    drop: int = 0
    flexible: bool = False
    least: int = 12


Cell = str | Content


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> list[Content]:
    """A line of titles and a line for each row, none wider than `width` where dropping columns allows it."""
    cells = [[cell if isinstance(cell, Content) else Content(cell) for cell in row] for row in rows]
    widths = [
        max([len(column.title), *(row[index].cell_length for row in cells)]) for index, column in enumerate(columns)
    ]
    least = [min(w, columns[i].least) if columns[i].flexible else w for i, w in enumerate(widths)]
    kept = _kept(columns, least, width)
    excess = _total(kept, widths) - width
    for index in kept:
        if columns[index].flexible and excess > 0:
            widths[index] = max(least[index], widths[index] - excess)
    titles = [Content.styled(column.title, "$text-muted") for column in columns]
    return [_row(columns, kept, widths, line) for line in [titles, *cells]]


def _kept(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Drop columns until the rest fits, then bring back those that fit after all."""
    kept = list(range(len(columns)))
    while _total(kept, widths) > width and any(columns[index].drop for index in kept):
        kept.remove(max(kept, key=lambda index: columns[index].drop))
    for index in sorted(set(range(len(columns))) - set(kept), key=lambda index: columns[index].drop):
        if _total([*kept, index], widths) <= width:
            kept.append(index)
    return sorted(kept)


def _total(kept: Sequence[int], widths: Sequence[int]) -> int:
    return sum(widths[index] for index in kept) + GAP * (len(kept) - 1)


def _row(columns: Sequence[Column], kept: Sequence[int], widths: Sequence[int], cells: Sequence[Content]) -> Content:
    parts: list[Content] = []
    for index in kept:
        cell = cells[index]
        if cell.cell_length > widths[index]:
            cell = cell.truncate(widths[index], ellipsis=True)
        room = max(0, widths[index] - cell.cell_length)
        parts.append(cell.pad_left(room) if columns[index].align == "right" else cell.pad_right(room))
    return Content(" " * GAP).join(parts)
