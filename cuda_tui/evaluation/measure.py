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
from typing import Any

from cuda_tui.evaluation.baselines import Baseline, Baselines
from cuda_tui.evaluation.candidate import Candidate, CandidateProcess, Rejected
from cuda_tui.evaluation.pipeline_types import Emit
from cuda_tui.evaluation.progress import SliceDone
from cuda_tui.evaluation.reference import Draw, Reference
from cuda_tui.evaluation.report import Code, Measured, Ratio, Timing
from cuda_tui.evaluation.statistics import paired_ratio

PROCESSES = 4
ROUNDS = 6
LONG_CALL_S, LONG_ROUNDS = 0.01, 9  # calls over 10 ms are noisier: more rounds
SLICE_S = 0.04
MIN_CALLS, MAX_CALLS = 3, 5000
CLOCK_SLACK_S = 0.05  # scheduling and the round trip of a request
GAP_FACTOR, GAP_SLACK_NS = 4.0, 200_000.0  # time between calls, candidate against eager
ALL_THREAD_SLICES = 3


@dataclass
class Side:
    """One process of one side: how to time it, and the medians of its slices in microseconds."""

    name: str
    number: int
    time_slice: Callable[[int, int], dict[str, Any]]
    calls: int = MIN_CALLS
    medians_us: list[float] = field(default_factory=list)
    gaps_ns: list[float] = field(default_factory=list)
    timed: int = 0

    def run(self, calls: int, salt: int) -> float:
        """Time a slice, check the clock, keep its median; returns that in microseconds."""
        began = time.monotonic()
        answer = self.time_slice(calls, salt)
        wall_s = time.monotonic() - began
        spans: list[int] = answer["spans_ns"]
        check_clock(spans, answer["total_ns"], wall_s, calls)
        self.gaps_ns.append((answer["total_ns"] - sum(spans)) / calls)
        self.timed += calls
        return statistics.median(spans) / 1e3


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
    positions = [secrets.randbelow(1 << 20) / (1 << 20) for _ in range(baselines.input_count())]
    draws = [reference.draw(cancel=cancel) for _ in range(PROCESSES)]
    load = ForeignLoad()
    try:
        with contextlib.ExitStack() as stack:
            processes = [stack.enter_context(candidate.process(cpu=where.cpu, cancel=cancel)) for _ in range(PROCESSES)]
            for running, draw in zip(processes, draws, strict=True):
                running.set_state(draw)
                running.prepare(draw, positions)
            groups = [
                _group(number, running, baselines.ready(), draws[number], positions)
                for number, running in enumerate(processes)
            ]
            checks = TimedChecks(reference, processes, draws, positions)
            load.begin()
            _interleave(groups, checks, emit=emit)
            foreign = load.end()
    finally:
        for draw in draws:
            reference.spend(draw)
    _check_gaps(groups)
    return _measured(groups, baselines, where, foreign)


def _group(
    number: int, running: CandidateProcess, ready: list[Baseline], draw: Draw, positions: list[float]
) -> list[Side]:
    """One process of every side, all on the same draw."""
    sides = [Side("candidate", number, running.time_slice)]
    for baseline in ready:
        worker = baseline.prepare(number, draw.seed, positions)
        sides.append(Side(baseline.name, number, worker))
    return sides


class TimedChecks:
    """For each process one slice, chosen by us and unknown to it, whose last output is compared."""

    def __init__(
        self, reference: Reference, processes: list[CandidateProcess], draws: list[Draw], positions: list[float]
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
        side.timed = 0
        longest = max(longest, once_s)
    rounds = LONG_ROUNDS if longest > LONG_CALL_S else ROUNDS
    checks.choose(rounds)
    for number in range(rounds):
        for group in groups:
            for side in group if number % 2 == 0 else reversed(group):
                salt = secrets.randbits(30)
                median_us = side.run(side.calls, salt)
                side.medians_us.append(median_us)
                emit(SliceDone(side=side.name, process=side.number + 1, processes=len(groups), median_us=median_us))
                if side.name == "candidate":
                    checks.after(side.number, number, salt + side.calls - 1)


def _check_gaps(groups: list[list[Side]]) -> None:
    """Work moved between the timed calls shows as time there that eager does not need."""
    candidate = statistics.median(gap for group in groups for gap in group[0].gaps_ns)
    eager = statistics.median(gap for group in groups for side in group if side.name == "eager" for gap in side.gaps_ns)
    if candidate > GAP_FACTOR * eager + GAP_SLACK_NS:
        raise Rejected(
            Code.DEFERRED_WORK, f"{candidate / 1e3:.0f} µs pass between timed calls, {eager / 1e3:.0f} µs for eager"
        )


def _timing(name: str, sides: list[Side], note: str = "") -> Timing:
    return Timing(
        name=name,
        process_medians_us=tuple(statistics.median(side.medians_us) for side in sides),
        calls=sum(side.timed for side in sides),
        slices=sum(len(side.medians_us) for side in sides),
        note=note,
    )


def _measured(groups: list[list[Side]], baselines: Baselines, where: Conditions, foreign: float | None) -> Measured:
    names = [side.name for side in groups[0]]
    by_name = {name: [group[index] for group in groups] for index, name in enumerate(names)}
    candidate = _timing("candidate", by_name["candidate"])
    timings = [_timing(name, by_name[name], baselines.note(name)) for name in names[1:]]
    ratios: list[Ratio] = [
        paired_ratio(timing.name, timing.process_medians_us, candidate.process_medians_us) for timing in timings
    ]
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
    positions = [0.5] * baselines.input_count()
    draw = reference.draw(cancel=cancel)
    try:
        with candidate.process(threads=threads, cancel=cancel) as running, _threaded_eager(baselines, threads) as eager:
            running.set_state(draw)
            running.prepare(draw, positions)
            sides = [Side("candidate", 0, running.time_slice), Side("eager", 0, eager(draw.seed, positions))]
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
    baselines: Baselines, threads: int
) -> Iterator[Callable[[int, list[float]], Callable[[int, int], dict[str, Any]]]]:
    with baselines.threaded(threads) as baseline:
        yield lambda seed, positions: baseline.prepare(0, seed, positions)
