"""Measurement on the CPU as MEASURING.md's recipe has it.

One thread a process, pinned to one core; four fresh candidate processes against four processes a baseline; slices
interleaved over sides and processes, one process running at a time; a median for each process; a t interval over
the processes' paired log ratios that must clear 1%. The controller's clock checks the workers': a slice cannot take
longer by their account than by ours, nor much less.
"""

import contextlib
import os
import platform
import secrets
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from cuda_tui.evaluation.baselines import Baseline, Baselines
from cuda_tui.evaluation.candidate import Candidate, CandidateProcess, Rejected
from cuda_tui.evaluation.pipeline_types import Emit, Timed
from cuda_tui.evaluation.progress import SliceDone
from cuda_tui.evaluation.reference import Draw, Reference
from cuda_tui.evaluation.report import Code, Measured, Ratio, Timing
from cuda_tui.evaluation.statistics import paired_ratio

PROCESSES = 4
ROUNDS = 6
LONG_CALL_S, LONG_ROUNDS = 0.01, 9  # calls over 10 ms are noisier: more rounds
SLICE_S = 0.04
MIN_CALLS, MAX_CALLS = 3, 5000
UNDISTURBED = 0.97  # processor time over wall time of a call; below, others ran on its core meanwhile
SLICE_TRIES = 4
CLOCK_SLACK_S = 0.05  # scheduling and the round trip of one request
# Over all slices, candidate against eager: seconds of our clock that its own account leaves out, a slice and a call;
# and nanoseconds between two calls, by a factor, a constant and a part of the call.
ROUND_TRIP_FACTOR, ROUND_TRIP_SLACK_S, ROUND_TRIP_CALL_S = 2.0, 0.004, 1e-6
GAP_FACTOR, GAP_SLACK_NS, GAP_SHARE = 2.0, 4_000.0, 0.02
ALL_THREAD_SLICES = 3


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

    def run(self, calls: int, salt: int) -> float:
        """Time a slice, check the clock, keep its median; returns that in microseconds."""
        self.timed.renew()
        began = time.monotonic()
        answer = self.timed.time_slice(calls, salt)
        wall_s = time.monotonic() - began
        spans: list[int] = answer["spans_ns"]
        check_clock(spans, answer["total_ns"], wall_s, calls)
        self.gaps_ns.append((answer["total_ns"] - sum(spans)) / calls)
        self.unexplained_s.append(wall_s - answer["total_ns"] / 1e9)
        self.timed_calls += calls
        kept = [span for span, busy in zip(spans, answer["busy_ns"], strict=True) if busy >= UNDISTURBED * span]
        self.disturbed = len(kept) < calls / 2
        return statistics.median(spans if self.disturbed else kept) / 1e3

    def run_undisturbed(self, salt: int) -> float:
        """A slice whose calls mostly had their core to themselves, tried a few times; the last one counts anyway."""
        for attempt in range(SLICE_TRIES):
            median_us = self.run(self.calls, salt)
            if not self.disturbed or attempt == SLICE_TRIES - 1:
                break
            self.dropped += 1
        return median_us


def check_clock(spans_ns: list[int], total_ns: int, wall_s: float, calls: int) -> None:
    """The worker's account of a slice against ours. Raises Rejected(CLOCK)."""
    inside_s, total_s = sum(spans_ns) / 1e9, total_ns / 1e9
    if len(spans_ns) != calls or min(spans_ns) <= 0 or inside_s > total_s * 1.001:
        raise Rejected(Code.CLOCK, "the timed spans do not add up to the slice they are part of")
    if total_s > wall_s + 0.001 or total_s < 0.8 * wall_s - CLOCK_SLACK_S:
        raise Rejected(Code.CLOCK, f"a slice took {wall_s:.3f} s by our clock and {total_s:.3f} s by the candidate's")


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Facts about the machine while timing."""

    cpu: int | None
    device: str


def conditions() -> Conditions:
    """The core to pin to (the last allowed one: the first serves interrupts) and the processor's name."""
    try:
        cores = sorted(os.sched_getaffinity(0))
    except AttributeError:
        return Conditions(cpu=None, device=platform.processor() or platform.machine())
    return Conditions(cpu=cores[-1], device=processor_name())


def processor_name() -> str:
    """The processor's model name, as the kernel has it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    return platform.machine()


Positions: TypeAlias = list[float | None]


def draw_positions(reference: Reference) -> Positions:
    """Where each input begins to change from timed call to timed call, as a share of its length; None stays."""
    changing = reference.facts["changing"]
    return [secrets.randbelow(1 << 20) / (1 << 20) if change else None for change in changing]


def measure(
    candidate: Candidate,
    reference: Reference,
    baselines: Baselines,
    *,
    emit: Emit,
    cancel: threading.Event | None = None,
) -> Measured:
    """Time the candidate against every valid baseline. Raises Rejected where timing itself convicts it."""
    where = conditions()
    positions = draw_positions(reference)
    draws = [reference.draw(cancel=cancel) for _ in range(PROCESSES)]
    load = ForeignLoad()
    try:
        with contextlib.ExitStack() as stack:
            processes = [stack.enter_context(candidate.process(cpu=where.cpu, cancel=cancel)) for _ in range(PROCESSES)]
            for running, draw in zip(processes, draws, strict=True):
                running.set_state(draw)
            groups = [
                _group(number, running, baselines.ready(), draws[number], positions, cancel=cancel)
                for number, running in enumerate(processes)
            ]
            checks = TimedChecks(reference, processes, draws, positions)
            load.begin()
            _interleave(groups, checks, emit=emit)
            foreign = load.end()
    finally:
        for draw in draws:
            reference.spend(draw)
    check_accounts(groups)
    return _measured(groups, baselines, where, foreign)


def _group(
    number: int,
    running: CandidateProcess,
    ready: list[Baseline],
    draw: Draw,
    positions: Positions,
    *,
    cancel: threading.Event | None,
) -> list[Side]:
    """One process of every side, all on the same draw."""
    sides = [Side("candidate", number, running.prepare(draw, positions))]
    for baseline in ready:
        sides.append(Side(baseline.name, number, baseline.prepare(number, draw.seed, positions, cancel=cancel)))
    return sides


class TimedChecks:
    """For each process one slice, chosen by us and unknown to it, whose last output is compared."""

    def __init__(
        self, reference: Reference, processes: list[CandidateProcess], draws: list[Draw], positions: Positions
    ) -> None:
        self._reference = reference
        self._processes = processes
        self._draws = draws
        self._positions = positions
        self._rounds: list[int] = []

    def choose(self, rounds: int) -> None:
        """Pick the rounds."""
        self._rounds = [secrets.randbelow(rounds) for _ in self._processes]

    def after(self, number: int, at: int, call: int) -> None:
        """Compare if this is the chosen slice of process `number`; `call` is the number its last call had."""
        if self._rounds[number] != at:
            return
        outputs, answer = self._processes[number].export_timed()
        draw = self._draws[number]
        self._reference.ask("perturb", name=draw.name, positions=self._positions, number=call)
        trial = self._reference.compare(draw, outputs, answer, label=f"timed call of process {number + 1}")
        if not trial.passed:
            code = Code.STALE_RESULT if trial.code in (Code.NUM_MISMATCH, Code.PRECISION) else trial.code
            raise Rejected(code or Code.STALE_RESULT, f"the output of a timed call is wrong: {trial.reason}")


def _interleave(groups: list[list[Side]], checks: TimedChecks, *, emit: Emit) -> None:
    """Calibrate, then rounds over all processes, the order of sides reversed from round to round."""
    longest = 0.0
    for side in (side for group in groups for side in group):
        side.run(MIN_CALLS, secrets.randbits(30))  # first calls load code and touch memory
        once_s = side.run(MIN_CALLS, secrets.randbits(30)) / 1e6
        side.calls = min(MAX_CALLS, max(MIN_CALLS, round(SLICE_S / once_s)))
        side.gaps_ns.clear()
        side.unexplained_s.clear()
        side.timed_calls = 0
        longest = max(longest, once_s)
    rounds = LONG_ROUNDS if longest > LONG_CALL_S else ROUNDS
    checks.choose(rounds)
    for number in range(rounds):
        for group in groups:
            for side in group if number % 2 == 0 else reversed(group):
                salt = secrets.randbits(30)
                median_us = side.run_undisturbed(salt)
                side.medians_us.append(median_us)
                emit(SliceDone(side=side.name, process=side.number + 1, processes=len(groups), median_us=median_us))
                if side.name == "candidate":
                    checks.after(side.number, number, salt + side.calls - 1)


def check_accounts(groups: list[list[Side]]) -> None:
    """The candidates' accounts of all slices against eager's, which ran between them. Raises Rejected.

    A clock that runs slow leaves time of ours unexplained; work moved out of the timed calls shows between them.
    The lower quartile over slices is looked at, since a busy machine adds to both, now and then.
    """
    candidate = [side for group in groups for side in group if side.name == "candidate"]
    eager = [side for group in groups for side in group if side.name == "eager"]
    calls = statistics.median(side.calls for side in candidate)
    lost_s, usual_s = (_low([value for side in sides for value in side.unexplained_s]) for sides in (candidate, eager))
    if lost_s > ROUND_TRIP_FACTOR * max(usual_s, 0.0) + ROUND_TRIP_SLACK_S + ROUND_TRIP_CALL_S * calls:
        text = f"the candidate's clock leaves {lost_s * 1e3:.1f} ms of a slice out, eager's {usual_s * 1e3:.1f} ms"
        raise Rejected(Code.CLOCK, text)
    gap_ns, usual_ns = (_low([value for side in sides for value in side.gaps_ns]) for sides in (candidate, eager))
    call_ns = 1e3 * statistics.median(value for side in candidate for value in side.medians_us)
    if gap_ns > GAP_FACTOR * usual_ns + GAP_SLACK_NS + GAP_SHARE * call_ns:
        text = f"{gap_ns / 1e3:.1f} µs pass between timed calls, {usual_ns / 1e3:.1f} µs for eager"
        raise Rejected(Code.DEFERRED_WORK, text)


def _low(values: list[float]) -> float:
    """The lower quartile."""
    return sorted(values)[len(values) // 4]


def _timing(name: str, sides: list[Side], note: str = "") -> Timing:
    return Timing(
        name=name,
        process_medians_us=tuple(statistics.median(side.medians_us) for side in sides),
        calls=sum(side.timed_calls for side in sides),
        slices=sum(len(side.medians_us) for side in sides),
        dropped_slices=sum(side.dropped for side in sides),
        note=note,
    )


def _measured(groups: list[list[Side]], baselines: Baselines, where: Conditions, foreign: float | None) -> Measured:
    names = [side.name for side in groups[0]]
    by_name = {name: [group[index] for group in groups] for index, name in enumerate(names)}
    candidate = _timing("candidate", by_name["candidate"])
    timings = [_timing(name, by_name[name], baselines.note(name)) for name in names[1:]]
    slices_us = {name: [side.medians_us for side in sides] for name, sides in by_name.items()}
    ratios: list[Ratio] = [paired_ratio(name, slices_us[name], slices_us["candidate"]) for name in names[1:]]
    slices = len(by_name["candidate"][0].medians_us)
    pinned = f"pinned to core {where.cpu}" if where.cpu is not None else "not pinned"
    return Measured(
        candidate=candidate,
        baselines=tuple(timings),
        ratios=tuple(ratios),
        method=f"{PROCESSES} processes a side, 1 thread, {pinned}, {slices} interleaved slices each, "
        "t interval (95%) over processes, warm caches",
        device=where.device,
        unavailable=baselines.unavailable(),
        foreign_load=foreign,
    )


class ForeignLoad:
    """Cores kept busy by others: all busy time of the machine less that of our own processes."""

    def __init__(self) -> None:
        self._began = 0.0
        self._busy = 0.0

    def begin(self) -> None:
        """Start the clock."""
        self._began = time.monotonic()
        self._busy = _busy_s()

    def end(self) -> float | None:
        """Mean foreign load in cores since `begin`. One core is ours: exactly one worker runs at any time."""
        seconds = time.monotonic() - self._began
        if seconds <= 0 or self._busy == 0.0:
            return None
        return max(0.0, (_busy_s() - self._busy) / seconds - 1.0)


def _busy_s() -> float:
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
        return (sum(fields[:8]) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")
    return 0.0


def all_threads(
    candidate: Candidate, reference: Reference, baselines: Baselines, *, cancel: threading.Event | None = None
) -> tuple[Timing, ...]:
    """Eager and candidate with every core this process may use: a second figure, reported and never certified."""
    threads = len(os.sched_getaffinity(0))
    if threads < 2:
        return ()
    positions = draw_positions(reference)
    draw = reference.draw(cancel=cancel)
    try:
        with (
            candidate.process(threads=threads, cancel=cancel) as running,
            _threaded_eager(baselines, threads, cancel) as eager,
        ):
            running.set_state(draw)
            sides = [
                Side("candidate", 0, running.prepare(draw, positions)),
                Side("eager", 0, eager(draw.seed, positions)),
            ]
            for side in sides:
                side.run(MIN_CALLS, 0)
                side.calls = min(MAX_CALLS, max(MIN_CALLS, round(SLICE_S / (side.run(MIN_CALLS, 0) / 1e6))))
            for _ in range(ALL_THREAD_SLICES):
                for side in sides:
                    side.medians_us.append(side.run(side.calls, secrets.randbits(30)))
    finally:
        reference.spend(draw)
    return tuple(_timing(side.name, [side], f"{threads} threads, not certified") for side in sides)


@contextlib.contextmanager
def _threaded_eager(
    baselines: Baselines, threads: int, cancel: threading.Event | None
) -> Iterator[Callable[[int, Positions], Timed]]:
    with baselines.threaded(threads, cancel=cancel) as baseline:
        yield lambda seed, positions: baseline.prepare(0, seed, positions, cancel=cancel)
