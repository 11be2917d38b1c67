"""Measurement on the CPU.

One thread a process, pinned to one core; four fresh candidate processes against four processes a baseline; slices
interleaved over sides and processes, one process running at a time; a median for each process; a t interval over
the processes' paired log ratios that must clear 1%. The controller's clock checks the workers': a slice cannot take
longer by their account than by ours, nor much less.
"""

import contextlib
import os
import secrets
import threading
from collections.abc import Callable, Iterator

from cuda_tui.evaluation.baselines import Baseline, Baselines
from cuda_tui.evaluation.candidate import Candidate, CandidateProcess, accept_timed
from cuda_tui.evaluation.machine import Conditions, ForeignLoad, conditions
from cuda_tui.evaluation.progress import Emit, SliceDone
from cuda_tui.evaluation.reference import Draw, Reference
from cuda_tui.evaluation.report import BaselineState, Measured, Timing
from cuda_tui.evaluation.sides import Side, check_accounts, new_salt, timing_of
from cuda_tui.evaluation.statistics import paired_ratio
from cuda_tui.evaluation.timed import Positions, Timed

PROCESSES = 4
ROUNDS = 6
LONG_CALL_S, LONG_ROUNDS = 0.01, 9  # calls over 10 ms are noisier: more rounds
ALL_THREAD_SLICES = 3
STEADY = 1.2  # largest over smallest slice with all threads; beyond, the figure says nothing


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
    try:
        with contextlib.ExitStack() as stack:
            processes = [stack.enter_context(candidate.process(cpu=where.cpu, cancel=cancel)) for _ in range(PROCESSES)]
            for running, draw in zip(processes, draws, strict=True):
                running.set_state(draw)
            groups = [
                _group(number, running, baselines.ready(), draws[number], positions, cancel=cancel)
                for number, running in enumerate(processes)
            ]
            load = ForeignLoad()
            _interleave(groups, TimedChecks(reference, processes, draws, positions), emit=emit)
            foreign = load.mean()
    finally:
        for draw in draws:
            reference.spend(draw)
    check_accounts(groups)
    return _measured(groups, baselines, where, foreign)


def draw_positions(reference: Reference) -> Positions:
    """Random positions for the inputs that may change between timed calls."""
    changing = reference.facts["changing"]
    return [secrets.randbelow(1 << 20) / (1 << 20) if change else None for change in changing]


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
        accept_timed(trial)

    def finish(self) -> None:
        """Small outputs of all timed calls together: one alone has no spread to be measured by."""
        stacked = self._reference.check_stacks(timed=True)
        if stacked is not None:
            accept_timed(stacked)


def _interleave(groups: list[list[Side]], checks: TimedChecks, *, emit: Emit) -> None:
    """Calibrate, then rounds over all processes, the order of sides reversed from round to round."""
    longest_s = max(side.calibrate() for group in groups for side in group)
    rounds = LONG_ROUNDS if longest_s > LONG_CALL_S else ROUNDS
    checks.choose(rounds)
    for number in range(rounds):
        for group in groups:
            for side in group if number % 2 == 0 else reversed(group):
                salt = new_salt()
                median_us = side.run_undisturbed(salt)
                side.medians_us.append(median_us)
                emit(SliceDone(side=side.name, process=side.number + 1, processes=len(groups), median_us=median_us))
                if side.name == "candidate":
                    checks.after(side.number, number, salt + side.calls - 1)
    checks.finish()


def _measured(groups: list[list[Side]], baselines: Baselines, where: Conditions, foreign: float | None) -> Measured:
    names = [side.name for side in groups[0]]
    by_name = {name: [group[index] for group in groups] for index, name in enumerate(names)}
    slices_us = {name: [side.medians_us for side in sides] for name, sides in by_name.items()}
    slices = len(by_name["candidate"][0].medians_us)
    pinned = f"pinned to core {where.cpu}" if where.cpu is not None else "not pinned"
    return Measured(
        candidate=timing_of("candidate", by_name["candidate"]),
        baselines=tuple(timing_of(name, by_name[name], baselines.note(name)) for name in names[1:]),
        ratios=tuple(paired_ratio(name, slices_us[name], slices_us["candidate"]) for name in names[1:]),
        method=f"{PROCESSES} processes a side, 1 thread, {pinned}, {slices} interleaved slices each, "
        "t interval (95%) over processes, warm caches",
        device=where.device,
        unavailable=baselines.unavailable(),
        foreign_load=foreign,
    )


def all_threads(
    candidate: Candidate, reference: Reference, baselines: Baselines, *, cancel: threading.Event | None = None
) -> tuple[Timing, ...] | BaselineState:
    """Eager and candidate with every core this process may use: a second figure, reported and never certified.

    Nothing where there is one core; the reason alone where the slices of a side disagree, as they do by factors when
    anything else runs on cores that OpenMP's threads wait for.
    """
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
                side.calibrate()
            for _ in range(ALL_THREAD_SLICES):
                for side in sides:
                    side.medians_us.append(side.run(side.calls, new_salt()))
    finally:
        reference.spend(draw)
    for side in sides:
        low, high = min(side.medians_us), max(side.medians_us)
        if high > STEADY * low:
            reason = f"unsteady: the slices of {side.name} run from {low:,.0f} to {high:,.0f} µs"
            return BaselineState(name=f"{threads} threads", reason=reason)
    return tuple(timing_of(side.name, [side], f"{threads} threads, not certified") for side in sides)


@contextlib.contextmanager
def _threaded_eager(
    baselines: Baselines, threads: int, cancel: threading.Event | None
) -> Iterator[Callable[[int, Positions], Timed]]:
    with baselines.threaded(threads, cancel=cancel) as baseline:
        yield lambda seed, positions: baseline.prepare(0, seed, positions, cancel=cancel)
