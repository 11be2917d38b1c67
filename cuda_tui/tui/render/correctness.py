"""The Correctness tab: every trial and output of one candidate, compared with the fp64 reference."""

from textual.content import Content

from cuda_tui.evaluation.report import OutputCheck, Trial, VerifyReport
from cuda_tui.records import as_float
from cuda_tui.state.model import Candidate
from cuda_tui.tui.render.blocks import verdict_style, verdict_word
from cuda_tui.tui.render.building import heading
from cuda_tui.tui.render.table import Cell, Column, table
from cuda_tui.tui.render.text import plain
from cuda_tui.tui.render.units import element, scientific, took

# Block maxima of the error over its limit: up to 1 is inside.
_SCALE: tuple[tuple[float, str, str], ...] = (
    (0.1, "·", "$text-success"),
    (1.0, "░", "$text-success"),
    (10.0, "▒", "$text-warning"),
    (100.0, "▓", "$text-error"),
    (float("inf"), "█", "$text-error"),
)
_LEGEND = ("under 0.1", "inside the limit", "up to 10x", "up to 100x", "beyond")

_COLUMNS = (
    Column(title="trial", flexible=True),
    Column(title="output"),
    Column(title="dtype", drop=3),
    Column(title="shape", drop=2),
    Column(title="error", align="right"),
    Column(title="limit", align="right"),
    Column(title="eager's", align="right", drop=1),
    Column(title="max abs", align="right", drop=4),
    Column(title=""),
)


def correctness_lines(candidate: Candidate, width: int) -> list[Content]:
    """The whole tab for one candidate."""
    report = candidate.report
    found = [
        Content.assemble(
            (f"Candidate {candidate.number}", "bold $text-primary"),
            f"  {plain(candidate.label)}  " if candidate.label else "  ",
            (verdict_word(report), f"bold {verdict_style(report)}"),
        ),
        Content(plain(report.message)),
        Content(""),
    ]
    found.extend(
        Content.assemble(("! ", "$text-warning"), (f"{plain(flag.code)}  ", "bold"), plain(flag.message))
        for flag in report.flags
    )
    if report.verify is None:
        return [*found, Content.styled("Nothing was compared: the evaluation ended before it.", "$text-muted")]
    return [*found, *_verification(report.verify, width)]


def _verification(verify: VerifyReport, width: int) -> list[Content]:
    passed = sum(trial.passed for trial in verify.trials)
    found = [
        heading(
            f"{passed} of {len(verify.trials)} trials passed",
            f"{verify.tensors_compared} tensors against {plain(verify.reference_dtype)}, {took(verify.seconds)}",
        ),
        *table(_COLUMNS, [_row(trial, check) for trial in verify.trials for check in trial.checks], width),
    ]
    if verify.not_compared:
        found.append(Content.styled("Not compared: " + plain(", ".join(verify.not_compared)), "$text-warning"))
    found += [Content.styled(plain(line), "$text-muted") for line in verify.form_lines]
    found.append(Content.styled("error = ‖c−r‖ / ‖r−mean(r)‖ against the reference r", "$text-muted"))
    for trial in verify.trials:
        if not trial.passed:
            found.extend(_failure(trial, width))
    return found


def _row(trial: Trial, check: OutputCheck) -> list[Cell]:
    style = "$text-success" if check.passed else "$text-error"
    return [
        plain(trial.name),
        plain(check.output),
        plain(check.dtype),
        "×".join(str(length) for length in check.shape) or "scalar",
        Content.styled(scientific(check.error), style),
        scientific(check.limit),
        "n/a" if check.eager_error is None else scientific(check.eager_error),
        scientific(check.max_abs_error),
        Content.styled("✓" if check.passed else "✗", style),
    ]


def _failure(trial: Trial, width: int) -> list[Content]:
    found = [Content(""), Content.assemble((f"✗ {plain(trial.name)}", "bold $text-error"), f"  {plain(trial.reason)}")]
    for check in trial.checks:
        if check.passed:
            continue
        if check.reason:
            found.append(Content(f"  {plain(check.output)}: {plain(check.reason)}"))
        if check.nonfinite_mismatches:
            found.append(Content(f"  {check.nonfinite_mismatches:,} elements are NaN or infinite on one side only"))
        if check.worst:
            found.extend(Content.assemble("  ", line) for line in _worst(check, width - 2))
        if check.error_map:
            found.extend([Content(""), *_map(check, width)])
    return found


def _worst(check: OutputCheck, width: int) -> list[Content]:
    columns = (
        Column(title="worst element"),
        Column(title="expected", align="right"),
        Column(title="actual", align="right"),
        Column(title="difference", align="right"),
    )
    rows: list[list[Cell]] = [
        [
            f"{plain(check.output)}[{', '.join(str(at) for at in item.index)}]",
            element(item.expected),
            Content.styled(element(item.actual), "$text-error"),
            f"{as_float(item.actual) - as_float(item.expected):+.3g}",
        ]
        for item in check.worst
    ]
    return table(columns, rows, width)


def _map(check: OutputCheck, width: int) -> list[Content]:
    """Where in the tensor the error lies: rows by columns of blocks, each its worst element."""
    columns = max(len(row) for row in check.error_map)
    repeat = 2 if columns * 2 + 4 <= width else 1
    found = [Content.styled(f"  Where {plain(check.output)} is wrong (worst error of each block)", "$text-muted")]
    for row in check.error_map:
        cells = [_block(value, repeat) for value in row]
        found.append(Content.assemble("  ", ("▏", "$text-muted"), *cells, ("▕", "$text-muted")))
    legend = [
        Content.assemble((sign * 2, style), f" {words}")
        for (_, sign, style), words in zip(_SCALE, _LEGEND, strict=True)
    ]
    return [*found, Content.assemble("  ", Content("   ").join(legend))]


def _block(value: float, repeat: int) -> tuple[str, str]:
    sign, style = next((sign, style) for limit, sign, style in _SCALE if value <= limit or limit == float("inf"))
    return (sign * repeat, style)
