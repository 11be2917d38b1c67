"""A unified diff as rows of code with line numbers."""

import re
from dataclasses import dataclass
from typing import Literal

from textual.content import Content

from cuda_tui.tui.render.highlight import code_lines, language_of
from cuda_tui.tui.render.text import visible

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)")


@dataclass(frozen=True, kw_only=True)
class DiffRow:
    """One row. `old` and `new` are line numbers, counted from 1, where the row has one."""

    kind: Literal["file", "hunk", "context", "added", "removed", "note"]
    body: Content
    old: int | None = None
    new: int | None = None


@dataclass(frozen=True, kw_only=True)
class Hunk:
    """The lines between one `@@` and the next."""

    old: int
    new: int
    title: str
    lines: tuple[str, ...]


def counts(diff: str) -> tuple[int, int]:
    """Lines added and removed."""
    added = removed = 0
    in_hunk = False
    for line in diff.split("\n"):
        if line.startswith("@@"):
            in_hunk = True
        elif line.startswith(("diff ", "--- ", "index ")) and not (in_hunk and line.startswith("--- ")):
            in_hunk = False
        elif in_hunk:
            added += line.startswith("+")
            removed += line.startswith("-")
    return added, removed


def rows(diff: str) -> tuple[DiffRow, ...]:
    """All rows of a unified diff of one or several files. Text before the first hunk of a file is its title."""
    found: list[DiffRow] = []
    lines = visible(diff).split("\n")
    if lines and not lines[-1]:
        lines.pop()
    index, path = 0, ""
    while index < len(lines):
        line = lines[index]
        match = _HUNK.match(line)
        if match is None:
            if line.startswith("+++ "):
                path = _path(line) if _path(line) != "/dev/null" else path
                found.append(DiffRow(kind="file", body=Content(path)))
            elif line.startswith("--- "):
                path = _path(line)
            elif not line.startswith(("diff --git", "index ")):
                found.append(DiffRow(kind="note", body=Content(line)))
            index += 1
            continue
        end = _hunk_end(lines, index)
        hunk = Hunk(old=int(match[1]), new=int(match[2]), title=match[3].strip(), lines=tuple(lines[index + 1 : end]))
        found.extend(_hunk_rows(hunk, language_of(path)))
        index = end
    return tuple(found)


def _path(line: str) -> str:
    name = line[4:].split("\t")[0].strip()
    return name[2:] if name.startswith(("a/", "b/")) else name


def _hunk_end(lines: list[str], start: int) -> int:
    """Where the hunk that begins at `start` ends, by its own line counts: a removed `-- x` is no file header."""
    numbers = re.match(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@", lines[start])
    old, new = (int(numbers[1] or 1), int(numbers[2] or 1)) if numbers else (0, 0)
    index = start + 1
    while index < len(lines) and (old > 0 or new > 0 or lines[index].startswith("\\")):
        mark = lines[index][:1]
        old -= mark in ("-", " ", "")
        new -= mark in ("+", " ", "")
        index += 1
    return index


def _hunk_rows(hunk: Hunk, language: str) -> list[DiffRow]:
    before = [line[1:] for line in hunk.lines if line[:1] in ("-", " ", "")]
    after = [line[1:] for line in hunk.lines if line[:1] in ("+", " ", "")]
    old_code = iter(code_lines("\n".join(before), language))
    new_code = iter(code_lines("\n".join(after), language))
    found = [DiffRow(kind="hunk", body=Content(hunk.title), old=hunk.old, new=hunk.new)]
    old, new = hunk.old, hunk.new
    for line in hunk.lines:
        if line.startswith("+"):
            found.append(DiffRow(kind="added", body=next(new_code), new=new))
            new += 1
        elif line.startswith("-"):
            found.append(DiffRow(kind="removed", body=next(old_code), old=old))
            old += 1
        elif line.startswith("\\"):
            found.append(DiffRow(kind="note", body=Content(line[1:].strip())))
        else:
            next(old_code)
            found.append(DiffRow(kind="context", body=next(new_code), old=old, new=new))
            old, new = old + 1, new + 1
    return found
