"""Measurement on a GPU.

Four fresh candidate processes against warm baselines, all captured as chained single-call graphs over rotating inputs
(worker/graphs.py). Everything is built first; one round is not recorded, four are; each candidate slice stands between
slices of every baseline, and no process is measured alone. A ratio's interval is the bootstrap over the candidates of
the mean log ratio. Where the model or the candidate cannot be captured, queued batches over seven processes a side
take the place: weaker evidence, never certified. Wall time as called is taken beside either. docs/measuring.md has the
reasons.
"""

import contextlib
import itertools
import random
import secrets
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

from cuda_tui.evaluation import device_checks as checks
from cuda_tui.evaluation.answers import Prepared
from cuda_tui.evaluation.baselines import Baseline, Baselines
from cuda_tui.evaluation.candidate import Candidate, CandidateProcess, read_prepared
from cuda_tui.evaluation.machine import GpuWatch
from cuda_tui.evaluation.progress import Emit, SliceDone
from cuda_tui.evaluation.reference import Draw, Reference
from cuda_tui.evaluation.report import Measured, Timing
from cuda_tui.evaluation.statistics import bootstrap_ratio, welch_ratio
from cuda_tui.evaluation.workers import WorkerDied, WorkerFault, WorkerTimedOut

PROCESSES, BATCH_PROCESSES = 4, 7
ROUNDS, BATCH_ROUNDS, WALL_ROUNDS = 4, 6, 5
BATCH_MARGIN = 0.05  # what the interval of the weaker method must clear
SLICE_TRIES = 4
SPREAD = 1.05  # p90 of a slice over its median; beyond, something disturbed it
POWER_PAUSE_S = 0.2
LAUNCH_GAIN = 1.2  # wall ratio over device ratio; beyond, launches are where the gain is
GRAPHS = "CUDA graphs"


@dataclass
class Process:
    """One process of one side, ready to be timed."""

    name: str
    number: int
    ask: Callable[..., dict[str, Any]]  # (operation, **fields) -> answer
    prepared: Prepared
    slices_us: list[float] = field(default_factory=list)
    walls_us: list[float] = field(default_factory=list)
    probes_us: list[float] = field(default_factory=list)
    foreign_us: int = 0
    dropped: int = 0
    recorded_us: float = 0.0  # of recorded slices, with all that stands between their windows

    def slice(self, *, record: bool, pause_s: float) -> tuple[float, int]:
        """The median of one undisturbed slice in microseconds a call, and the seed that its inputs were made from."""
        median_us, seed = 0.0, 0
        for attempt in range(SLICE_TRIES):
            time.sleep(pause_s)
            seed = secrets.randbits(48)
            began = time.monotonic()
            answer = self.ask("graph_slice", seed=seed, record=record)
            checks.check_clock(answer, time.monotonic() - began, self.prepared)
            spans = sorted(answer["spans_us"])
            median_us = statistics.median(spans)
            if record:
                self.foreign_us += answer["foreign_us"]
                self.recorded_us += answer["total_ns"] / 1e3
                self.probes_us.append(answer["probe_us"])
            if not record or spans[int(0.9 * len(spans))] <= SPREAD * median_us or attempt == SLICE_TRIES - 1:
                break
            self.dropped += 1
        return median_us, seed


@dataclass
class Field:
    """All processes of one measurement, and what they work on."""

    candidates: list[Process]
    running: list[CandidateProcess]
    baselines: dict[str, list[Process]]
    draw: Draw
    changing: list[bool]
    reference: Reference
    watch: GpuWatch
    emit: Emit
    pause_s: float = 0.0

    def partner(self, name: str, number: int) -> Process:
        """The baseline's process that candidate `number` is compared with."""
        processes = self.baselines[name]
        return processes[number % len(processes)]

    def told(self, process: Process, median_us: float) -> None:
        """Report a slice."""
        side = self.candidates if process.name == "candidate" else self.baselines[process.name]
        self.emit(SliceDone(side=process.name, process=process.number + 1, processes=len(side), median_us=median_us))


def measure(
    candidate: Candidate,
    reference: Reference,
    baselines: Baselines,
    *,
    watch: GpuWatch,
    emit: Emit,
    cancel: threading.Event | None = None,
) -> Measured:
    """Time the candidate against every valid baseline. Raises Rejected where timing itself convicts it."""
    why = ""
    draw = reference.draw(cancel=cancel)
    try:
        with _field(candidate, reference, baselines, (draw, watch, emit, "graph"), cancel) as field_:
            why = _not_capturable(field_)
            if not why:
                return _by_graphs(field_, baselines)
        with _field(candidate, reference, baselines, (draw, watch, emit, "batch"), cancel) as field_:
            return _by_batches(field_, baselines, why)
    finally:
        reference.spend(draw)


# ---- processes


@contextlib.contextmanager
def _field(
    candidate: Candidate,
    reference: Reference,
    baselines: Baselines,
    on: "tuple[Draw, GpuWatch, Emit, Literal['graph', 'batch']]",
    cancel: threading.Event | None,
) -> Iterator[Field]:
    """Every process, started and made ready side by side."""
    draw, watch, emit, how = on
    changing = [bool(change) for change in reference.facts["changing"]]
    count = PROCESSES if how == "graph" else BATCH_PROCESSES
    if how == "batch":
        baselines.enlarge(("eager", "compile"), BATCH_PROCESSES, cancel=cancel)
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(max_workers=count, thread_name_prefix="measure") as pool:
        contexts = [candidate.process(cancel=cancel) for _ in range(count)]
        entering = [pool.submit(context.__enter__) for context in contexts]
        for context, entered in zip(contexts, entering, strict=True):
            if entered.exception() is None:
                stack.push(context.__exit__)
        running = [entered.result() for entered in entering]

        def ready(process: CandidateProcess) -> Prepared:
            process.set_state(draw)
            return process.prepare_on_gpu(draw, changing, how)

        prepared = list(pool.map(ready, running))
        candidates = [
            Process("candidate", number, _asking(process), answer)
            for number, (process, answer) in enumerate(zip(running, prepared, strict=True))
        ]
        stack.callback(_release, baselines)
        sides = {b.name: _prepare(b, draw, changing, how, most=count, cancel=cancel) for b in baselines.ready()}
        yield Field(candidates, running, sides, draw, changing, reference, watch, emit)


def _release(baselines: Baselines) -> None:
    """Free the graphs and sets of every baseline, however the measurement ended; one that is dead has none."""
    for baseline in baselines.ready():
        for number in range(baseline.processes):
            with contextlib.suppress(WorkerDied, WorkerFault, WorkerTimedOut):
                baseline.ask(number, "release")


def _asking(running: CandidateProcess) -> Callable[..., dict[str, Any]]:
    operations: dict[str, Callable[..., dict[str, Any]]] = {
        "graph_slice": running.graph_slice,
        "batch": running.batch,
    }
    return lambda operation, **fields: operations[operation](**fields)


def _prepare(
    baseline: Baseline, draw: Draw, changing: list[bool], how: str, *, most: int, cancel: threading.Event | None
) -> list[Process]:
    how = "batch" if baseline.wall_only else how
    processes = []
    for number in range(min(baseline.processes, most)):
        answer = baseline.ask(
            number, "prepare_on_gpu", calls=200, cancel=cancel, seed=draw.seed, changing=changing, how=how
        )

        def ask(operation: str, number: int = number, **fields: Any) -> dict[str, Any]:
            return baseline.ask(number, operation, calls=500, cancel=cancel, **fields)

        processes.append(Process(baseline.name, number, ask, read_prepared(answer)))
    return processes


def _not_capturable(field_: Field) -> str:
    """Why candidate or eager cannot become a graph; empty where both can."""
    for who, processes in (("the candidate", field_.candidates), ("eager", field_.baselines["eager"])):
        for process in processes:
            if process.prepared.not_capturable:
                return f"{who} cannot be captured: {process.prepared.not_capturable}"
    return ""


# ---- graphs


def _by_graphs(field_: Field, baselines: Baselines) -> Measured:
    captured = [name for name, processes in field_.baselines.items() if all(p.prepared.graph for p in processes)]
    eager = field_.baselines["eager"]
    notes = checks.check_audits(field_.candidates, eager)
    logs: dict[str, list[list[tuple[float, float]]]] = {name: [[] for _ in field_.candidates] for name in captured}
    chosen = [secrets.randbelow(ROUNDS) for _ in field_.candidates]
    for round_number in range(-1, ROUNDS):
        for process in random.sample(field_.candidates, len(field_.candidates)):
            seed = _bracketed(field_, process, captured, logs, record=round_number >= 0)
            if round_number == chosen[process.number]:
                checks.check_replay(field_, process, seed)
        if field_.watch.power_limited and not field_.pause_s:
            field_.pause_s = POWER_PAUSE_S
            notes.append("the GPU reached its power limit: 200 ms of rest before each slice")
    checks.check_small_outputs(field_)
    checks.check_company(field_.candidates, eager, clock_is_steady=not field_.watch.power_limited)
    walls = _walls(field_)
    ratios = tuple(bootstrap_ratio(name, [list(pairs) for pairs in logs[name]]) for name in captured)
    for name, processes in field_.baselines.items():
        reason = processes[0].prepared.not_capturable
        if reason:
            notes.append(f"{name} cannot be captured and is shown by wall time alone: {reason}")
    facts = field_.candidates[0].prepared.graph
    assert facts is not None
    warm = "" if facts.sets < checks.MOST_SETS else "; the sets stay in the L2 cache (warm)"
    return Measured(
        candidate=_timing(field_.candidates, facts.calls),
        baselines=tuple(_timing(field_.baselines[name], facts.calls, baselines.note(name)) for name in captured),
        ratios=ratios,
        method=f"chained {GRAPHS} of {facts.calls} calls over {facts.sets} rewritten input sets, {PROCESSES} candidate "
        f"processes, {ROUNDS} rounds between baseline slices, bootstrap (95%) over processes{warm}",
        device=field_.watch.name,
        unavailable=(*baselines.unavailable(), *checks.uncaptured(field_.baselines)),
        clock="graph",
        wall=walls,
        gpu=field_.watch.conditions(),
        notes=tuple([*notes, *_launch_note(field_, walls)]),
    )


def _bracketed(
    field_: Field,
    process: Process,
    captured: list[str],
    logs: dict[str, list[list[tuple[float, float]]]],
    *,
    record: bool,
) -> int:
    """Baselines, the candidate, baselines in the opposite order. Returns the seed of the candidate's slice."""
    partners = [field_.partner(name, process.number) for name in captured]
    before = [_slice(field_, partner, record)[0] for partner in partners]
    own_us, seed = _slice(field_, process, record)
    after = [_slice(field_, partner, record)[0] for partner in reversed(partners)][::-1]
    if record:
        for name, first, second in zip(captured, before, after, strict=True):
            logs[name][process.number].append(((first + second) / 2, own_us))
    return seed


def _slice(field_: Field, process: Process, record: bool) -> tuple[float, int]:
    median_us, seed = process.slice(record=record, pause_s=field_.pause_s)
    if record:
        process.slices_us.append(median_us)
        field_.told(process, median_us)
    return median_us, seed


# ---- batches and wall time


def _by_batches(field_: Field, baselines: Baselines, why: str) -> Measured:
    names = [
        name
        for name, processes in field_.baselines.items()
        if len(processes) > 1 and not _is_wall_only(baselines, name)
    ]
    for round_number in range(-1, BATCH_ROUNDS):
        for process in field_.candidates:
            partners = [field_.baselines[name][process.number :][:1] for name in names]
            for side in [*itertools.chain(*partners), process]:
                seed = secrets.randbits(48)  # the candidate's is the last one
                answer = side.ask("batch", seed=seed)
                if round_number >= 0:
                    side.slices_us.append(answer["event_us"])
                    field_.told(side, answer["event_us"])
            if round_number == BATCH_ROUNDS - 1:
                checks.check_batch(field_, process, seed)
    checks.check_small_outputs(field_)
    walls = _walls(field_)
    ratios = tuple(
        welch_ratio(name, _medians(field_.baselines[name]), _medians(field_.candidates), margin=BATCH_MARGIN)
        for name in names
    )
    return Measured(
        candidate=_timing(field_.candidates, 1),
        baselines=tuple(_timing(field_.baselines[name], 1, baselines.note(name)) for name in names),
        ratios=ratios,
        method=f"queued batches between events, {BATCH_PROCESSES} candidate processes, {BATCH_ROUNDS} interleaved "
        f"rounds, Welch t interval (95%) over processes that must clear {BATCH_MARGIN:.0%}; not certified",
        device=field_.watch.name,
        unavailable=baselines.unavailable(),
        clock="events",
        certified=False,
        wall=walls,
        gpu=field_.watch.conditions(),
        notes=(f"{why}; so launches and gaps are in these times, and they are weaker evidence",),
    )


def _medians(processes: list[Process]) -> list[float]:
    return [statistics.median(process.slices_us) for process in processes if process.slices_us]


def _walls(field_: Field) -> tuple[Timing, ...]:
    """Wall time as called, of every process, in interleaved rounds; the first one of each is not counted."""
    sides = {"candidate": field_.candidates} | field_.baselines
    for round_number in range(-1, WALL_ROUNDS):
        for processes in sides.values():
            for process in processes:
                wall_us = process.ask("batch", seed=secrets.randbits(48))["wall_us"]
                if round_number >= 0:
                    process.walls_us.append(wall_us)
    return tuple(
        Timing(
            name=name,
            process_medians_us=tuple(statistics.median(process.walls_us) for process in processes),
            calls=0,
            slices=WALL_ROUNDS * len(processes),
        )
        for name, processes in sides.items()
    )


def _is_wall_only(baselines: Baselines, name: str) -> bool:
    return any(baseline.wall_only for baseline in baselines.ready() if baseline.name == name)


def _launch_note(field_: Field, walls: tuple[Timing, ...]) -> list[str]:
    """Where the gain is in launches rather than on the device, say so."""
    wall_us = {timing.name: timing.median_us for timing in walls}
    own_us = statistics.median(us for process in field_.candidates for us in process.slices_us)
    eager_us = statistics.median(us for process in field_.baselines["eager"] for us in process.slices_us)
    as_called, on_device = wall_us["eager"] / wall_us["candidate"], eager_us / own_us
    if as_called < LAUNCH_GAIN * on_device or as_called < LAUNCH_GAIN:
        return []
    return [
        f"most of the gain is in launches: as called {wall_us['candidate']:,.0f} µs against eager's "
        f"{wall_us['eager']:,.0f} µs ({as_called:.2f}x), on the device {on_device:.2f}x"
    ]


def _timing(processes: list[Process], calls: int, note: str = "") -> Timing:
    slices = sum(len(process.slices_us) for process in processes)
    return Timing(
        name=processes[0].name,
        process_medians_us=tuple(_medians(processes)),
        calls=slices * calls * (processes[0].prepared.graph.replays - 1 if processes[0].prepared.graph else 1),
        slices=slices,
        dropped_slices=sum(process.dropped for process in processes),
        note=note,
    )
