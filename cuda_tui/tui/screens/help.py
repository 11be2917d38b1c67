"""All keys and commands on one page."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from cuda_tui.tui.commands import COMMANDS
from cuda_tui.tui.render.building import heading

KeyGroup = tuple[str, Sequence[BindingType]]
_NAMES = {
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "plus": "+",
    "minus": "-",
    "equals_sign": "=",
    "pagedown": "PgDn",
    "pageup": "PgUp",
    "escape": "Esc",
}


def key_name(key: str) -> str:
    """`ctrl+j,alt+enter` as a person writes it: `Ctrl+J, Alt+Enter`."""
    names = []
    for one in key.split(","):
        parts = one.strip().split("+") if one.strip() != "+" else ["+"]
        names.append(
            "+".join(
                _NAMES.get(part) or (part if len(part) == 1 and len(parts) == 1 else part.title()) for part in parts
            )
        )
    return ", ".join(names)


class HelpScreen(ModalScreen[None]):
    """Any of Esc, F1 and Enter closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f1,enter,q", "dismiss(None)", "Close", priority=True)]

    def __init__(self, groups: Sequence[KeyGroup]) -> None:
        super().__init__()
        self._groups = groups

    def compose(self) -> ComposeResult:
        """One text that scrolls."""
        lines: list[Content] = []
        for title, bindings in self._groups:
            lines.append(heading(title))
            for binding in bindings:
                if isinstance(binding, Binding) and binding.description:
                    lines.append(_entry(key_name(binding.key), binding.description))
            lines.append(Content(""))
        lines.append(heading("Commands", "typed into the composer"))
        lines.extend(_entry(f"/{name}", text) for name, text in COMMANDS.items())
        lines.extend(
            [
                Content(""),
                heading("After a crash of the terminal"),
                Content("If the program was killed (SIGKILL) and the shell looks wrong, type: reset"),
            ]
        )
        with VerticalScroll():
            yield Static(Content("\n").join(lines))


def _entry(key: str, text: str) -> Content:
    return Content.assemble((f"{key:<24} ", "bold"), text)
