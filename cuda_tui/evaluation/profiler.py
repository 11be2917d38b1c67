"""A worker's profile as rows: share of time, what is the candidate's own, and the evidence behind each row."""

from typing import Any, Literal

import msgspec

from cuda_tui.evaluation.profile import work
from cuda_tui.evaluation.profile.names import OwnKernels
from cuda_tui.evaluation.profile.rows import gpu_profile
from cuda_tui.evaluation.report import BuildReport, KernelRow, Profile

ROWS = 20


def to_profile(
    found: dict[str, Any],
    *,
    subject: Literal["reference", "candidate"],
    device: str,
    notes: tuple[str, ...] = (),
    build: BuildReport | None = None,
) -> Profile:
    """Rows from `worker.profiling.operators`: kernels on a GPU, operators on the CPU.

    On a GPU a kernel is the candidate's own where `build` made it; without device events no percentages are given.
    """
    if device.startswith("cuda"):
        profile = gpu_profile(found, subject=subject, own=OwnKernels.of(build))
        return msgspec.structs.replace(profile, notes=(*notes, *profile.notes))
    own = tuple(f"{name}::" for name in found.get("namespaces", ()))
    rows = [row for row in found["rows"] if row["self_us"] > 0]
    total = sum(row["self_us"] for row in rows)
    ceilings = found.get("ceilings", {})
    return Profile(
        subject=subject,
        rows=tuple(
            KernelRow(
                name=_readable(row["name"], own),
                calls=max(1, round(row["calls"])),
                total_us=row["self_us"],
                share=row["self_us"] / total if total else 0.0,
                authored=row["name"].startswith(own) if own else False,
            )
            for row in rows[:ROWS]
        ),
        total_us=total,
        notes=(*notes, "CPU operators; no GPU activity recorded"),
        peak_bandwidth_gbs=ceilings.get("bandwidth_gbs"),
        peak_gflops=ceilings.get("gflops"),
    )


def _readable(name: str, own: tuple[str, ...]) -> str:
    """An operator of the candidate's by the name it is called by; its real namespace is the build's hash."""
    return f"cuda_extension::{name.partition('::')[2]}" if own and name.startswith(own) else name


def authored_share(profile: Profile) -> float:
    """The part of the profiled time spent in the candidate's own operators."""
    return sum(row.share for row in profile.rows if row.authored)


def with_roofline(profile: Profile, trace: dict[str, Any]) -> Profile:
    """Rows with the bytes and FLOP of the traced operators of that name, their bound, and the share of it reached.

    The bound is max(bytes / measured copy bandwidth, FLOP / measured fp32 matrix rate); bytes count each operand and
    result once, so data that stays in cache can reach more than the whole of it.
    """
    if not profile.peak_bandwidth_gbs or not profile.peak_gflops:
        return profile
    known = work.by_operator(trace, {_operator(row.name): row.total_us for row in profile.rows})
    rows = tuple(_with_bound(row, known, profile.peak_bandwidth_gbs, profile.peak_gflops) for row in profile.rows)
    totals = trace["totals"]
    moved = totals["bytes_read"] + totals["bytes_written"]
    outer = work.outer_bytes(trace)
    note = (
        f"operators move {moved / 1e6:.1f} MB; inputs, parameters and outputs are {outer / 1e6:.1f} MB, which at "
        f"{profile.peak_bandwidth_gbs:.1f} GB/s takes {outer / profile.peak_bandwidth_gbs / 1e3:,.0f} µs; "
        f"{totals['flop'] / 1e6:,.0f} MFLOP at {profile.peak_gflops:.0f} GFLOP/s take "
        f"{totals['flop'] / profile.peak_gflops / 1e3:,.0f} µs (ceilings measured here, one thread)"
    )
    return msgspec.structs.replace(profile, rows=rows, notes=(*profile.notes, note))


def _with_bound(row: KernelRow, known: dict[str, work.Work], bandwidth_gbs: float, gflops: float) -> KernelRow:
    found = known.get(_operator(row.name))
    if found is None or row.authored or row.total_us <= 0:
        return row
    memory_us, compute_us = found.bytes_moved / bandwidth_gbs / 1e3, found.flop / gflops / 1e3
    return msgspec.structs.replace(
        row,
        bytes_moved=found.bytes_moved,
        flop=found.flop,
        bound="memory" if memory_us >= compute_us else "compute",
        roofline_share=max(memory_us, compute_us) / row.total_us,
    )


def _operator(name: str) -> str:
    """Without namespace, and as it is called when it does not work in place."""
    return name.removeprefix("aten::").rstrip("_")
