"""Messages of compilers and linkers, from the text of a build log: g++, clang, nvcc, ptxas, ld, ninja.

The first distinct error comes first; notes are folded into the message that they belong to.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from cuda_tui.evaluation.report import Diagnostic

CONTEXT_LINES = 2  # source lines kept below a message
NOTES_KEPT = 3  # notes kept in the context of one message

# file.cpp:12:5: error: text          (g++, clang)
_GCC = re.compile(
    r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:(?P<column>\d+):)? "
    r"(?P<kind>fatal error|error|warning|note): (?P<text>.*)$"
)
# kernels/a.cu(7): error: text        kernels/a.cu(7): warning #177-D: text
_NVCC = re.compile(
    r"^(?P<file>[^\s(][^(]*)\((?P<line>\d+)\): "
    r"(?P<kind>catastrophic error|error|warning|note)(?: #[\w-]+)?: (?P<text>.*)$"
)
# ptxas error   : text                ptxas /tmp/x.ptx, line 22; error   : text
_PTXAS = re.compile(r"^ptxas (?:(?P<file>\S+), line (?P<line>\d+); )?(?P<kind>fatal|error|warning)\s*: (?P<text>.*)$")
# nvcc fatal   : text                 cc1plus: error: text       c++: fatal error: text     clang: error: text
_DRIVER = re.compile(
    r"^(?P<file>[\w./+-]*(?:nvcc|cc1plus|g\+\+|c\+\+|clang(?:\+\+)?|cicc|cudafe\+\+|ninja|collect2)[\w.-]*)"
    r"(?:(?P<gap> )|:)\s*(?P<kind>fatal error|fatal|error|warning)\s*: (?P<text>.*)$"
)
# /usr/bin/ld: obj.o: in function `f': ...     ld: cannot find -lfoo      undefined reference to `f'
_LINKER = re.compile(r"^(?:\S*/)?(?:ld|ld\.\w+|collect2): (?P<text>.*)$")
_UNDEFINED = re.compile(r"^(?P<file>[^\s:][^:]*):(?:\([^)]*\)|\d+): (?P<text>undefined reference to .*)$")
_KILLED = re.compile(r"(?:Killed signal terminated program|\bKilled\b|signal 9)")
_WHERE = re.compile(
    r"^(?:In file included from|\s+from) |: In (?:function|member function|instantiation|lambda)|: At global scope"
)
_KINDS: dict[str, Literal["error", "warning", "note"]] = {"warning": "warning", "note": "note"}


def parse(lines: Iterable[str]) -> tuple[Diagnostic, ...]:
    """The distinct diagnostics of a log: errors in the order of the log, then warnings. Notes are folded."""
    parsed: list[Diagnostic] = []
    context: list[str] = []
    notes = 0
    for line in [*lines, ""]:
        found = _message(line.rstrip())
        if found is None:
            if parsed and _belongs_below(line) and len(context) < CONTEXT_LINES * (1 + notes):
                context.append(line.rstrip())
            continue
        if found.severity == "note" and parsed:
            notes += 1
            if notes <= NOTES_KEPT:
                context = [*context[: CONTEXT_LINES * notes], f"note: {found.place}: {found.message}"]
            continue
        _close(parsed, context)
        context, notes = [], 0
        parsed.append(found)
    _close(parsed, context)
    return _distinct(parsed)


def is_out_of_memory(output: str) -> bool:
    """Whether a compiler was ended by signal 9: the machine ran out of memory, which is no error of the code."""
    return _KILLED.search(output) is not None


def _close(parsed: list[Diagnostic], context: Sequence[str]) -> None:
    """Give the last message its context."""
    if parsed and context:
        last = parsed[-1]
        parsed[-1] = Diagnostic(
            file=last.file,
            severity=last.severity,
            message=last.message,
            line=last.line,
            column=last.column,
            context=tuple(context),
        )


def _distinct(parsed: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """One of each place and message; errors before warnings. A message with a source place comes before link errors."""
    first: dict[tuple[str, int | None, str], Diagnostic] = {}
    for item in parsed:
        first.setdefault((item.file, item.line, item.message), item)
    items = list(first.values())
    return tuple(item for severity in ("error", "warning", "note") for item in items if item.severity == severity)


def _belongs_below(line: str) -> bool:
    """Source lines and carets, as g++ (`   12 | code`), clang and nvcc (indented) print them."""
    return bool(line.strip()) and line.startswith((" ", "\t")) and _WHERE.search(line) is None


def _message(line: str) -> Diagnostic | None:
    """The diagnostic that one line starts, if it does."""
    for pattern in (_GCC, _NVCC, _PTXAS, _DRIVER):
        if found := pattern.match(line):
            groups = found.groupdict()
            if groups.get("gap") and groups["kind"] not in ("fatal", "error", "warning"):
                continue
            if (groups["file"] or "").endswith("collect2"):
                return None  # "ld returned 1 exit status": the reason stands above it
            return Diagnostic(
                file=groups["file"] or "ptxas",
                severity=_KINDS.get(groups["kind"], "error"),
                message=groups["text"].strip(),
                line=int(groups["line"]) if groups.get("line") else None,
                column=int(groups["column"]) if groups.get("column") else None,
            )
    return _linker_message(line)


def _linker_message(line: str) -> Diagnostic | None:
    if found := _UNDEFINED.match(line):
        return Diagnostic(file="ld", severity="error", message=found["text"], context=())
    if not (found := _LINKER.match(line)):
        return None
    text = found["text"]
    if "in function" in text and "undefined reference" not in text:
        return None  # says where the following undefined references are
    if "warning:" in text:
        return Diagnostic(file="ld", severity="warning", message=text)
    if "undefined reference" in text:
        text = text[text.index("undefined reference") :]
    if "returned" in text and "exit status" in text:
        return None
    return Diagnostic(file="ld", severity="error", message=text)
