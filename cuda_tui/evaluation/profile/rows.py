"""A GPU profile's rows from a worker's account: whose kernel it is, its occupancy, and how near the roof it comes."""

import re
from collections import Counter
from typing import Any, Literal

import msgspec

from cuda_tui.evaluation.profile.names import OwnKernels, plain, signature
from cuda_tui.evaluation.profile.ncu import Launch
from cuda_tui.evaluation.profile.occupancy import occupancy
from cuda_tui.evaluation.report import Gap, KernelResources, KernelRow, Occupancy, Profile, Timeline

ROWS = 20
USUAL_THREADS = 256
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
    """Rows with the counters of the launch of the same kernel; by its short name only where one kernel has it."""
    exact = {signature(launch.kernel): launch for launch in launches}
    short = Counter(plain(row.name) for row in profile.rows)
    short.update(plain(launch.kernel) for launch in launches)
    alone = {name: launch for launch in launches if short[name := plain(launch.kernel)] == 2}
    rows = []
    for row in profile.rows:
        launch = exact.get(signature(row.name)) or alone.get(plain(row.name))
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
            registers=item.registers, shared_bytes=item.static_shared_bytes, occupancy=_supposed(item),
        )
        for item in resources
    )  # fmt: skip
    return Profile(subject=subject, rows=rows, total_us=0.0)


def _supposed(item: KernelResources) -> Occupancy | None:
    """The occupancy for a usual block, since the launch is not known; dynamic shared memory is not either."""
    target = re.match(r"sm_(\d+)(\d)", item.architecture)
    if target is None:
        return None
    found = occupancy(
        (int(target[1]), int(target[2])),
        threads=USUAL_THREADS,
        registers=item.registers,
        shared_bytes=item.static_shared_bytes,
    )
    said = f"ptxas, at {USUAL_THREADS} threads a block"
    return msgspec.structs.replace(found, evidence=said) if found is not None else None
