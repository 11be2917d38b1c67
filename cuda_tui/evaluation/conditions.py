"""How a measurement was clocked and what the GPU did meanwhile, in the words that every front end uses."""

from cuda_tui.evaluation.report import GpuConditions, Measured, Ratio, Timing
from cuda_tui.records import Record


class Side(Record):
    """One row of a measurement: the candidate or a baseline. `device` is None where only wall time was taken."""

    name: str
    device: Timing | None
    ratio: Ratio | None
    wall: Timing | None


def sides(measured: Measured) -> tuple[Side, ...]:
    """The candidate, the baselines with a certified clock, then those that go by the wall clock alone."""
    walls = {timing.name: timing for timing in measured.wall}
    timed = (measured.candidate, *measured.baselines)
    found = [
        Side(name=item.name, device=item, ratio=measured.ratio_to(item.name), wall=walls.get(item.name))
        for item in timed
    ]
    known = {item.name for item in timed}
    return (
        *found,
        *(Side(name=name, device=None, ratio=None, wall=walls[name]) for name in walls if name not in known),
    )


def clock_text(measured: Measured) -> str:
    """What the times are, and whether the ratios are verdicts."""
    match measured.clock:
        case "wall":
            return "wall time"
        case "graph":
            return f"device time, CUDA graphs, {'certified' if measured.certified else 'not certified'}"
        case "events":
            return "device time, queued batches: weaker evidence, not certified"


def conditions_text(gpu: GpuConditions | None) -> str:
    """One line: clock, power, temperature, what held the clock down, who else was there."""
    if gpu is None or not gpu.samples:
        return "GPU conditions unknown: the driver does not say"
    parts = [
        _clock(gpu),
        _optional(gpu.power_w, "up to {:.0f} W", "power"),
        _optional(gpu.temperature_c, "{} °C", "heat"),
    ]
    parts.append(f"THROTTLED: {', '.join(gpu.throttle)}" if gpu.throttle else "not throttled")
    if gpu.tenants:
        parts.append(f"{gpu.tenants} other process{'' if gpu.tenants == 1 else 'es'} on the GPU")
    return f"{gpu.name or 'GPU'}: {', '.join(parts)}"


def gpu_lines(measured: Measured) -> list[str]:
    """What a measurement on a GPU says besides its ratios: clock, wall time as called, conditions, notes."""
    if measured.clock == "wall":
        return []
    walls = [f"{side.name} {side.wall.median_us:,.1f} µs" for side in sides(measured) if side.wall is not None]
    called = [f"as called (wall time, not certified): {', '.join(walls)}"] if walls else []
    return [clock_text(measured), *called, conditions_text(measured.gpu), *(f"note: {note}" for note in measured.notes)]


def _clock(gpu: GpuConditions) -> str:
    if gpu.clock_mhz is None:
        return "clock n/a"
    low, high = gpu.clock_mhz
    return f"{high} MHz" if low == high else f"{low} to {high} MHz"


def _optional(value: float | int | None, form: str, name: str) -> str:
    return form.format(value) if value is not None else f"{name} n/a"
