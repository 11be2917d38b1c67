"""The evidence: six tabs, of which only the one in view is kept up to date."""

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Static

from cuda_tui.state.model import Candidate, State
from cuda_tui.tui.render.building import build_lines, heading, progress_lines, stage_lines
from cuda_tui.tui.render.chart import chart
from cuda_tui.tui.render.correctness import correctness_lines
from cuda_tui.tui.render.kernels import kernel_lines
from cuda_tui.tui.render.machine import machine_lines
from cuda_tui.tui.render.speed import counts_line, measurement_lines, speed_table
from cuda_tui.tui.widgets.code import DiffView, LogView
from cuda_tui.tui.widgets.tabstrip import Tab, TabStrip

TABS: tuple[Tab, ...] = (
    ("compile", "Compile", "Comp"),
    ("correctness", "Correctness", "Corr"),
    ("speedup", "Speedup", "Speed"),
    ("kernels", "Kernels", "Kern"),
    ("diff", "Diff", "Diff"),
    ("machine", "Machine", "Mach"),
)


def quiet(text: str) -> list[Content]:
    """What a tab says while it has nothing to show."""
    return [Content.styled(text, "$text-muted")]


class Page(VerticalScroll, can_focus=True):
    """A tab of text, rendered for the width it has. Subclasses name the slice of state that they show."""

    DEFAULT_CSS = """
    Page { padding: 0 1; scrollbar-size-vertical: 1; }
    Page > Static { height: auto; width: 1fr; }
    """

    state: reactive[State] = reactive(State, layout=False)
    now: reactive[float] = reactive(0.0, layout=False)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._body = Static(Content(""))
        self._drawn: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        """One frozen text."""
        yield self._body

    def watch_state(self) -> None:
        """Draw again if this tab's slice has changed."""
        self.redraw()

    def on_resize(self) -> None:
        """Draw again for another width."""
        self.redraw()

    def redraw(self) -> None:
        """Render the text if its slice of state or its room has changed."""
        if not self.is_attached or self.size.width == 0:
            return
        wanted = (self.size, *self.slice_of(self.state))
        if len(wanted) == len(self._drawn) and all(a is b or a == b for a, b in zip(wanted, self._drawn, strict=True)):
            return
        self._drawn = wanted
        lines = self.lines(self.state, max(20, self.size.width - 3))
        self._body.update(Content("\n").join(lines))

    def slice_of(self, state: State) -> tuple[object, ...]:
        """What the tab depends on."""
        raise NotImplementedError

    def lines(self, state: State, width: int) -> list[Content]:
        """The tab's text, `width` cells wide."""
        raise NotImplementedError


class BuildPage(Page):
    """Stages under way and the latest build."""

    def slice_of(self, state: State) -> tuple[object, ...]:
        """The running stage's seconds are part of it."""
        running = int(self.now) if state.running_stage else 0
        return (state.build, state.stages, state.trials, state.slices, running)

    def watch_now(self) -> None:
        """Keep the seconds of a running stage current."""
        if self.state.running_stage is not None:
            self.redraw()

    def lines(self, state: State, width: int) -> list[Content]:
        """Stages first: they are what the person waits for."""
        found = stage_lines(state.stages, max(self.now, state.now))
        found.extend(progress_lines(state.trials, state.slices))
        if found:
            found.append(Content(""))
        if state.build is not None:
            found.extend(build_lines(state.build, width))
        return found or quiet("Nothing was built yet.")


class CorrectnessPage(Page):
    """The comparison of one candidate: the latest that was compared, or the one that the person chose."""

    chosen: reactive[int | None] = reactive(None, layout=False)

    def slice_of(self, state: State) -> tuple[object, ...]:
        """All candidates, and which is shown."""
        return (state.candidates, self.chosen)

    def watch_chosen(self) -> None:
        """Show another candidate from its top."""
        self.scroll_home(animate=False)
        self.redraw()

    def turn(self, step: int) -> None:
        """Choose the candidate before or after the one in view; after the last one, follow the latest again."""
        numbers = [candidate.number for candidate in self.state.candidates]
        shown = self._shown()
        if shown is None:
            return
        at = numbers.index(shown.number) + step
        self.chosen = numbers[max(0, at)] if at < len(numbers) else None

    def _shown(self) -> Candidate | None:
        chosen = self.state.candidate(self.chosen) if self.chosen is not None else None
        return chosen or _latest_compared(self.state.candidates)

    def lines(self, state: State, width: int) -> list[Content]:
        """One comparison in full."""
        shown = self._shown()
        if shown is None:
            return quiet("No candidate was verified yet.")
        hint = f"{shown.number} of {len(state.candidates)}; Ctrl+PgUp and Ctrl+PgDn show the others"
        return [*correctness_lines(shown, width), Content(""), Content.styled(hint, "$text-muted")]


def _latest_compared(candidates: tuple[Candidate, ...]) -> Candidate | None:
    compared = next((item for item in reversed(candidates) if item.report.verify is not None), None)
    return compared or (candidates[-1] if candidates else None)


class SpeedupPage(Page):
    """The chart over the table."""

    def slice_of(self, state: State) -> tuple[object, ...]:
        """All candidates."""
        return (state.candidates,)

    def lines(self, state: State, width: int) -> list[Content]:
        """The chart takes what the table leaves, at least thirteen rows."""
        if not state.candidates:
            return quiet("No candidate was evaluated yet. Each one will stand here with its 95% interval.")
        rows = speed_table(state.candidates, state.best, width)
        height = max(13, min(26, self.size.height - len(rows) - 8))
        return [
            *chart(state.candidates, width, height),
            Content(""),
            counts_line(state.candidates),
            *rows,
            *measurement_lines(state.candidates, width),
        ]


class KernelsPage(Page):
    """Where the time goes."""

    def slice_of(self, state: State) -> tuple[object, ...]:
        """The profiles."""
        return (state.profiles,)

    def lines(self, state: State, width: int) -> list[Content]:
        """Candidate, then reference."""
        return kernel_lines(state.profiles, width) or quiet("No profile was taken yet.")


class MachinePage(Page):
    """The machine's load."""

    def slice_of(self, state: State) -> tuple[object, ...]:
        """The samples."""
        return (state.machine, state.session)

    def lines(self, state: State, width: int) -> list[Content]:
        """Readings, then where the session runs."""
        found = machine_lines(state.machine, width)
        if state.session is not None:
            found.extend([Content(""), heading("Session")])
            facts = (
                ("Device", state.session.device),
                ("Sandbox", state.session.sandbox or "none"),
                ("Workspace", state.session.workspace),
                ("File", state.session.source),
                ("Version", state.session.version),
            )
            found.extend(Content.assemble(f"{name:<12}", value) for name, value in facts if value)
        return found


class CompilePage(Vertical):
    """The build over its live log; without a log the build has all the room."""

    DEFAULT_CSS = """
    CompilePage BuildPage { height: auto; max-height: 60%; }
    CompilePage.-no-log BuildPage { height: 1fr; max-height: 100%; }
    CompilePage LogView { height: 1fr; border-top: solid $panel-lighten-2; padding: 0 1; }
    CompilePage.-no-log LogView { display: none; }
    """

    state: reactive[State] = reactive(State, layout=False)
    now: reactive[float] = reactive(0.0, layout=False)

    def compose(self) -> ComposeResult:
        """Summary and log."""
        self.set_class(True, "-no-log")
        yield BuildPage()
        yield LogView()

    def watch_state(self, state: State) -> None:
        """Hand down."""
        if not self.is_mounted:
            return
        self.set_class(not state.log, "-no-log")
        self.query_one(BuildPage).state = state
        self.query_one(LogView).lines = state.log

    def watch_now(self, now: float) -> None:
        """Hand down."""
        if self.is_mounted:
            self.query_one(BuildPage).now = now


class DiffPage(Vertical):
    """The workspace against its start."""

    state: reactive[State] = reactive(State, layout=False)
    now: reactive[float] = reactive(0.0, layout=False)

    def compose(self) -> ComposeResult:
        """One view for the whole diff."""
        yield DiffView(empty="The workspace is as it was at the start.")

    def watch_state(self, state: State) -> None:
        """Hand down."""
        if self.is_mounted:
            self.query_one(DiffView).diff = state.diff


class Evidence(Vertical):
    """The tabs and the page in view."""

    DEFAULT_CSS = """
    Evidence ContentSwitcher { height: 1fr; }
    Evidence ContentSwitcher > * { height: 1fr; }
    """

    state: reactive[State] = reactive(State, layout=False)
    now: reactive[float] = reactive(0.0, layout=False)
    active: reactive[str] = reactive("speedup", layout=False)

    def compose(self) -> ComposeResult:
        """The strip is hidden where the screen has one of its own."""
        yield TabStrip(TABS, active=self.active, id="evidence-tabs")
        with ContentSwitcher(initial=self.active):
            yield CompilePage(id="compile")
            yield CorrectnessPage(id="correctness")
            yield SpeedupPage(id="speedup")
            yield KernelsPage(id="kernels")
            yield DiffPage(id="diff")
            yield MachinePage(id="machine")

    def watch_active(self, active: str) -> None:
        """Show another page, with the state as it is now."""
        if not self.is_mounted:
            return
        self.query_one(TabStrip).active = active
        self.query_one(ContentSwitcher).current = active
        self._hand_down()

    def watch_state(self) -> None:
        """Keep the page in view current."""
        self._hand_down()

    def watch_now(self, now: float) -> None:
        """Keep running times current."""
        page = self._page()
        if page is not None:
            page.now = now

    def on_mount(self) -> None:
        """Draw the first page."""
        self._hand_down()

    def _page(self) -> Page | CompilePage | DiffPage | None:
        if not self.is_mounted:
            return None
        found: Widget = self.query_one(f"#{self.active}")
        assert isinstance(found, Page | CompilePage | DiffPage)
        return found

    def _hand_down(self) -> None:
        page = self._page()
        if page is not None:
            page.state = self.state
