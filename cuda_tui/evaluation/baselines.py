"""Eager and torch.compile, each in processes of its own that stay warm through the session."""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuda_tui.evaluation.reference import Reference, reference_fault
from cuda_tui.evaluation.report import BaselineState
from cuda_tui.evaluation.runtime import Runtime
from cuda_tui.evaluation.timed import Positions, Timed
from cuda_tui.evaluation.workers import Worker, WorkerDied, WorkerFault, WorkerTimedOut

COMPILE_LIMIT_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to run the reference. Modes with graphs of their own cannot be captured, and go by the wall clock."""

    name: str
    processes: int
    mode: str | None = None  # of torch.compile; None is eager
    wall_only: bool = False
    tunes: bool = False  # times its own choices while it compiles: the first process of all such does so alone


CPU_WAYS = (Way(name="eager", processes=4), Way(name="compile", processes=4, mode="default"))
GPU_WAYS = (
    Way(name="eager", processes=2),
    Way(name="compile", processes=2, mode="default"),
    Way(name="compile max-autotune", processes=2, mode="max-autotune-no-cudagraphs", tunes=True),
    Way(name="compile reduce-overhead", processes=2, mode="reduce-overhead", wall_only=True),
    Way(name="compile max-autotune, graphs", processes=2, mode="max-autotune", wall_only=True, tunes=True),
)


class Baseline:
    """One way to run the reference: its processes, or the reason why it is not valid."""

    def __init__(self, way: Way, workers: list[Worker], limit_s: Callable[[int], float], note: str = "") -> None:
        self.name = way.name
        self.wall_only = way.wall_only
        self.note = note
        self._workers = workers
        self._limit_s = limit_s

    def prepare(self, number: int, seed: int, positions: Positions, *, cancel: threading.Event | None = None) -> Timed:
        """Make process `number` ready for a draw."""
        worker = self._workers[number]
        worker.ask("prepare", limit_s=self._limit_s(1), cancel=cancel, seed=seed, positions=positions)
        return Timed(
            lambda: worker.ask("renew", limit_s=self._limit_s(1), cancel=cancel),
            lambda calls, salt: worker.ask(
                "time_slice", limit_s=self._limit_s(calls), cancel=cancel, calls=calls, salt=salt
            ),
        )

    @property
    def processes(self) -> int:
        """How many there are."""
        return len(self._workers)

    def ask(
        self, number: int, operation: str, *, calls: int = 1, cancel: threading.Event | None = None, **fields: Any
    ) -> dict[str, Any]:
        """One request to process `number`, which may take as long as so many calls."""
        return self._workers[number].ask(operation, limit_s=self._limit_s(calls), cancel=cancel, **fields)

    def join(self, other: "Baseline") -> None:
        """Take over another one's processes."""
        self._workers += other._workers

    def close(self) -> None:
        """End its processes."""
        for worker in self._workers:
            worker.close()


class Baselines:
    """All baselines of one task; started once, in the background if wanted."""

    def __init__(
        self, runtime: Runtime, reference: Reference, model_file: Path, *, ways: tuple[Way, ...] = CPU_WAYS
    ) -> None:
        self._runtime = runtime
        self._reference = reference
        self._file = model_file
        self._ways = ways
        self._baselines: dict[str, Baseline] = {}
        self._unavailable: dict[str, BaselineState] = {}
        self._lock = threading.Lock()

    def start(
        self,
        *,
        cpu: int | None,
        at_once: int = 1,
        alone: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
        cancel: threading.Event | None = None,
    ) -> None:
        """Load all processes, so many at a time. A compile that is not clean is unavailable, with its reason; eager
        raises. The first process that tunes runs while nothing else does, inside `alone()`, and leaves its choices in
        the compiler's cache for the others."""
        with self._lock:
            missing = [way for way in self._ways if way.name not in self._baselines | self._unavailable]
            if not missing:
                return
            self._reference.start(cancel)
            self._load_all([way for way in missing if not way.tunes], at_once, cpu, cancel)
            tuning = [way for way in missing if way.tunes]
            if tuning:
                with alone():
                    self._load_way(dataclasses.replace(tuning[0], processes=1), cpu, cancel)
            more = [dataclasses.replace(way, processes=way.processes - 1) for way in tuning[:1]]
            self._load_all([*more, *tuning[1:]], at_once, cpu, cancel)

    def _load_all(self, ways: list[Way], at_once: int, cpu: int | None, cancel: threading.Event | None) -> None:
        with ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="baseline") as pool:
            for loading in [pool.submit(self._load_way, way, cpu, cancel) for way in ways]:
                loading.result()

    def _load_way(self, way: Way, cpu: int | None, cancel: threading.Event | None) -> None:
        if way.name in self._unavailable:
            return
        try:
            loaded = self._load(way, cpu=cpu, cancel=cancel)
            if way.name in self._baselines:
                self._baselines[way.name].join(loaded)
            else:
                self._baselines[way.name] = loaded
        except (WorkerFault, WorkerDied, WorkerTimedOut) as error:
            text = error.error["message"] if isinstance(error, WorkerFault) else str(error)
            reason = (text.strip().splitlines() or ["no reason given"])[0][:300]
            if way.name not in self._baselines:  # else it has one process fewer
                self._unavailable[way.name] = BaselineState(name=way.name, reason=reason)

    def _load(self, way: Way, *, cpu: int | None, cancel: threading.Event | None) -> Baseline:
        workers: list[Worker] = []
        note = ""
        try:
            for _ in range(way.processes):
                worker = self._runtime.oracle(self._file.parent, cpu=cpu)
                workers.append(worker)
                self._reference.load_into(worker, cancel)
                if way.mode is not None:
                    facts = worker.ask("compile", limit_s=COMPILE_LIMIT_S, cancel=cancel, mode=way.mode)
                    note = note or f"{facts['graphs']} graphs, {facts['graph_breaks']} breaks"
        except BaseException as error:
            for worker in workers:
                worker.close()
            if way.mode is None and isinstance(error, (WorkerFault, WorkerDied, WorkerTimedOut)):
                raise reference_fault(error, self._file) from None
            raise
        return Baseline(way, workers, self._reference.limit_s, note)

    def enlarge(self, names: tuple[str, ...], count: int, *, cancel: threading.Event | None = None) -> None:
        """Bring valid baselines to so many processes, side by side. Raises ReferenceFault."""
        with self._lock, ThreadPoolExecutor(max_workers=count, thread_name_prefix="baseline") as pool:
            for way in self._ways:
                baseline = self._baselines.get(way.name)
                if way.name not in names or baseline is None:
                    continue
                more = dataclasses.replace(way, processes=1)
                loading = [
                    pool.submit(self._load, more, cpu=None, cancel=cancel) for _ in range(count - baseline.processes)
                ]
                for loaded in loading:
                    # One that does not load is one process fewer, and the interval is wider for it.
                    with contextlib.suppress(WorkerFault, WorkerDied, WorkerTimedOut):
                        baseline.join(loaded.result())

    def ready(self) -> list[Baseline]:
        """The valid ones, eager first."""
        return [self._baselines[way.name] for way in self._ways if way.name in self._baselines]

    def unavailable(self) -> tuple[BaselineState, ...]:
        """The others, with reasons."""
        return tuple(self._unavailable[way.name] for way in self._ways if way.name in self._unavailable)

    def note(self, name: str) -> str:
        """What is worth knowing of a baseline."""
        return self._baselines[name].note if name in self._baselines else ""

    @contextlib.contextmanager
    def threaded(self, threads: int, *, cancel: threading.Event | None = None) -> Iterator[Baseline]:
        """Eager in one process with this many threads."""
        worker = self._runtime.oracle(self._file.parent, threads=threads)
        baseline = Baseline(Way(name="eager", processes=1), [worker], self._reference.limit_s)
        try:
            self._reference.load_into(worker, cancel)
            yield baseline
        finally:
            worker.close()

    def close(self) -> None:
        """End all processes."""
        for baseline in self._baselines.values():
            baseline.close()
