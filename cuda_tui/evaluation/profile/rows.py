"""A GPU profile's rows from a worker's account: whose kernel it is, its occupancy, and how near the roof it comes."""

from typing import Any, Literal

import msgspec

from cuda_tui.evaluation.profile.names import OwnKernels, plain
from cuda_tui.evaluation.profile.ncu import Launch
from cuda_tui.evaluation.profile.occupancy import occupancy
from cuda_tui.evaluation.report import Gap, KernelResources, KernelRow, Occupancy, Profile, Timeline

ROWS = 20
SILENT = "no GPU activity recorded"


def gpu_profile(found: dict[str, Any], *, subject: Literal["reference", "candidate"], own: OwnKernels) -> Profile:
    """Kernels by device time, and the time line. Without device events there are no rows and no percentages."""
    kernels = [row for row in found.get("kernels", ()) if row["device_us"] > 0]
    if not found["device_events"] and not kernels:
        return Profile(subject=subject, rows=(), total_us=0.0, notes=(SILENT,))
    total = sum(row["device_us"] for row in kernels)
    seen, device = found["timeline"], found.get("device") or {}
    return Profile(
        subject=subject,
        rows=tuple(_row(row, total, own, device) for row in kernels[:ROWS]),
        total_us=total,
        timeline=Timeline(
            wall_us=seen["wall_us"],
            busy_us=seen["busy_us"],
            launches=seen["launches"],
            copies=seen["copies"],
            copy_us=seen["copy_us"],
            gaps=tuple(Gap(after=gap["after"], before=gap["before"], us=gap["us"]) for gap in seen["gaps"]),
        ),
    )


def _row(row: dict[str, Any], total: float, own: OwnKernels, device: dict[str, Any]) -> KernelRow:
    return KernelRow(
        name=row["name"],
        operator=row["operator"],
        calls=max(1, round(row["calls"])),
        total_us=row["device_us"],
        share=row["device_us"] / total,
        authored=row["name"] in own,
        grid=row["grid"] or None,
        block=row["block"] or None,
        registers=row["registers"] or None,
        shared_bytes=row["shared_bytes"] if row["block"] else None,
        occupancy=_occupancy(row, device),
    )


def _occupancy(row: dict[str, Any], device: dict[str, Any]) -> Occupancy | None:
    if not row["block"] or not row["registers"] or not device:
        return None
    return occupancy(
        tuple(device["capability"]),
        threads=row["block"],
        registers=row["registers"],
        shared_bytes=row["shared_bytes"],
        grid=row["grid"],
        sms=device["sms"],
    )


# ---- ncu's counters beside the times


def with_counters(profile: Profile, launches: tuple[Launch, ...]) -> Profile:
    """Rows with the counters of the launch of the same kernel."""
    by_name = {plain(launch.kernel): launch for launch in launches}
    rows = []
    for row in profile.rows:
        launch = by_name.get(plain(row.name))
        if launch is not None:
            row = msgspec.structs.replace(
                row,
                counters=launch.counters,
                occupancy=launch.occupancy or row.occupancy,
                evidence=f"{row.evidence}, ncu",
            )
        rows.append(row)
    return msgspec.structs.replace(profile, rows=tuple(rows))


def from_resources(subject: Literal["reference", "candidate"], resources: tuple[KernelResources, ...]) -> Profile:
    """The last rung but one: what ptxas says of each kernel, without any time."""
    rows = tuple(
        KernelRow(
            name=item.kernel, calls=0, total_us=0.0, share=0.0, authored=True, evidence="ptxas",
            registers=item.registers, shared_bytes=item.static_shared_bytes,
        )
        for item in resources
    )  # fmt: skip
    return Profile(subject=subject, rows=rows, total_us=0.0)
