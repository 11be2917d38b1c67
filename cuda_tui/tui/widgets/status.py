"""The status line: what goes on, with whom, at what cost, and how far."""

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from cuda_tui.events import MachineSampled, Outcome
from cuda_tui.state.model import State
from cuda_tui.tui.render.text import visible
from cuda_tui.tui.render.units import clock, interval, short_count, size, times

_SEPARATOR = Content.styled(" │ ", "$text-disabled")
_ENDS = {
    Outcome.DONE: ("done", "$text-success"),
    Outcome.CANCELLED: ("stopped", "$text-warning"),
    Outcome.BUDGET: ("budget used up", "$text-warning"),
    Outcome.FAILED: ("failed", "$text-error"),
}


class StatusLine(Widget):
    """One line. What matters least is left out first when the window is small."""

    DEFAULT_CSS = """
    StatusLine { height: 1; background: $panel; color: $text; padding: 0 1; }
    """

    state: reactive[State] = reactive(State)
    now: reactive[float] = reactive(0.0)
    queued: reactive[int] = reactive(0)

    def render(self) -> Content:
        """The parts that fit, in their order."""
        parts = [part for part in self._parts() if len(part[1])]
        kept = list(parts)
        while kept and self._width(kept) > self.size.width - 2 and max(rank for rank, _ in kept) > 0:
            kept.remove(max(kept, key=lambda part: part[0]))
        return _SEPARATOR.join(content for _, content in kept)

    @staticmethod
    def _width(parts: list[tuple[int, Content]]) -> int:
        return sum(content.cell_length for _, content in parts) + 3 * max(0, len(parts) - 1)

    def _parts(self) -> list[tuple[int, Content]]:
        """Parts with their rank: the higher, the sooner left out."""
        state = self.state
        sandbox = state.session.sandbox if state.session else ""
        unsafe = sandbox in ("", "none")
        return [
            (0, self._activity()),
            (2, self._best()),
            (3, Content(visible(state.model))),
            (6, self._tokens()),
            (4, Content(clock(self._elapsed())) if state.started_at else Content("")),
            (5, Content(f"approve {state.approval.value}") if state.session else Content("")),
            (
                1 if unsafe else 8,
                Content.styled(
                    "no sandbox" if unsafe else f"sandbox {visible(sandbox)}", "$text-error" if unsafe else ""
                )
                if state.session
                else Content(""),
            ),
            (1, self._throttle()),
            *self._gpu(),
            (7, self._machine()),
            (9, Content(visible(state.session.device)) if state.session else Content("")),
        ]

    def _elapsed(self) -> float:
        """Seconds since the start; the clock stands still once the session has ended."""
        started = self.state.started_at or 0.0
        return (self.state.now if self.state.ended else max(self.now, self.state.now)) - started

    def _activity(self) -> Content:
        state = self.state
        if state.pending is not None:
            return Content.styled("? waiting for you", "bold $text-warning")
        if state.ended is not None:
            word, style = _ENDS[state.ended.outcome]
            return Content.styled(f"■ {word}", f"bold {style}")
        if state.retry:
            return Content.styled("↻ provider retry", "$text-warning")
        stage, tool = state.running_stage, state.running_tool
        if stage is not None:
            return Content.styled(f"▸ {visible(stage.name)} {self._since(stage.started_at)}", "bold $text-primary")
        if tool is not None:
            began = tool.started_at if tool.started_at is not None else state.now
            return Content.styled(f"▸ {visible(tool.call.name)} {self._since(began)}", "bold $text-primary")
        if not state.stream.empty:
            return Content.styled("▸ writing", "bold $text-primary")
        return Content.styled("▸ thinking" if state.session and state.blocks else "· ready", "$text-primary")

    def _since(self, began: float) -> str:
        return clock(max(self.now, self.state.now) - began)

    def _best(self) -> Content:
        best = self.state.best
        ratio = best.headline if best else None
        if best is None or ratio is None:
            return Content.styled("no win yet", "$text-muted") if self.state.candidates else Content("")
        return Content.assemble(
            "best ", (times(ratio.value), "bold $text-success"), f" {interval(ratio)} vs {visible(ratio.baseline)} "
        ).rstrip()

    def _tokens(self) -> Content:
        tokens = self.state.tokens
        if not tokens.known:
            return Content("")
        return Content(f"{short_count(tokens.input + tokens.cache_read)} in {short_count(tokens.output)} out tokens")

    def _throttle(self) -> Content:
        """Times taken now are slow: that is said before anything else of the machine."""
        reason = self.state.machine[-1].throttle if self.state.machine and self.state.ended is None else None
        return Content.styled(f"THROTTLED: {visible(reason)}", "bold $text-error") if reason else Content("")

    def _gpu(self) -> list[tuple[int, Content]]:
        """How busy and how fast the GPU is, then how full and how warm; "n/a" is for the Machine tab."""
        sample = self.state.machine[-1] if self.state.machine else MachineSampled()
        busy = [
            f"{sample.gpu_utilisation * 100:.0f}%" if sample.gpu_utilisation is not None else "",
            f"{sample.gpu_clock_mhz} MHz" if sample.gpu_clock_mhz is not None else "",
            f"{sample.gpu_power_w:.0f} W" if sample.gpu_power_w is not None else "",
        ]
        full = [
            size(sample.gpu_memory_used_bytes) if sample.gpu_memory_used_bytes is not None else "",
            f"{sample.gpu_temperature_c} °C" if sample.gpu_temperature_c is not None else "",
        ]
        wanted = self.state.session is not None and self.state.session.device.startswith("cuda")
        head = "GPU" if any((*busy, *full)) else "GPU n/a" if wanted and self.state.machine else ""
        return [(3, Content(" ".join(filter(None, (head, *busy))))), (6, Content(" ".join(filter(None, full))))]

    def _machine(self) -> Content:
        if not self.state.machine:
            return Content("")
        sample = self.state.machine[-1]
        if sample.gpu_name is None and sample.cpu_load is not None:
            return Content(f"CPU {sample.cpu_load:.1f} cores")
        if sample.gpu_name is None and sample.memory_used_bytes is not None:
            return Content(size(sample.memory_used_bytes))
        return Content("")
