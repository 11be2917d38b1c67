"""Eager and torch.compile, each in processes of its own that stay warm through the session."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from cuda_tui.evaluation.reference import Reference, reference_fault
from cuda_tui.evaluation.report import BaselineState
from cuda_tui.evaluation.runtime import Runtime
from cuda_tui.evaluation.timed import Positions, Timed
from cuda_tui.evaluation.workers import Worker, WorkerDied, WorkerFault, WorkerTimedOut

COMPILE_LIMIT_S = 300.0


class Baseline:
    """One way to run the reference: its processes, or the reason why it is not valid."""

    def __init__(self, name: str, workers: list[Worker], limit_s: Callable[[int], float], note: str = "") -> None:
        self.name = name
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

    def close(self) -> None:
        """End its processes."""
        for worker in self._workers:
            worker.close()


class Baselines:
    """All baselines of one task; started once, in the background if wanted."""

    def __init__(self, runtime: Runtime, reference: Reference, model_file: Path, *, processes: int) -> None:
        self._runtime = runtime
        self._reference = reference
        self._file = model_file
        self._processes = processes
        self._baselines: list[Baseline] = []
        self._unavailable: list[BaselineState] = []
        self._started = False
        self._lock = threading.Lock()

    def start(self, *, cpu: int | None, cancel: threading.Event | None = None) -> None:
        """Load eager and compile processes. A compile that is not clean is unavailable, with its reason."""
        with self._lock:
            if self._started:
                return
            self._reference.start(cancel)
            if not self._baselines:
                self._baselines.append(self._load("eager", compiled=False, cpu=cpu, cancel=cancel))
            try:
                self._baselines.append(self._load("compile", compiled=True, cpu=cpu, cancel=cancel))
            except (WorkerFault, WorkerDied, WorkerTimedOut) as error:
                text = error.error["message"] if isinstance(error, WorkerFault) else str(error)
                reason = (text.strip().splitlines() or ["no reason given"])[0][:300]
                self._unavailable.append(BaselineState(name="compile", reason=reason))
            self._started = True

    def _load(self, name: str, *, compiled: bool, cpu: int | None, cancel: threading.Event | None) -> Baseline:
        workers: list[Worker] = []
        note = ""
        try:
            for _ in range(self._processes):
                worker = self._runtime.oracle(self._file.parent, cpu=cpu)
                workers.append(worker)
                self._reference.load_into(worker, cancel)
                if compiled:
                    facts = worker.ask("compile", limit_s=COMPILE_LIMIT_S, cancel=cancel)
                    note = note or f"{facts['graphs']} graphs, {facts['graph_breaks']} breaks"
        except BaseException as error:
            for worker in workers:
                worker.close()
            if not compiled and isinstance(error, (WorkerFault, WorkerDied, WorkerTimedOut)):
                raise reference_fault(error, self._file) from None
            raise
        return Baseline(name, workers, self._reference.limit_s, note)

    def ready(self) -> list[Baseline]:
        """The valid ones, eager first."""
        return list(self._baselines)

    def unavailable(self) -> tuple[BaselineState, ...]:
        """The others, with reasons."""
        return tuple(self._unavailable)

    def note(self, name: str) -> str:
        """What is worth knowing of a baseline."""
        return next((baseline.note for baseline in self._baselines if baseline.name == name), "")

    @contextlib.contextmanager
    def threaded(self, threads: int, *, cancel: threading.Event | None = None) -> Iterator[Baseline]:
        """Eager in one process with this many threads."""
        worker = self._runtime.oracle(self._file.parent, threads=threads)
        baseline = Baseline("eager", [worker], self._reference.limit_s)
        try:
            self._reference.load_into(worker, cancel)
            yield baseline
        finally:
            worker.close()

    def close(self) -> None:
        """End all processes."""
        for baseline in self._baselines:
            baseline.close()
