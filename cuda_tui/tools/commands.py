"""A shell command's parts, so that "approve all" covers exactly what was shown (field case A-04)."""

import re
from collections.abc import Iterator
from typing import Any

# Commands that drop data: never covered by an earlier yes.
_DROPS_DATA = re.compile(
    r"""(^|[\s;&|(/])(
      git\s+(-\S+\s+\S+\s+)*(reset|clean|checkout|restore|stash|push|rebase|rm|branch\s+(-D|--delete)|filter-branch|gc)\b
      | rm\s+(-\S*[rRf]|--recursive|--force)
      | (find\s.*-(delete|exec)|dd|mkfs\S*|shred|truncate)\b
    )""",
    re.VERBOSE,
)


def parts_of(command: str) -> tuple[str, ...]:
    """The simple commands of a chain, as written, assignments and redirections included.

    Each must be allowed by itself. What is more than a chain of simple commands (loops, functions, subshells, here
    documents) is one part. Empty where the command cannot be parsed, or drops data: such a command is always asked.
    """
    import bashlex  # type: ignore[import-untyped]  # ships no types; imported here since only this tool needs it

    if drops_data(command):
        return ()
    if "<<" in command:
        return (command.strip(),)
    try:
        trees = bashlex.parse(command)
        parts = [part for tree in trees for part in _parts(tree, command)]
    except _Compound:
        return (command.strip(),)
    except Exception:  # bashlex raises its own errors, NotImplementedError, and now and then an AssertionError
        return ()
    return tuple(dict.fromkeys(parts))


def drops_data(command: str) -> bool:
    """Whether the command could remove work that nobody saved."""
    return _DROPS_DATA.search(command) is not None


class _Compound(Exception):
    """More than a chain of simple commands."""


def _parts(node: Any, command: str) -> Iterator[str]:
    match node.kind:
        case "list" | "pipeline":
            for child in node.parts:
                yield from _parts(child, command)
        case "operator" | "pipe" | "reservedword":
            return
        case "command":
            start, end = node.pos
            yield command[start:end].strip()
            for word in node.parts:
                yield from _substituted(word, command)
        case _:
            raise _Compound


def _substituted(word: Any, command: str) -> Iterator[str]:
    """The commands inside $(...), `...` and <(...)."""
    inner = getattr(word, "command", None)
    if inner is not None:
        yield from _parts(inner, command)
    for child in getattr(word, "parts", None) or ():
        yield from _substituted(child, command)
    output = getattr(word, "output", None)
    if getattr(output, "kind", None) == "word":
        yield from _substituted(output, command)
