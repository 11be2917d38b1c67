"""A worker's profile as rows: share of time, what is the candidate's own, and the evidence behind each row."""

from typing import Any, Literal

import msgspec

from cuda_tui.evaluation.report import KernelRow, Profile

ROWS = 20
SAME_WORK = {"linear": ("mm", "addmm", "bmm"), "matmul": ("mm", "bmm"), "conv2d": ("convolution",)}


def to_profile(
    found: dict[str, Any], *, subject: Literal["reference", "candidate"], device: str, notes: tuple[str, ...] = ()
) -> Profile:
    """Rows from `worker.profiling.operators`. On a GPU without device events no percentages are given."""
    own = tuple(f"{name}::" for name in found.get("namespaces", ()))
    on_gpu = device.startswith("cuda")
    notes = (*notes, *(() if on_gpu else ("CPU operators; no GPU activity recorded",)))
    if on_gpu and not found["device_events"]:
        return Profile(subject=subject, rows=(), total_us=0.0, notes=(*notes, "no GPU activity recorded"))
    key = "device_us" if on_gpu else "self_us"
    rows = [row for row in found["rows"] if row[key] > 0]
    total = sum(row[key] for row in rows)
    ceilings = found.get("ceilings", {})
    return Profile(
        subject=subject,
        rows=tuple(
            KernelRow(
                name=_readable(row["name"], own),
                calls=max(1, round(row["calls"])),
                total_us=row[key],
                share=row[key] / total if total else 0.0,
                authored=row["name"].startswith(own) if own else False,
            )
            for row in rows[:ROWS]
        ),
        total_us=total,
        notes=notes,
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
    work = _work_by_operator(trace)
    rows = tuple(_with_bound(row, work, profile.peak_bandwidth_gbs, profile.peak_gflops) for row in profile.rows)
    totals = trace["totals"]
    moved = totals["bytes_read"] + totals["bytes_written"]
    outer = _outer_bytes(trace)
    note = (
        f"operators move {moved / 1e6:.1f} MB; inputs, parameters and outputs are {outer / 1e6:.1f} MB, which at "
        f"{profile.peak_bandwidth_gbs:.1f} GB/s takes {outer / profile.peak_bandwidth_gbs / 1e3:,.0f} µs; "
        f"{totals['flop'] / 1e6:,.0f} MFLOP at {profile.peak_gflops:.0f} GFLOP/s take "
        f"{totals['flop'] / profile.peak_gflops / 1e3:,.0f} µs (ceilings measured here, one thread)"
    )
    return msgspec.structs.replace(profile, rows=rows, notes=(*profile.notes, note))


def _work_by_operator(trace: dict[str, Any]) -> dict[str, tuple[int, int]]:
    work: dict[str, tuple[int, int]] = {}
    for node in trace["nodes"]:
        name = node["op"].split(".")[1]
        for alias in (name, *SAME_WORK.get(name, ())):
            bytes_moved, flop = work.get(alias, (0, 0))
            work[alias] = (bytes_moved + node["bytes_read"] + node["bytes_written"], flop + node["flop"])
    return work


def _with_bound(row: KernelRow, work: dict[str, tuple[int, int]], bandwidth_gbs: float, gflops: float) -> KernelRow:
    found = work.get(row.name.removeprefix("aten::").rstrip("_"))
    if found is None or row.authored or row.total_us <= 0:
        return row
    memory_us, compute_us = found[0] / bandwidth_gbs / 1e3, found[1] / gflops / 1e3
    return msgspec.structs.replace(
        row,
        bytes_moved=found[0],
        flop=found[1],
        bound="memory" if memory_us >= compute_us else "compute",
        roofline_share=max(memory_us, compute_us) / row.total_us,
    )


def _outer_bytes(trace: dict[str, Any]) -> int:
    """Bytes of inputs, parameters and results: what any version has to move."""
    produced = {node["name"]: node["outputs"][0]["bytes"] for node in trace["nodes"] if node["outputs"]}
    given: int = sum(item.get("bytes", 0) for key in ("inputs", "parameters") for item in trace[key])
    return int(given + sum(produced.get(name, 0) for name in _references(trace["outputs"])))


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["ref"]] if isinstance(value.get("ref"), str) else []
        return own + [name for item in value.values() for name in _references(item)]
    if isinstance(value, list):
        return [name for item in value for name in _references(item)]
    return []
