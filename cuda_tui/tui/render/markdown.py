"""The little Markdown that models write, as one Content: headings, lists, bold, code. The rest stays as it came."""

import re

from textual.content import Content

from cuda_tui.tui.render.highlight import code_lines, fence_language
from cuda_tui.tui.render.text import visible

_INLINE = re.compile(r"`([^`\n]+)`|\*\*(?=\S)([^*\n]*[^*\s])\*\*")
_HEADING = re.compile(r"(#{1,6}) +(.*)")
_BULLET = re.compile(r"( *)[-*] +(.*)")
_FENCE = re.compile(r" *```(.*)")


def markdown(text: str, *, streaming: bool = False) -> Content:
    """Text of a model. While it streams, a code fence that is still open is shown without colours."""
    lines = visible(text).strip("\n").split("\n")
    found: list[Content] = []
    index = 0
    while index < len(lines):
        fence = _FENCE.match(lines[index])
        if fence is None:
            found.append(_line(lines[index]))
            index += 1
            continue
        end = next((at for at in range(index + 1, len(lines)) if lines[at].strip() == "```"), len(lines))
        closed = end < len(lines)
        language = fence_language(fence[1]) if closed or not streaming else "text"
        found.extend(_code("\n".join(lines[index + 1 : end]), language))
        index = end + 1
    return Content("\n").join(found)


def _code(text: str, language: str) -> list[Content]:
    return [Content.assemble(("▏ ", "$text-muted"), line) for line in code_lines(text, language)]


def _line(line: str) -> Content:
    heading = _HEADING.match(line)
    if heading is not None:
        return Content.styled(heading[2], "bold $text-primary")
    bullet = _BULLET.match(line)
    if bullet is not None:
        return Content.assemble(f"{bullet[1]}• ", _inline(bullet[2]))
    return _inline(line)


def _inline(line: str) -> Content:
    parts: list[str | tuple[str, str]] = []
    at = 0
    for match in _INLINE.finditer(line):
        parts.append(line[at : match.start()])
        if match[1] is not None:
            parts.append((match[1], "$text-accent"))
        else:
            parts.append((match[2], "bold"))
        at = match.end()
    parts.append(line[at:])
    return Content.assemble(*(part for part in parts if part))
