"""One process of one side of a measurement: its slices, and its account of them against the controller's clock."""

import secrets
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from cuda_tui.evaluation.candidate import Rejected
from cuda_tui.evaluation.report import Code, Timing
from cuda_tui.evaluation.timed import Timed

SLICE_S = 0.04
MIN_CALLS, MAX_CALLS = 3, 5000
UNDISTURBED = 0.97  # processor time over wall time of a call; below, others ran on its core meanwhile
SLICE_TRIES = 4
CLOCK_SLACK_S = 0.05  # scheduling and the round trip of one request
LATE, FAR_TOO_LATE = 0.8, 0.25  # its account of a slice over ours: a busy machine explains the first, never thrice more
# Over all slices, candidate against eager: seconds of our clock that its own account leaves out, a slice and a call;
# and nanoseconds between two calls, by a factor, a constant and a part of the call.
ROUND_TRIP_FACTOR, ROUND_TRIP_SLACK_S, ROUND_TRIP_CALL_S = 2.0, 0.004, 1e-6
GAP_FACTOR, GAP_SLACK_NS, GAP_SHARE = 2.0, 4_000.0, 0.02


@dataclass
class Side:
    """One process of one side: how to time it, and the medians of its slices in microseconds."""

    name: str
    number: int
    timed: Timed
    calls: int = MIN_CALLS
    medians_us: list[float] = field(default_factory=list)
    gaps_ns: list[float] = field(default_factory=list)
    unexplained_s: list[float] = field(default_factory=list)  # our clock less the worker's, a slice
    timed_calls: int = 0
    dropped: int = 0
    disturbed: bool = False
    far_too_late: bool = False
    clock: Callable[[], float] = time.monotonic

    def calibrate(self) -> float:
        """Choose how many calls fill a slice; returns the seconds of one call. What was timed for it does not count."""
        self.run(MIN_CALLS, new_salt())  # first calls load code and touch memory
        once_s = self.run(MIN_CALLS, new_salt()) / 1e6
        self.calls = min(MAX_CALLS, max(MIN_CALLS, round(SLICE_S / once_s)))
        self.gaps_ns.clear()
        self.unexplained_s.clear()
        self.timed_calls = 0
        return once_s

    def run(self, calls: int, salt: int) -> float:
        """Time a slice, check the clock, keep its account; returns the median in microseconds."""
        self.timed.renew()
        began = self.clock()
        answer = self.timed.time_slice(calls, salt)
        wall_s = self.clock() - began
        spans: list[int] = answer["spans_ns"]
        check_sums(spans, answer["total_ns"], wall_s, calls)
        total_s = answer["total_ns"] / 1e9
        self.gaps_ns.append((answer["total_ns"] - sum(spans)) / calls)
        self.unexplained_s.append(wall_s - answer["total_ns"] / 1e9)
        self.timed_calls += calls
        kept = [span for span, busy in zip(spans, answer["busy_ns"], strict=True) if busy >= UNDISTURBED * span]
        self.disturbed = len(kept) < calls / 2 or total_s < LATE * wall_s - CLOCK_SLACK_S
        self.far_too_late = total_s < FAR_TOO_LATE * wall_s - CLOCK_SLACK_S
        return statistics.median(kept if len(kept) >= calls / 2 else spans) / 1e3

    def run_undisturbed(self, salt: int) -> float:
        """A slice whose calls mostly had their core to themselves, tried a few times; the last one counts anyway.

        Raises Rejected(CLOCK) where every try takes several times as long by our clock as by the worker's: once is
        a process that waited for its core, each time is a clock that runs slow.
        """
        late = 0
        for attempt in range(SLICE_TRIES):
            median_us = self.run(self.calls, salt)
            late += self.far_too_late
            if not self.disturbed or attempt == SLICE_TRIES - 1:
                break
            self.dropped += 1
        if late == SLICE_TRIES:
            raise Rejected(
                Code.CLOCK, f"{late} slices in a row took over four times as long by our clock as by its own"
            )
        return median_us


def new_salt() -> int:
    """What decides a slice's changed elements; the worker learns it with the request."""
    return secrets.randbits(30)


def timing_of(name: str, processes: list[Side], note: str = "") -> Timing:
    """All processes of one side as one record."""
    return Timing(
        name=name,
        process_medians_us=tuple(statistics.median(side.medians_us) for side in processes),
        calls=sum(side.timed_calls for side in processes),
        slices=sum(len(side.medians_us) for side in processes),
        dropped_slices=sum(side.dropped for side in processes),
        note=note,
    )


def check_sums(spans_ns: list[int], total_ns: int, wall_s: float, calls: int) -> None:
    """An account of a slice that no clock can give, whatever else the machine does. Raises Rejected(CLOCK)."""
    inside_s, total_s = sum(spans_ns) / 1e9, total_ns / 1e9
    if len(spans_ns) != calls or min(spans_ns) <= 0 or inside_s > total_s * 1.001:
        raise Rejected(Code.CLOCK, "the timed spans do not add up to the slice they are part of")
    if total_s > wall_s + 0.001:
        raise Rejected(Code.CLOCK, f"a slice took {wall_s:.3f} s by our clock and {total_s:.3f} s by the candidate's")


def check_accounts(groups: list[list[Side]]) -> None:
    """The candidates' accounts of all slices against eager's, which ran between them. Raises Rejected.

    A clock that runs slow leaves time of ours unexplained; work moved out of the timed calls shows between them.
    The lower quartile over slices is looked at, since a busy machine adds to both, now and then.
    """
    candidate = [side for group in groups for side in group if side.name == "candidate"]
    eager = [side for group in groups for side in group if side.name == "eager"]
    calls = statistics.median(side.calls for side in candidate)
    lost_s, usual_s = (
        _lower_quartile([value for side in sides for value in side.unexplained_s]) for sides in (candidate, eager)
    )
    if lost_s > ROUND_TRIP_FACTOR * max(usual_s, 0.0) + ROUND_TRIP_SLACK_S + ROUND_TRIP_CALL_S * calls:
        text = f"the candidate's clock leaves {lost_s * 1e3:.1f} ms of a slice out, eager's {usual_s * 1e3:.1f} ms"
        raise Rejected(Code.CLOCK, text)
    gap_ns, usual_ns = (
        _lower_quartile([value for side in sides for value in side.gaps_ns]) for sides in (candidate, eager)
    )
    call_ns = 1e3 * statistics.median(value for side in candidate for value in side.medians_us)
    if gap_ns > GAP_FACTOR * usual_ns + GAP_SLACK_NS + GAP_SHARE * call_ns:
        text = f"{gap_ns / 1e3:.1f} µs pass between timed calls, {usual_ns / 1e3:.1f} µs for eager"
        raise Rejected(Code.DEFERRED_WORK, text)


def _lower_quartile(values: list[float]) -> float:
    return sorted(values)[len(values) // 4]
