"""A worker's profile as rows: share of time, what is the candidate's own, and the evidence behind each row."""

from typing import Any, Literal

from cuda_tui.evaluation.report import KernelRow, Profile

ROWS = 20


def to_profile(
    found: dict[str, Any], *, subject: Literal["reference", "candidate"], device: str, notes: tuple[str, ...] = ()
) -> Profile:
    """Rows from `worker.profiling.operators`. On a GPU without device events no percentages are given."""
    namespace = found.get("namespace")
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
                name=row["name"],
                calls=max(1, round(row["calls"])),
                total_us=row[key],
                share=row[key] / total if total else 0.0,
                authored=bool(namespace) and row["name"].startswith(f"{namespace}::"),
            )
            for row in rows[:ROWS]
        ),
        total_us=total,
        notes=notes,
        peak_bandwidth_gbs=ceilings.get("bandwidth_gbs"),
        peak_gflops=ceilings.get("gflops"),
    )


def authored_share(profile: Profile) -> float:
    """The part of the profiled time spent in the candidate's own operators."""
    return sum(row.share for row in profile.rows if row.authored)
