"""The Speedup tab's table, and what the measurement promises."""

from collections.abc import Sequence

from textual.content import Content

from cuda_tui.evaluation.conditions import Side, clock_text, conditions_text, sides
from cuda_tui.evaluation.report import Measured, NotMeasured, Ratio, Timing, Verdict
from cuda_tui.state.model import Candidate
from cuda_tui.tui.render.blocks import outcome_style, verdict_style
from cuda_tui.tui.render.building import heading
from cuda_tui.tui.render.table import Cell, Column, table
from cuda_tui.tui.render.text import plain
from cuda_tui.tui.render.units import interval, percent, time_us, times
from cuda_tui.words import counted

_COLUMNS = (
    Column(title="no.", align="right"),
    Column(title="verdict"),
    Column(title="outcome", drop=3),
    Column(title="candidate", align="right"),
    Column(title="eager", align="right", drop=5),
    Column(title="compile", align="right", drop=4),
    Column(title="spread", align="right", drop=6),
    Column(title="n", align="right", drop=7),
    Column(title="vs compile [95%]", align="right"),
    Column(title="vs eager [95%]", align="right", drop=2),
    Column(title="what changed", flexible=True, least=14, drop=8),
)


def fastest_compile(measured: Measured) -> Timing | None:
    """The fastest valid baseline that is not eager."""
    others = [timing for timing in measured.baselines if timing.name != "eager"]
    return min(others, key=lambda timing: timing.median_us) if others else None


def compile_ratio(measured: Measured) -> Ratio | None:
    """The ratio to the fastest compile mode, if one is valid."""
    fastest = fastest_compile(measured)
    return measured.ratio_to(fastest.name) if fastest else None


def speed_table(candidates: Sequence[Candidate], best: Candidate | None, width: int) -> list[Content]:
    """Every evaluated candidate, the newest last."""
    rows = [_row(candidate, best) for candidate in candidates]
    return table(_COLUMNS, rows, width)


def _row(candidate: Candidate, best: Candidate | None) -> list[Cell]:
    report = candidate.report
    is_best = best is not None and best.number == candidate.number
    number = Content.styled(f"{'▸' if is_best else ' '}{candidate.number}", "bold $text-success" if is_best else "")
    verdict = Content.styled(report.code.value if report.code else report.verdict.value, verdict_style(report))
    measured = candidate.measured
    label = plain(candidate.label)
    if measured is None:
        return [number, verdict, "", *[Content.styled("–", "$text-disabled")] * 7, label]
    eager = next((timing for timing in measured.baselines if timing.name == "eager"), None)
    compiled = fastest_compile(measured)
    return [
        number,
        verdict,
        Content.styled(measured.headline.outcome.value, outcome_style(measured.headline.outcome)),
        time_us(measured.candidate.median_us),
        time_us(eager.median_us) if eager else "n/a",
        time_us(compiled.median_us) if compiled else "n/a",
        f"±{percent(measured.candidate.spread)}",
        str(len(measured.candidate.process_medians_us)),
        _ratio(compile_ratio(measured)),
        _ratio(measured.ratio_to("eager")),
        label,
    ]


def _ratio(ratio: Ratio | None) -> Content:
    if ratio is None:
        return Content("n/a")
    return Content.assemble((times(ratio.value), f"bold {outcome_style(ratio.outcome)}"), f" {interval(ratio)}")


_SIDES = (
    Column(title="side", flexible=True, least=14),
    Column(title="time", align="right"),
    Column(title="spread", align="right", drop=2),
    Column(title="ratio [95%]", align="right"),
    Column(title="outcome", drop=3),
    Column(title="as called", align="right", drop=1),
)


def side_lines(measured: Measured, number: int, width: int) -> list[Content]:
    """Candidate and baselines of one measurement: the certified clock first, wall time as called beside it."""
    fastest = measured.headline.baseline
    rows = [_side(side, is_fastest=side.name == fastest) for side in sides(measured)]
    shown = _SIDES if measured.wall else _SIDES[:-1]
    cells = [row[: len(shown)] for row in rows]
    return [heading(f"Candidate {number}", clock_text(measured)), *table(shown, cells, width), Content("")]


def _side(side: Side, *, is_fastest: bool) -> list[Cell]:
    none = Content.styled("–", "$text-disabled")
    name = Content.styled(plain(side.name), "bold" if is_fastest or side.name == "candidate" else "")
    return [
        name,
        time_us(side.device.median_us) if side.device else none,
        f"±{percent(side.device.spread)}" if side.device else none,
        _ratio(side.ratio) if side.ratio else none,
        Content.styled(side.ratio.outcome.value, outcome_style(side.ratio.outcome)) if side.ratio else none,
        Content.styled(time_us(side.wall.median_us), "$text-muted") if side.wall else none,
    ]


def _conditions(measured: Measured) -> Content:
    """What the GPU did meanwhile; a held-down clock is not overlooked."""
    gpu = measured.gpu
    held_down = gpu is not None and bool(gpu.throttle)
    return Content.styled(plain(conditions_text(gpu)), "bold $text-warning" if held_down else "")


def measurement_lines(candidates: Sequence[Candidate], width: int) -> list[Content]:
    """How the latest measured candidate was timed, and what was left out."""
    latest = next((item for item in reversed(candidates) if item.measured is not None), None)
    if latest is None or latest.measured is None:
        last = candidates[-1].report.performance if candidates else None
        reason = plain(last.reason) if isinstance(last, NotMeasured) else ""
        return [Content.styled(reason, "$text-muted")] if reason else []
    measured = latest.measured
    on_gpu = measured.clock != "wall"
    found = [Content(""), *(side_lines(measured, latest.number, width) if on_gpu else ())]
    found.append(heading("How it was measured", f"candidate {latest.number}"))
    found.append(Content(f"{plain(measured.device)}{': ' if on_gpu else '. '}{plain(measured.method)}"))
    if on_gpu:
        found.append(_conditions(measured))
    if measured.headline.baseline != "eager":
        found.append(
            Content(f"The headline is against {plain(measured.headline.baseline)}, the fastest valid baseline.")
        )
    found.extend(
        Content.assemble(("Not available: ", "$text-warning"), f"{plain(item.name)}: {plain(item.reason)}")
        for item in measured.unavailable
    )
    found.extend(Content(f"{_capital(note)}.") for note in measured.notes)
    dropped = measured.candidate.dropped_slices
    if dropped:
        found.append(Content(f"{dropped} of {measured.candidate.slices} slices dropped as disturbed."))
    if measured.foreign_load is not None:
        found.append(Content(f"Other processes kept {measured.foreign_load:.1f} cores busy meanwhile."))
    if measured.all_threads:
        shown = ", ".join(f"{plain(timing.name)} {time_us(timing.median_us)}" for timing in measured.all_threads)
        found.append(Content.styled(f"With all threads, not certified: {shown}.", "$text-muted"))
    found.append(Content(f"Milestone {latest.report.milestone.value}: {_MILESTONES[latest.report.milestone.value]}."))
    return found


def _capital(text: str) -> str:
    return plain(text[:1].upper() + text[1:])


_MILESTONES = {
    "-1": "not correct",
    "1": "correct",
    "2": "at least 5% faster than eager",
    "3": "at least 5% faster than eager and than torch.compile",
}


def counts_line(candidates: Sequence[Candidate]) -> Content:
    """How many were evaluated, and what became of them."""
    numbers = {verdict: sum(item.report.verdict is verdict for item in candidates) for verdict in Verdict}
    words = [f"{count} {verdict.value.lower()}" for verdict, count in numbers.items() if count]
    return heading(counted(len(candidates), "candidate"), ", ".join(words))
