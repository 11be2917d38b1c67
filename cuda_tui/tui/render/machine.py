"""The Machine tab: what the samples say, "n/a" where the machine does not say."""

from collections.abc import Callable, Sequence

from textual.content import Content

from cuda_tui.events import MachineSampled
from cuda_tui.tui.render.building import heading
from cuda_tui.tui.render.text import plain
from cuda_tui.tui.render.units import size

_LEVELS = "▁▂▃▄▅▆▇█"
_NAME = 18
_VALUE = 12

# Its title, NVML's name for it ("" for what is not of the GPU), how it is read and shown, and the top of its bars.
Reading = tuple[str, str, Callable[[MachineSampled], float | int | None], Callable[[float], str], float | None]

_READINGS: tuple[Reading, ...] = (
    ("CPU busy", "", lambda sample: sample.cpu_load, lambda value: f"{value:.1f} cores", None),
    ("Memory used", "", lambda sample: sample.memory_used_bytes, size, None),
    ("GPU busy", "utilisation", lambda sample: sample.gpu_utilisation, lambda value: f"{value * 100:.0f}%", 1.0),
    ("GPU memory used", "memory", lambda sample: sample.gpu_memory_used_bytes, size, None),
    ("GPU clock", "clock", lambda sample: sample.gpu_clock_mhz, lambda value: f"{value:.0f} MHz", None),
    ("GPU power", "power", lambda sample: sample.gpu_power_w, lambda value: f"{value:.0f} W", None),
    ("GPU temperature", "temperature", lambda sample: sample.gpu_temperature_c, lambda value: f"{value:.0f} °C", None),
)


def sparkline(values: Sequence[float | None], width: int, *, top: float | None = None) -> str:
    """The newest `width` values as one row of bars from zero; a gap where there was no value."""
    shown = values[-width:]
    high = top if top is not None else max((value for value in shown if value is not None), default=0.0)
    signs = [
        " " if value is None else _LEVELS[min(7, int(8 * value / high))] if high > 0 else _LEVELS[0] for value in shown
    ]
    return "".join(signs).rjust(width)


def machine_lines(samples: Sequence[MachineSampled], width: int) -> list[Content]:
    """One row for each reading: its name, the latest value, its course, its highest value."""
    latest = samples[-1] if samples else MachineSampled()
    name = latest.gpu_name or "no GPU in use"
    missing = next((sample.gpu_missing for sample in reversed(samples) if sample.gpu_missing), {})
    span = f"{len(samples)} samples, one a second at most" if samples else "no samples yet"
    found = [heading("Machine", f"{plain(name)}, {span}")]
    room = max(8, min(60, width - _NAME - _VALUE - 18))
    for title, key, read, unit, top in _READINGS:
        values = [read(sample) for sample in samples]
        known = [value for value in values if value is not None]
        if not known:
            reason = plain(missing.get(key, missing.get("gpu", "") if key else ""))
            found.append(
                Content.assemble(f"{title:<{_NAME}}", (f"{'n/a':>{_VALUE}}  {reason}".rstrip(), "$text-muted"))
            )
            continue
        now = values[-1]
        found.append(
            Content.assemble(
                f"{title:<{_NAME}}",
                ((unit(now) if now is not None else "n/a").rjust(_VALUE), "bold"),
                "  ",
                (sparkline(values, room, top=top), "$text-primary"),
                (f"  max {unit(max(known))}", "$text-muted"),
            )
        )
    return found + _throttle_lines(samples, room)


def _throttle_lines(samples: Sequence[MachineSampled], room: int) -> list[Content]:
    """When the clock was held down, on the same time axis as the readings, and by what."""
    reasons = dict.fromkeys(sample.throttle for sample in samples if sample.throttle)
    if not reasons:
        return []
    count = sum(sample.throttle is not None for sample in samples)
    course = "".join("█" if sample.throttle else "·" for sample in samples[-room:]).rjust(room)
    now = samples[-1].throttle is not None
    style = "bold $text-error" if now else "$text-warning"
    head = Content.assemble(
        f"{'GPU throttled':<{_NAME}}",
        (("now" if now else "earlier").rjust(_VALUE), style),
        "  ",
        (course, style),
        (f"  {count} of {len(samples)}", "$text-muted"),
    )
    return [head, Content.styled(f"Held down by: {plain('; '.join(reasons))}", style)]
