"""What to look at first in a profile: one sentence, from the largest thing that something can be done about."""

from cuda_tui.evaluation.profile.names import shown
from cuda_tui.evaluation.report import KernelRow, Profile, Timeline

IDLE = 0.7  # a GPU that works less of the time than this waits for launches
IDLE_WORTH = 0.05  # of a call, to be named as the next gain
NEAR_ROOF = 0.8
LOW_OCCUPANCY = 0.5
NARROW = 0.6  # memory and compute both under this share of their peaks: waiting, not working
TAIL_WAVES = 1.0


def first_look(profile: Profile) -> str:
    """One sentence; empty where the profile shows nothing on a GPU."""
    rows = [row for row in profile.rows if row.share > 0]
    line = profile.timeline
    if not rows or line is None:
        return ""
    if line.busy_share < IDLE:
        return (
            f"the GPU works {line.busy_share:.0%} of the time: a call of {line.launches} launches takes "
            f"{line.wall_us:.0f} us, {line.busy_us:.0f} us of it on the GPU; launch less often, or use a graph"
        )
    if line.busy_us and line.copy_us / line.busy_us > 0.2:
        return (
            f"{line.copy_us / line.busy_us:.0%} of the GPU's time are copies ({line.copies} a call): remove those first"
        )
    largest = max(rows, key=lambda row: row.share)
    first = _of_kernel(largest, ours=profile.subject == "reference" or largest.authored)
    return first + _next(profile, line, largest) + _of_call(profile)


def _of_kernel(row: KernelRow, *, ours: bool) -> str:
    whose = "" if ours else " (not the candidate's own)"
    text = f"{row.share:.0%} of the time is {shown(row.name)}{whose}"
    if row.roofline_share is not None:
        text += f", which reaches {_reached(row)}"
    return f"{text}; {limit}" if (limit := limited_by(row)) else text


def _reached(row: KernelRow) -> str:
    roof = "copy bandwidth" if row.bound == "memory" else "its compute peak"
    return f"{row.roofline_share:.0%} of {roof}"


def _at_roof(row: KernelRow) -> bool:
    return row.roofline_share is not None and row.roofline_share >= NEAR_ROOF


def _spare_us(row: KernelRow) -> float:
    """What its roof leaves to gain; all of its time where the roof is not known."""
    return row.total_us * (1 - min(1.0, row.roofline_share or 0.0))


def _next(profile: Profile, line: Timeline, largest: KernelRow) -> str:
    """Where the next gain is when the largest kernel is at its roof; empty where that one itself is worth the work."""
    if not _at_roof(largest):
        return ""
    others = [row for row in profile.rows if row is not largest and row.total_us > 0]
    best = max((row for row in others if not _at_roof(row)), key=_spare_us, default=None)
    idle = line.wall_us - line.busy_us
    if idle > max(IDLE_WORTH * line.wall_us, _spare_us(best) if best is not None else 0.0):
        return f"; next: {idle:.1f} us of the call in which the GPU idles: fewer launches, or a graph"
    if best is not None:
        found = f"at {_reached(best)}" if best.roofline_share is not None else "whose roof is not known"
        gain = f"at most {_spare_us(best):.1f} us ({_spare_us(best) / profile.total_us:.0%} of the call)"
        return f"; next: {shown(best.name)}, {best.total_us:.1f} us {found}: {gain} to gain"
    if not others:
        return "; nothing else takes time"
    rest = sum(row.total_us for row in others)
    which = shown(others[0].name) if len(others) == 1 else f"the other {len(others)} kernels"
    return f"; next: {which}, {rest:.1f} us ({rest / profile.total_us:.0%}), at the roof too: only fusing helps"


def limited_by(row: KernelRow) -> str:
    """What keeps a kernel from more, as far as the row's evidence says; empty where it says nothing."""
    if _at_roof(row):
        return "at its roof: only moving fewer bytes helps" if row.bound == "memory" else "at its roof"
    found = row.occupancy
    if found is not None and found.waves is not None and found.waves < TAIL_WAVES:
        return f"its grid fills {found.waves:.0%} of the device: more blocks"
    if found is not None and found.theoretical <= LOW_OCCUPANCY and found.limiter:
        return f"{_plural(found.limiter)} occupancy to {found.theoretical:.0%}"
    counters = row.counters
    if counters is None:
        return ""
    if counters.sectors_per_load is not None and counters.sectors_per_load > 16:
        return f"its loads touch {counters.sectors_per_load:.0f} sectors a request (uncoalesced)"
    if counters.stalls and max(counters.memory_share or 0.0, counters.compute_share or 0.0) < NARROW:
        stall = counters.stalls[0]
        return f"its warps wait on {stall.reason} ({stall.share:.0%} of all waiting)"
    return ""


def _plural(limiter: str) -> str:
    return f"{limiter} limit" if limiter in ("registers", "blocks") else f"{limiter} limits"


def _of_call(profile: Profile) -> str:
    """How far the whole call is from the least that its bytes or FLOP take."""
    if not profile.floor_us or not profile.total_us:
        return ""
    what = "bytes" if profile.floor_bound == "memory" else "FLOP"
    return f". The call's {what} alone take {profile.floor_us:.1f} us, its kernels {profile.total_us:.1f} us"
