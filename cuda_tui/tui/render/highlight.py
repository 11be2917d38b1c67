"""Source code in colour. Pygments is imported when the first line of code is shown, not before the first frame."""

from functools import lru_cache
from typing import TYPE_CHECKING

from textual.content import Content, Span

if TYPE_CHECKING:
    from pygments.lexer import Lexer  # type: ignore[import-untyped]  # Pygments ships no types

_LEXERS = {
    ".cu": "cuda",
    ".cuh": "cuda",
    ".cpp": "cpp",
    ".cc": "cpp",
    ".h": "cpp",
    ".hpp": "cpp",
    ".c": "c",
    ".py": "python",
    ".sh": "bash",
    ".toml": "toml",
    ".json": "json",
    ".md": "text",
}
_FENCES = {"cuda": "cuda", "cu": "cuda", "c++": "cpp", "cpp": "cpp", "c": "c", "python": "python", "py": "python"}
_FENCES |= {"sh": "bash", "bash": "bash", "json": "json", "toml": "toml"}

# Few colours, each with one meaning. The first prefix that fits counts.
_STYLES = (
    ("Comment.Preproc", "$text-warning"),
    ("Comment", "$text-muted italic"),
    ("Keyword.Type", "$text-accent"),
    ("Keyword", "$text-primary"),
    ("Name.Function", "bold"),
    ("Name.Class", "bold"),
    ("Name.Decorator", "$text-warning"),
    ("Literal.String", "$text-success"),
    ("Literal.Number", "$text-accent"),
    ("Operator.Word", "$text-primary"),
)


def language_of(path: str) -> str:
    """The lexer for a file name; "text" where there is none."""
    dot = path.rfind(".")
    return _LEXERS.get(path[dot:].lower(), "text") if dot >= 0 else "text"


def fence_language(word: str) -> str:
    """The lexer for the word after a code fence."""
    return _FENCES.get(word.strip().lower(), "text")


@lru_cache(maxsize=16)
def _lexer(language: str) -> "Lexer":
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]  # Pygments ships no types

    return get_lexer_by_name(language, stripnl=False, ensurenl=False)


@lru_cache(maxsize=512)
def _style(token: str) -> str:
    return next((style for prefix, style in _STYLES if token.startswith(prefix)), "")


def code_lines(text: str, language: str) -> list[Content]:
    """Each line of `text` in colour. The characters are those of `text`, none added, none lost."""
    lines = text.split("\n")
    if language == "text":
        return [Content(line) for line in lines]
    spans: list[list[Span]] = [[] for _ in lines]
    line = column = 0
    for token, value in _lexer(language).get_tokens(text):
        style = _style(str(token).removeprefix("Token."))
        for number, piece in enumerate(value.split("\n")):
            if number:
                line, column = line + 1, 0
            if style and piece and line < len(lines):
                spans[line].append(Span(column, column + len(piece), style))
            column += len(piece)
    return [Content(text, spans=found) for text, found in zip(lines, spans, strict=True)]
