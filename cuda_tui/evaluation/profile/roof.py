"""How near the roof a GPU profile's kernels come: this device's measured ceilings over what must be done."""

from typing import Any

import msgspec

from cuda_tui.evaluation.profile import work
from cuda_tui.evaluation.profile.ceilings import matrix_rate, rate
from cuda_tui.evaluation.report import Ceiling, KernelRow, Profile


def with_roof(
    profile: Profile, ceilings: tuple[Ceiling, ...], *, trace: dict[str, Any], tf32: bool, l2_bytes: int
) -> Profile:
    """The call's floor from the trace, and each kernel's share of the roof where its bytes or FLOP are known.

    Bytes are ncu's (read from device memory with caches flushed before, and written) for the launches it measured,
    over ncu's own time of them; else the trace's, each operand and result once, where one kernel does all the work of
    an operator.
    """
    copy = rate(ceilings, "copy")
    profile = with_ceilings(profile, ceilings, l2_bytes=l2_bytes)
    if copy is None:
        return profile
    alone = _kernels_alone(profile)
    times = {alone[row.name]: row.total_us for row in profile.rows if row.name in alone}
    known = work.by_operator(trace, times)
    rows = []
    for row in profile.rows:
        found = known.get(alone.get(row.name, ""))
        if found is not None and row.counters is None and row.total_us > 0:
            row = _from_trace(row, found, copy, _flop_us(found.flop_by_dtype, ceilings, tf32=tf32))
        rows.append(row)
    bytes_us = work.outer_bytes(trace) / copy / 1e3
    flop_us = _flop_us(work.flop_by_dtype(trace), ceilings, tf32=tf32)
    return msgspec.structs.replace(
        profile,
        rows=tuple(rows),
        floor_us=max(bytes_us, flop_us) or None,
        floor_bound="memory" if bytes_us >= flop_us else "compute",
    )


def with_ceilings(profile: Profile, ceilings: tuple[Ceiling, ...], *, l2_bytes: int) -> Profile:
    """The ceilings, and the roof of each kernel whose bytes ncu counted."""
    copy = rate(ceilings, "copy")
    rows = tuple(_from_counters(row, copy, l2_bytes) if copy else row for row in profile.rows)
    return msgspec.structs.replace(
        profile, rows=rows, ceilings=ceilings, peak_bandwidth_gbs=copy, peak_gflops=rate(ceilings, "fp32")
    )


def _flop_us(flop: dict[str, int], ceilings: tuple[Ceiling, ...], *, tf32: bool) -> float:
    """The least time of FLOP by type, at the rate of matrix products of that type."""
    peaks = {dtype: matrix_rate(ceilings, dtype, tf32=tf32) for dtype in flop}
    return sum(count / peak / 1e3 for dtype, count in flop.items() if (peak := peaks[dtype]))


def _from_counters(row: KernelRow, copy_gbs: float, l2_bytes: int) -> KernelRow:
    counters = row.counters
    moved = counters.moved_bytes(l2_bytes) if counters is not None else None
    if counters is None or not moved or counters.time_us <= 0:
        return row
    memory = moved / copy_gbs / 1e3 / counters.time_us
    compute = counters.compute_share or 0.0
    return msgspec.structs.replace(
        row,
        bytes_moved=moved,
        bound="memory" if memory >= compute else "compute",
        roofline_share=max(memory, compute),
    )


def _from_trace(row: KernelRow, found: work.Work, copy_gbs: float, flop_us: float) -> KernelRow:
    memory_us = found.bytes_moved / copy_gbs / 1e3
    return msgspec.structs.replace(
        row,
        bytes_moved=found.bytes_moved,
        flop=found.flop or None,
        bound="memory" if memory_us >= flop_us else "compute",
        roofline_share=max(memory_us, flop_us) / row.total_us,
        evidence=f"{row.evidence}, trace",
    )


def _kernels_alone(profile: Profile) -> dict[str, str]:
    """Kernels that are the only ones of their operator: name to the operator's name without its namespace."""
    names: dict[str, list[str]] = {}
    for row in profile.rows:
        if row.operator.startswith("aten::") and not row.authored:
            names.setdefault(row.operator.removeprefix("aten::").rstrip("_"), []).append(row.name)
    return {found[0]: operator for operator, found in names.items() if len(found) == 1}
