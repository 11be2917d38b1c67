"""The Kernels tab: where the time goes, and how that is known."""

from collections.abc import Sequence

from textual.content import Content

from cuda_tui.evaluation.profile.names import shown
from cuda_tui.evaluation.profile.reading import first_look
from cuda_tui.evaluation.report import Ceiling, KernelRow, Occupancy, Profile
from cuda_tui.tui.render.building import heading
from cuda_tui.tui.render.table import Cell, Column, table
from cuda_tui.tui.render.text import plain
from cuda_tui.tui.render.units import percent, size, time_us

BAR = 8
IDLE_SHOWN = 3
_PARTS = " ▏▎▍▌▋▊▉█"

_COLUMNS = (
    Column(title="share", align="right"),
    Column(title="", drop=4),
    Column(title="time", align="right"),
    Column(title="calls", align="right", drop=7),
    Column(title="kernel or operator", flexible=True, least=22),
    Column(title="of roof", align="right", drop=3),
    Column(title="bound", drop=5),
    Column(title="occupancy", drop=6),
    Column(title="moved", align="right", drop=8),
    Column(title="waits on", drop=9),
    Column(title="evidence", drop=2),
)


def bar(share: float, width: int = BAR) -> str:
    """A share of one as a bar with eighths of a cell."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    whole, part = divmod(eighths, 8)
    return ("█" * whole + (_PARTS[part] if part else "")).ljust(width)


def kernel_lines(profiles: Sequence[Profile], width: int) -> list[Content]:
    """Both sides, the candidate first: what to look at first, the table, the time line, what it all rests on."""
    found: list[Content] = []
    for profile in sorted(profiles, key=lambda item: item.subject):
        if found:
            found.append(Content(""))
        found.append(heading(plain(profile.subject).capitalize(), _note(profile)))
        if look := first_look(profile):
            found.append(Content(plain(look)))
        if profile.rows:
            found.extend(table(_columns(profile), [_cells(row, _columns(profile)) for row in profile.rows], width))
        texts = [*_idle(profile), *_peaks(profile), *profile.notes]
        found.extend(Content.styled(plain(text), "$text-muted") for text in texts)
    return found


def _note(profile: Profile) -> str:
    """The heading's second half: the time of a call, the authored share, how busy the GPU is."""
    parts = [f"{time_us(profile.total_us)} a call"] if profile.total_us else []
    if any(row.authored for row in profile.rows) and profile.total_us:
        authored = sum(row.share for row in profile.rows if row.authored)
        parts.append(f"{percent(authored)} in authored kernels")
    if (line := profile.timeline) is not None:
        parts.append(f"{time_us(line.wall_us)} as called, GPU busy {percent(line.busy_share, 0)}")
        parts.append(f"{line.launches} launches")
    return ", ".join(parts)


def _columns(profile: Profile) -> list[Column]:
    """Without what no row knows: a column of dashes tells nothing."""
    empty = {
        "occupancy": all(row.occupancy is None for row in profile.rows),
        "waits on": all(row.counters is None or not row.counters.stalls for row in profile.rows),
        "of roof": all(row.roofline_share is None for row in profile.rows),
        "bound": not any(row.bound for row in profile.rows),
        "moved": all(row.bytes_moved is None for row in profile.rows),
    }
    return [column for column in _COLUMNS if not empty.get(column.title, False)]


def _cells(row: KernelRow, columns: Sequence[Column]) -> list[Cell]:
    name = shown(plain(row.name))
    stalls = row.counters.stalls if row.counters is not None else ()
    cells: dict[str, Cell] = {
        "share": percent(row.share) if row.total_us else "–",
        "": Content.styled(bar(row.share), "$text-success" if row.authored else "$text-primary"),
        "time": time_us(row.total_us) if row.total_us else "–",
        "calls": str(row.calls) if row.calls else "–",
        "kernel or operator": Content.assemble(
            (name, "bold" if row.authored else ""), ("  authored" if row.authored else "", "$text-success")
        ),
        "bound": row.bound or "–",
        "of roof": percent(row.roofline_share, 0) if row.roofline_share is not None else "–",
        "occupancy": _occupancy(row.occupancy),
        "moved": size(row.bytes_moved) if row.bytes_moved is not None else "–",
        "waits on": plain(f"{stalls[0].reason} {percent(stalls[0].share, 0)}") if stalls else "–",
        "evidence": Content.styled(plain(row.evidence), "$text-muted"),
    }
    return [cells[column.title] for column in columns]


def _occupancy(found: Occupancy | None) -> str:
    """`50% registers`: the theoretical one and what limits it."""
    if found is None:
        return "–"
    return plain(f"{percent(found.theoretical, 0)} {found.limiter}".rstrip())


def _idle(profile: Profile) -> list[str]:
    """The largest idle times between two pieces of work."""
    if profile.timeline is None:
        return []
    return [
        f"Idle {time_us(gap.us)} between {shown(gap.after, 24)} and {shown(gap.before, 24)}"
        for gap in profile.timeline.gaps[:IDLE_SHOWN]
    ]


def _peaks(profile: Profile) -> list[str]:
    parts = [_ceiling(item) for item in profile.ceilings]
    if not parts and profile.peak_bandwidth_gbs is not None:
        parts.append(f"{profile.peak_bandwidth_gbs:,.0f} GB/s")
    if not profile.ceilings and profile.peak_gflops is not None:
        parts.append(f"{profile.peak_gflops:,.0f} GFLOP/s")
    return [f"Roof measured here: {', '.join(parts)}"] if parts else []


def _ceiling(item: Ceiling) -> str:
    if item.name == "copy":
        return f"copy {item.value:,.0f} GB/s"
    return plain(f"{item.name} {item.value / 1e3:,.0f} TFLOP/s")
