"""The Compile tab's upper half: stages, the latest build, its diagnostics and what the kernels use."""

from collections.abc import Sequence

from textual.content import Content

from cuda_tui.evaluation.report import BuildReport, Diagnostic
from cuda_tui.state.model import SliceProgress, Stage, TrialProgress
from cuda_tui.tui.render.table import Cell, Column, table
from cuda_tui.tui.render.text import plain
from cuda_tui.tui.render.units import clock, size, time_us, took

_SEVERITY = {"error": "$text-error", "warning": "$text-warning", "note": "$text-muted"}
SHOWN_DIAGNOSTICS = 12


def heading(text: str, note: str = "") -> Content:
    """The title of a part of a tab."""
    return Content.assemble((text, "bold $text-primary"), (f"  {note}" if note else "", "$text-muted"))


def stage_lines(stages: Sequence[Stage], now: float) -> list[Content]:
    """One line for each stage of the evaluation under way."""
    found: list[Content] = []
    for stage in stages:
        running = stage.seconds is None
        sign, style = ("▸", "$text-primary bold") if running else ("✓", "$text-success")
        duration = clock(now - stage.started_at) if stage.seconds is None else took(stage.seconds)
        found.append(
            Content.assemble(
                (f"{sign} ", style),
                (f"{plain(stage.name):<10}", "bold" if running else ""),
                (f"{duration:>8}", "$text-muted"),
                f"  {plain(stage.summary or stage.detail)}",
            )
        )
    return found


def progress_lines(trials: Sequence[TrialProgress], slices: Sequence[SliceProgress]) -> list[Content]:
    """What the running verification and measurement have found so far."""
    found = [
        Content.assemble(
            ("  ✓ " if trial.passed else "  ✗ ", "$text-success" if trial.passed else "$text-error"),
            plain(trial.name),
            (f"  {plain(trial.detail)}" if trial.detail else "", "$text-muted"),
        )
        for trial in trials
    ]
    if slices:
        columns = [Column(title="side"), Column(title="process", align="right"), Column(title="median", align="right")]
        rows: list[list[Cell]] = [
            [plain(s.side), f"{s.process} of {s.processes}", time_us(s.median_us)] for s in slices
        ]
        found.extend(Content.assemble("  ", line) for line in table(columns, rows, 60))
    return found


def build_lines(build: BuildReport, width: int) -> list[Content]:
    """The latest build: outcome, first distinct errors on top, resources of each kernel."""
    word, style = ("built", "$text-success") if build.succeeded else ("failed", "$text-error")
    counts = [f"{len(build.compiled)} compiled", f"{len(build.cached)} cached"]
    if build.errors:
        counts.append(f"{len(build.errors)} distinct error{'s' if len(build.errors) > 1 else ''}")
    if build.warnings:
        counts.append(f"{build.warnings} warning{'s' if build.warnings > 1 else ''}")
    found = [
        Content.assemble(
            ("Build ", "bold $text-primary"),
            (word, f"bold {style}"),
            f"  {took(build.seconds)}  for {plain(build.target)}",
            (f"  {', '.join(counts)}", "$text-muted"),
        ),
        Content.styled(plain(build.toolchain), "$text-muted"),
    ]
    if build.diagnostics:
        found.append(Content(""))
    for item in build.diagnostics[:SHOWN_DIAGNOSTICS]:
        found.extend(_diagnostic(item))
    left = len(build.diagnostics) - SHOWN_DIAGNOSTICS
    if left > 0:
        found.append(Content.styled(f"{left} more in the log", "$text-muted"))
    if build.resources:
        found.extend([Content(""), heading("Kernel resources", "as ptxas reports them"), *_resources(build, width)])
    if build.vectorised:
        found.extend([Content(""), heading("Vectorisation", "as the compiler reports it")])
        found.extend(Content(plain(note)) for note in build.vectorised[:20])
    if build.log:
        found.extend([Content(""), Content.styled(f"Whole log: {plain(build.log)}", "$text-muted")])
    return found


def _diagnostic(item: Diagnostic) -> list[Content]:
    style = _SEVERITY[item.severity]
    place = item.place if item.column is None else f"{item.place}:{item.column}"
    found = [
        Content.assemble((f"{item.severity} ", f"bold {style}"), (plain(place), "bold"), "  ", plain(item.message)),
    ]
    found.extend(Content.styled(f"    {plain(line)}", "$text-muted") for line in item.context)
    return found


def _resources(build: BuildReport, width: int) -> list[Content]:
    columns = [
        Column(title="kernel", flexible=True, least=20),
        Column(title="arch"),
        Column(title="registers", align="right"),
        Column(title="shared", align="right"),
        Column(title="stack", align="right", drop=1),
        Column(title="spills st/ld", align="right"),
    ]
    rows: list[list[Cell]] = []
    for item in build.resources:
        spills = item.spill_store_bytes + item.spill_load_bytes
        text = f"{size(item.spill_store_bytes)} / {size(item.spill_load_bytes)}" if spills else "none"
        rows.append(
            [
                plain(item.kernel),
                plain(item.architecture),
                str(item.registers),
                size(item.static_shared_bytes),
                size(item.stack_bytes),
                Content.styled(text, "$text-warning" if spills else "$text-muted"),
            ]
        )
    return table(columns, rows, width)
