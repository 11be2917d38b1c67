"""The screen of `cuda-tui` alone: what to optimise, with whom, or a session to go back to."""

import time
from collections.abc import Callable
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.suggester import SuggestFromList
from textual.widgets import Button, Input, Label, OptionList, Static
from textual.widgets.option_list import Option

from cuda_tui.agent.runner import Opening
from cuda_tui.records import Record
from cuda_tui.session.listing import Summary
from cuda_tui.tui.render.table import Cell, Column, table
from cuda_tui.tui.render.text import plain, shortened
from cuda_tui.tui.render.units import times

_COLUMNS = (
    Column(title="started"),
    Column(title="what", flexible=True),
    Column(title="model", drop=2),
    Column(title="tried", align="right", drop=3),
    Column(title="best", align="right"),
    Column(title="ended", drop=1),
)


class Offer(Record):
    """What the machine has to work on: every device by its name, the one taken by default, and its CUDA target."""

    default: str
    devices: dict[str, str]  # "cuda:1" to "NVIDIA H200"
    target: str = ""
    note: str = ""  # why the default is not the GPU that is there


class StartScreen(Screen[None]):
    """Posts what the person wants: `Begin`, `Resume` or `Replay`."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("r", "resume", "Resume the marked session")]

    class Begin(Message):
        """Start a new session."""

        def __init__(self, opening: Opening) -> None:
            super().__init__()
            self.opening = opening

    class Resume(Message):
        """Go on with a session."""

        def __init__(self, session: str) -> None:
            super().__init__()
            self.session = session

    class Replay(Message):
        """Look at a session."""

        def __init__(self, session: str) -> None:
            super().__init__()
            self.session = session

    def __init__(
        self,
        sessions: tuple[Summary, ...],
        *,
        models: tuple[str, ...],
        offer: Callable[[], Offer] | None = None,
        file: str = "",
        problem: str = "",
    ) -> None:
        super().__init__()
        self._offer = offer
        self._sessions = sessions
        self._models = models
        self._file = file
        self._problem = problem

    def compose(self) -> ComposeResult:
        """The fields, a button, the list."""
        with Vertical(id="start"):
            yield Static(
                Content.assemble(
                    ("cuda-tui", "bold $text-primary"),
                    ("  makes a PyTorch model fast: verified, measured, step by step\n", "$text-muted"),
                )
            )
            problem = Static(Content(plain(self._problem)), id="problem")
            problem.set_class(bool(self._problem), "-shown")
            yield problem
            with Horizontal(classes="field"):
                yield Label("Model file")
                yield Input(
                    self._file, placeholder="model.py, model.py:Class, or a workspace folder", id="file", compact=True
                )
            with Horizontal(classes="field"):
                yield Label("Agent")
                yield Input(
                    self._models[0] if self._models else "",
                    placeholder="PROVIDER:NAME",
                    suggester=SuggestFromList(self._models),
                    id="model",
                    compact=True,
                )
            with Horizontal(classes="field"):
                yield Label("Device")
                yield Input(placeholder="a GPU, else cpu", id="device", compact=True)
                yield Label("CUDA targets", id="targets-label")
                yield Input(placeholder="the GPU's own", id="targets", compact=True)
            looking = "looking for devices" if self._offer is not None else ""
            yield Static(Content.styled(looking, "$text-muted"), id="note")
            yield Button("Start", id="begin", variant="primary", compact=True)
            yield Static(self._titles(), id="titles")
            yield OptionList(id="sessions", markup=False, compact=True)

    def on_mount(self) -> None:
        """The first thing to type is the file."""
        for field in self.query(Input):
            field.cursor_blink = False
        self.query_one("#file", Input).focus()
        self._fill()
        if self._offer is not None:
            self._look(self._offer)

    @work(thread=True, exit_on_error=False)
    def _look(self, offer: Callable[[], Offer]) -> None:
        """Ask the driver after the first frame: some take a second to wake up."""
        found = offer()
        self.app.call_from_thread(self._offered, found)

    def _offered(self, found: Offer) -> None:
        """Say what there is; what the person has typed meanwhile stays."""
        named = [f"{device} ({name})" if name else device for device, name in found.devices.items()]
        device, targets = self.query_one("#device", Input), self.query_one("#targets", Input)
        device.placeholder = found.default
        device.suggester = SuggestFromList(list(found.devices))
        targets.placeholder = plain(f"{found.target}, the GPU's own" if found.target else "sm_90a, sm_80")
        note = self.query_one("#note", Static)
        known = Content.styled(plain(f"here: {', '.join(named)}"), "$text-muted")
        why = [Content.styled(plain(found.note), "$text-warning")] if found.note else []
        note.update(Content("\n").join([known, *why]))

    def on_resize(self) -> None:
        """Lay the list out for the new width."""
        self._fill()

    def _width(self) -> int:
        return max(40, min(106, self.app.size.width - 6))

    def _titles(self) -> Content:
        if not self._sessions:
            return Content.styled("No sessions yet. Agents: " + ", ".join(self._models), "$text-muted")
        return Content.assemble(
            ("Recent sessions", "bold $text-primary"), ("   Enter replays, r resumes, Tab moves", "$text-muted")
        )

    def _fill(self) -> None:
        options = self.query_one(OptionList)
        marked = options.highlighted
        options.clear_options()
        lines = table(_COLUMNS, [_row(item) for item in self._sessions], self._width())
        if self._sessions:
            self.query_one("#titles", Static).update(Content("\n").join([self._titles(), lines[0]]))
        for item, line in zip(self._sessions, lines[1:], strict=True):
            options.add_option(Option(line, id=f"s{self._sessions.index(item)}"))
        options.highlighted = marked if marked is not None else (0 if self._sessions else None)

    def on_button_pressed(self) -> None:
        """Start."""
        self._begin()

    def on_input_submitted(self) -> None:
        """Enter in any field starts."""
        self._begin()

    def _begin(self) -> None:
        target = self.query_one("#file", Input).value.strip()
        if not target:
            self.notify("Name the file that holds the model.", severity="warning", markup=False)
            self.query_one("#file", Input).focus()
            return
        said = {
            name: self.query_one(f"#{name}", Input).value.strip() or None for name in ("model", "device", "targets")
        }
        opening = Opening(target=target, model=said["model"], device=said["device"], architectures=said["targets"])
        self.post_message(self.Begin(opening))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Look at the session."""
        self.post_message(self.Replay(self._sessions[event.option_index].path))

    def action_resume(self) -> None:
        """Go on with the marked session."""
        marked = self.query_one(OptionList).highlighted
        if marked is not None and self._sessions:
            self.post_message(self.Resume(self._sessions[marked].id))


def _row(item: Summary) -> list[Cell]:
    when = item.started_at or item.modified_at
    if item.problem:
        ended: Cell = Content.styled(shortened(plain(item.problem), 30), "$text-error")
    else:
        ended = Content.styled(item.outcome.value if item.outcome else "interrupted", "$text-muted")
    best = Content.styled(times(item.best_ratio), "bold $text-success") if item.best_ratio else Content("–")
    return [
        time.strftime("%Y-%m-%d %H:%M", time.localtime(when)),
        plain(item.title or item.id),
        plain(item.model),
        str(item.candidates),
        best,
        ended,
    ]
