"""Slash commands: what the person can type instead of a key."""

from cuda_tui.errors import UsageError
from cuda_tui.events import Approval
from cuda_tui.records import Record


class SlashCommand(Record):
    """A command as it was typed."""

    name: str
    argument: str = ""


COMMANDS: dict[str, str] = {
    "help": "keys and commands",
    "cancel": "stop the step under way",
    "approve": "step | edits | auto: how much is asked",
    "model": "PROVIDER:NAME: who answers from the next request on",
    "rules": "what was approved for all later calls",
    "forget": "RULE: ask again for what it covers",
    "candidate": "NUMBER: the comparison of that candidate",
    "tab": "compile | correctness | speedup | kernels | diff | machine",
    "unfold": "show or fold all tool output",
    "theme": "NAME: other colours; without a name, the next ones",
    "export": "FILE: write a Markdown report of this session",
    "copy": "copy the latest block of the talk",
    "quit": "leave; the session can be resumed",
}
_NEEDS_ARGUMENT = frozenset({"approve", "model", "tab", "forget", "candidate"})


def parse_command(text: str) -> SlashCommand | None:
    """The command that `text` is, or None where it is talk. A text of several lines is talk, even after a slash.

    Raises UsageError for a command that does not exist or lacks its argument.
    """
    line = text.strip()
    if not line.startswith("/") or "\n" in line:
        return None
    name, _, argument = line[1:].partition(" ")
    if "/" in name:
        return None  # a path
    if name not in COMMANDS:
        raise UsageError(f"there is no command /{name}", hint="/help lists them")
    argument = argument.strip()
    if name in _NEEDS_ARGUMENT and not argument:
        raise UsageError(f"/{name} needs an argument", hint=f"/{name} {COMMANDS[name]}")
    return SlashCommand(name=name, argument=argument)


def approval_of(word: str) -> Approval:
    """The approval mode of that name. Raises UsageError."""
    try:
        return Approval(word)
    except ValueError as error:
        names = ", ".join(mode.value for mode in Approval)
        raise UsageError(f"there is no approval mode {word!r}", hint=f"one of {names}") from error
