"""What stays warm between the evaluations of one workspace: the oracle, draws made ahead, and the baselines."""

import os
import threading
from contextlib import AbstractContextManager

from cuda_tui.errors import Cancelled
from cuda_tui.evaluation import device_measure
from cuda_tui.evaluation.baselines import CPU_WAYS, GPU_WAYS, Baselines
from cuda_tui.evaluation.build.warm import warm_header
from cuda_tui.evaluation.machine import Place, conditions
from cuda_tui.evaluation.memory import TooLittleMemory, memory_problem
from cuda_tui.evaluation.reference import Reference
from cuda_tui.evaluation.runtime import Interpreter, Runtime
from cuda_tui.evaluation.verify import DrawPool
from cuda_tui.gpu import lease
from cuda_tui.workspace.workspace import Workspace

LEASE_WAIT_S = 900.0  # another measurement may take minutes, never a quarter of an hour


class Bench:
    """The processes of one workspace; each starts when it is first needed, or ahead of that by `warm_up`."""

    def __init__(self, workspace: Workspace, *, interpreter: Interpreter, cancel: threading.Event) -> None:
        self._model_file = workspace.root / workspace.task.file
        self._cancel = cancel
        self._on_gpu = workspace.task.device.startswith("cuda")
        self._warming: threading.Thread | None = None
        self.runtime = Runtime(root=workspace.root, task=workspace.task, interpreter=interpreter)
        self.runtime.cancel = cancel
        self.reference = Reference(self.runtime, self._model_file)
        self.pool = DrawPool(self.reference, workspace.task.draws)
        self._place = Place.of(workspace.task.device, interpreter.environment)
        self._fits = False
        self._baselines = self._new_baselines()

    def _new_baselines(self) -> Baselines:
        ways = GPU_WAYS if self._on_gpu else CPU_WAYS
        return Baselines(self.runtime, self.reference, self._model_file, ways=ways)

    def _start_baselines(self) -> None:
        self._check_memory()
        # On a GPU processes run on cores of their own, and compilation takes most of the time.
        at_once = min(len(GPU_WAYS), max(1, (os.cpu_count() or 1) // 2)) if self._on_gpu else 1
        cpu = None if self._on_gpu else conditions().cpu
        self._baselines.start(cpu=cpu, at_once=at_once, alone=self._alone, cancel=self._cancel)

    def warm_up(self) -> None:
        """Start everything in the background; failures surface in the first call that needs it."""
        if self._warming is None:
            self._warming = threading.Thread(target=self._warm, name="evaluator-warm-up", daemon=True)
            self._warming.start()

    def _warm(self) -> None:
        try:
            self.reference.start(self._cancel)
            self.pool.fill(self._cancel)
            runtime = self.runtime
            warm = runtime.new_folder("warm")
            warm_header(
                warm,
                python=runtime.python,
                env=runtime.environment,
                cache_folder=runtime.cache,
                run=runtime.run_command(warm),
                cancel=self._cancel,
            )
            if not runtime.no_gpu:
                self._start_baselines()
        except Exception:  # the first call that needs it meets the same fault and reports it
            return

    def _alone(self) -> AbstractContextManager[None]:
        """The GPU to ourselves: choices timed beside a measurement would be wrong, and disturb it."""
        return lease(self._place.lease, wait_s=LEASE_WAIT_S, cancel=self._cancel)

    def _check_memory(self) -> None:
        """Once, before the baselines take their share. Raises TooLittleMemory."""
        if not self._on_gpu or self._fits:
            return
        self.reference.start(self._cancel)
        sizes = {name: int(self.reference.facts[name]) for name in ("state_bytes", "draw_bytes")}
        processes = device_measure.PROCESSES + sum(way.processes for way in GPU_WAYS)
        if problem := memory_problem(self._place.free_bytes(), processes=processes, **sizes):
            raise TooLittleMemory(problem)
        self._fits = True

    def quiet(self) -> None:
        """Wait for the end of a warm-up, which would disturb a measurement. Raises Cancelled."""
        while self._warming is not None and self._warming.is_alive():
            if self._cancel.is_set():
                raise Cancelled("cancelled")
            self._warming.join(timeout=0.1)

    def baselines(self) -> Baselines:
        """The baselines, started. Raises ReferenceFault and TooLittleMemory."""
        self._start_baselines()
        return self._baselines

    def reset_baselines(self) -> None:
        """After a cancel some of their processes may be gone."""
        self._baselines.close()
        self._baselines = self._new_baselines()

    def close(self) -> None:
        """End all processes and remove the run's files. The interpreter's warm parent stays."""
        if self._warming is not None:
            self._warming.join(timeout=5)
        self.runtime.close()
