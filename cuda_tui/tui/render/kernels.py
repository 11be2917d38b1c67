"""The Kernels tab: where the time goes, and how that is known."""

from collections.abc import Sequence

from textual.content import Content

from cuda_tui.evaluation.report import KernelRow, Profile
from cuda_tui.tui.render.building import heading
from cuda_tui.tui.render.table import Cell, Column, table
from cuda_tui.tui.render.text import plain
from cuda_tui.tui.render.units import percent, size, time_us

BAR = 8
_PARTS = " ▏▎▍▌▋▊▉█"

_COLUMNS = (
    Column(title="share", align="right"),
    Column(title=""),
    Column(title="time", align="right"),
    Column(title="calls", align="right", drop=3),
    Column(title="kernel or operator", flexible=True, least=22),
    Column(title="bound", drop=5),
    Column(title="of roof", align="right", drop=4),
    Column(title="moved", align="right", drop=6),
    Column(title="evidence", drop=2),
)


def bar(share: float, width: int = BAR) -> str:
    """A share of one as a bar with eighths of a cell."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    whole, part = divmod(eighths, 8)
    return ("█" * whole + (_PARTS[part] if part else "")).ljust(width)


def kernel_lines(profiles: Sequence[Profile], width: int) -> list[Content]:
    """Both sides, the candidate first."""
    found: list[Content] = []
    for profile in sorted(profiles, key=lambda item: item.subject):
        if found:
            found.append(Content(""))
        authored = sum(row.share for row in profile.rows if row.authored)
        note = f"{time_us(profile.total_us)} a call"
        if any(row.authored for row in profile.rows):
            note += f", {percent(authored)} in authored kernels"
        found.append(heading(plain(profile.subject).capitalize(), note))
        found.extend(table(_COLUMNS, [_row(row) for row in profile.rows], width))
        found.extend(Content.styled(plain(text), "$text-muted") for text in [*_peaks(profile), *profile.notes])
    return found


def _row(row: KernelRow) -> list[Cell]:
    name = plain(row.name)
    return [
        percent(row.share),
        Content.styled(bar(row.share), "$text-success" if row.authored else "$text-primary"),
        time_us(row.total_us),
        str(row.calls),
        Content.assemble(
            (name, "bold" if row.authored else ""), ("  authored" if row.authored else "", "$text-success")
        ),
        row.bound or "–",
        percent(row.roofline_share, 0) if row.roofline_share is not None else "–",
        size(row.bytes_moved) if row.bytes_moved is not None else "–",
        Content.styled(plain(row.evidence), "$text-muted"),
    ]


def _peaks(profile: Profile) -> list[str]:
    parts: list[str] = []
    if profile.peak_bandwidth_gbs is not None:
        parts.append(f"{profile.peak_bandwidth_gbs:,.0f} GB/s")
    if profile.peak_gflops is not None:
        parts.append(f"{profile.peak_gflops:,.0f} GFLOP/s")
    return [f"Roof used: {', '.join(parts)}"] if parts else []
