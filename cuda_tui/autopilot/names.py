"""Identifiers for emitted code: the words of the user's own source where it has them."""

import keyword
import re

from cuda_tui.autopilot.graph import Graph

TAKEN = frozenset(
    [
        "auto",
        "bool",
        "break",
        "case",
        "catch",
        "char",
        "class",
        "const",
        "continue",
        "default",
        "delete",
        "do",
        "double",
        "else",
        "enum",
        "explicit",
        "export",
        "extern",
        "false",
        "float",
        "for",
        "friend",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "mutable",
        "namespace",
        "new",
        "operator",
        "private",
        "protected",
        "public",
        "register",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "template",
        "this",
        "throw",
        "true",
        "try",
        "typedef",
        "typename",
        "union",
        "unsigned",
        "using",
        "virtual",
        "void",
        "volatile",
        "while",
        "half",
        "torch",
        "self",
        "std",
        "vec",
        "main",
        "run",
        "compute",
        "empty",
        "expect",
        "inside",
        "bad",
        "width",
        "m",
        "c",
        "INFINITY",
        "row",
        "item",
        "tile",
        "live",
        "place",
        "chunk",
        "chunks",
        "start",
        "stop",
        "base",
        "queue",
        "wide",
        "stream",
        "partials",
        "dev",
        "WIDE",
        "u",
        "n",
        "r",
        "NAN",
    ]
)
OWN = re.compile(
    r"(v|i|j|k|sum|top|low|kept|column|part|value)\d*|\w+_v\d+"
)  # what emitted code calls its own variables


def identifier(words: str) -> str:
    """A name that Python, C++ and CUDA accept."""
    name = re.sub(r"\W+", "_", words).strip("_") or "value"
    if name[0].isdigit():
        name = f"p{name}"
    return f"{name}_" if name in TAKEN or keyword.iskeyword(name) or OWN.fullmatch(name) else name


def variables(graph: Graph) -> dict[str, str]:
    """A unique variable for every value of the graph."""
    chosen: dict[str, str] = {}
    used: set[str] = set()
    for name, source in graph.sources.items():
        wanted = "_".join(str(part) for part in source.path) if source.kind == "input" else source.target
        _claim(name, identifier(wanted or name), chosen, used)
    for name in graph.nodes:
        _claim(name, identifier(name.removeprefix("_")), chosen, used)
    return chosen


def _claim(name: str, wanted: str, chosen: dict[str, str], used: set[str]) -> None:
    unique, number = wanted, 2
    while unique in used:
        unique, number = f"{wanted}_{number}", number + 1
    used.add(unique)
    chosen[name] = unique
