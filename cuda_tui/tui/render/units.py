"""Numbers as a person reads them: the unit always beside the number, three digits that mean something."""

from cuda_tui.evaluation.report import Ratio
from cuda_tui.records import Real, as_float


def time_us(microseconds: float) -> str:
    """`12.3 µs`, `1.25 ms`, `2.10 s`."""
    if microseconds < 1_000:
        return f"{_three(microseconds)} µs"
    if microseconds < 1_000_000:
        return f"{_three(microseconds / 1_000)} ms"
    return f"{_three(microseconds / 1_000_000)} s"


def _three(value: float) -> str:
    if value < 10:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def clock(seconds: float) -> str:
    """A running time: `0:07`, `12:34`, `1:02:03`."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, second = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{second:02}" if hours else f"{minutes}:{second:02}"


def took(seconds: float) -> str:
    """How long something took: `0.8 s`, `42 s`, `3:07 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 60 else f"{clock(seconds)} min"


def times(value: float) -> str:
    """A ratio: `1.62x`, `12.4x`."""
    return f"{value:.2f}x" if value < 10 else f"{value:.1f}x"


def interval(ratio: Ratio) -> str:
    """`[1.58, 1.66]`."""
    return f"[{ratio.low:.2f}, {ratio.high:.2f}]"


def percent(share: float, digits: int = 1) -> str:
    """A share of one as per cent."""
    return f"{share * 100:.{digits}f}%"


def size(count: float) -> str:
    """Bytes: `512 B`, `1.5 KiB`, `2.0 GiB`."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def short_count(number: int) -> str:
    """`812`, `12.3k`, `1.2M`."""
    if number < 1_000:
        return str(number)
    return f"{number / 1_000:.1f}k" if number < 1_000_000 else f"{number / 1_000_000:.1f}M"


def scientific(value: Real) -> str:
    """An error or a limit: `3.1e-07`; non-finite values as words."""
    number = as_float(value)
    return "0" if number == 0 else f"{number:.1e}"


def element(value: Real) -> str:
    """One element of a tensor with the digits that matter in a comparison."""
    return f"{as_float(value):.6g}"
