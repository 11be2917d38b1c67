"""The controller's side of the reference: examined once, then a source of draws and a judge of outputs."""

import secrets
import signal
import threading
import time
from pathlib import Path
from typing import Any

from cuda_tui.errors import ReferenceFault, UsageError
from cuda_tui.evaluation.report import Code, OutputCheck, Trial, Worst
from cuda_tui.evaluation.runtime import Runtime
from cuda_tui.evaluation.workers import Worker, WorkerDied, WorkerFault, WorkerTimedOut
from cuda_tui.records import Record
from cuda_tui.workspace.task import Task

FIRST_LIMIT_S = 300.0
CALL_FACTOR = 50.0  # a stage may take this many reference calls, and never less than the floor
CALL_FLOOR_S = 20.0


class Draw(Record):
    """Inputs and state that a candidate may see, as files in the inbox. The answers stay with the oracle."""

    name: str
    seed: int
    state_seed: int | None
    special: bool
    written: dict[str, Any]
    generation: int = 0  # which oracle process holds its answers
    form: str = ""  # of its inputs, where it is not the usual one


class Reference:
    """The oracle process of one task, warm for the whole session. Calls are serialised by a lock."""

    def __init__(self, runtime: Runtime, model_file: Path) -> None:
        self._runtime = runtime
        self._file = model_file
        self._source = Path(runtime.task.source or model_file)  # what the person calls it
        self._worker: Worker | None = None
        self._lock = threading.RLock()
        self._drawn = 0
        self.generation = 0
        self.facts: dict[str, Any] = {}
        self.state: dict[str, str] = {}  # name to "declared" (parameter or buffer) or "attribute"
        self.init: dict[str, Any] = {}
        self.precision: dict[str, str] = {}  # torch's switches as the model's file leaves them
        self.settings: dict[str, list[str]] = {"functions": [], "switches": []}  # what importing the model changes
        self.call_s = 0.0
        self.weak: set[str] = set()  # outputs that do not vary, or vary by rounding only: they prove nothing

    @property
    def task(self) -> Task:
        """The task this is the reference of."""
        return self._runtime.task

    def start(self, cancel: threading.Event | None = None) -> None:
        """Load and examine the model, once. Raises ReferenceFault naming what is wrong with it."""
        with self._lock:
            if self._worker is not None:
                return
            worker = self._runtime.oracle(self._file.parent)
            try:
                loaded = self.load_into(worker, cancel)
                began = time.monotonic()
                self.facts = worker.ask("examine", limit_s=FIRST_LIMIT_S, cancel=cancel)
                # Two eager calls, one in fp64 and a third: an upper bound of one call.
                unchanged = [
                    path for path, v in zip(self.facts["outputs"], self.facts["varies"], strict=False) if not v
                ]
                self.weak = set(unchanged)
                self.call_s = (time.monotonic() - began) / 3
                self.state, self.settings = loaded["state"], loaded["settings"]
                self.precision = loaded["precision"]
                self.init = worker.ask("construct_arguments", limit_s=60, folder=str(self._runtime.inbox))
            except (WorkerFault, WorkerDied, WorkerTimedOut) as error:
                worker.close()
                raise reference_fault(error, self._source, copy=self._file) from None
            except BaseException:
                worker.close()
                raise
            self.generation += 1
            self._worker = worker

    def load_into(self, worker: Worker, cancel: threading.Event | None = None) -> dict[str, Any]:
        """Load the user's model into a fresh oracle-kind worker."""
        return worker.ask(
            "load",
            limit_s=FIRST_LIMIT_S,
            cancel=cancel,
            path=str(self._file),
            task=task_fields(self.task),
            roots=self._runtime.roots,
            cwd=self._runtime.working_directory or str(self._file.parent),
        )

    def ask(self, operation: str, *, cancel: threading.Event | None = None, **fields: Any) -> dict[str, Any]:
        """One request to the oracle; starts it where needed. A fault of the oracle is a fault of the reference."""
        with self._lock:
            self.start(cancel)
            assert self._worker is not None
            try:
                return self._worker.ask(operation, limit_s=self.limit_s(40), cancel=cancel, **fields)
            except WorkerFault as error:
                raise reference_fault(error, self._source, copy=self._file) from None
            except BaseException as error:
                # Cancelled or dead: its draws are lost, and the next request starts another.
                self.close()
                if isinstance(error, (WorkerDied, WorkerTimedOut)):
                    raise reference_fault(error, self._source, copy=self._file) from None
                raise

    def limit_s(self, calls: int = 1) -> float:
        """Time limit for so many calls of something that should be about as fast as the reference."""
        return min(max(CALL_FLOOR_S, CALL_FACTOR * self.call_s * calls), self.task.time_limit_s)

    def draw(
        self, *, state_seed: int | None = None, special: bool = False, cancel: threading.Event | None = None
    ) -> Draw:
        """A fresh draw with references ready; its seed is new and known to nobody else."""
        with self._lock:
            self._drawn += 1
            name, seed = f"draw-{self._drawn}", secrets.randbits(48)
            folder = str(self._runtime.inbox)
            written = self.ask(
                "draw", cancel=cancel, name=name, seed=seed, folder=folder, state_seed=state_seed, special=special
            )
            if not special:
                self.ask("warm_pool", cancel=cancel, name=name)
            return Draw(
                name=name,
                seed=seed,
                state_seed=state_seed,
                special=special,
                written=written,
                generation=self.generation,
            )

    def draw_form(
        self, base: Draw, form: str, *, only: int | None = None, cancel: threading.Event | None = None
    ) -> Draw:
        """A draw like another whose inputs, all of them or one, are in a form. `written` says so where it is refused.

        It shares the state of `base`, which must not be spent before it.
        """
        with self._lock:
            self._drawn += 1
            name, folder = f"draw-{self._drawn}", str(self._runtime.inbox)
            written = self.ask(
                "draw_form", cancel=cancel, name=name, like=base.name, form=form, only=only, folder=folder
            )
            state = {key: base.written[key] for key in ("state", "state_file")}
            return Draw(
                name=name,
                seed=base.seed,
                state_seed=base.state_seed,
                special=False,
                written=state | written,
                generation=self.generation,
                form=form,
            )

    def spend(self, draw: Draw) -> None:
        """Forget a draw and its files. An oracle that has ended since has forgotten it already."""
        with self._lock:
            if self._worker is not None and draw.generation == self.generation:
                self.ask("forget", name=draw.name)
        for key in ("file", "state_file"):
            if key in draw.written:
                (self._runtime.inbox / draw.written[key]).unlink(missing_ok=True)

    def compare(
        self,
        draw: Draw,
        outputs: Path,
        answer: dict[str, Any],
        *,
        label: str,
        cancel: threading.Event | None = None,
    ) -> Trial:
        """Compare a candidate's exported outputs for a draw."""
        found = self.ask(
            "compare", cancel=cancel, name=draw.name, path=str(outputs), answer=answer, named=bool(draw.form)
        )
        self.weak.update(() if draw.special or draw.form else found.get("weak", ()))
        checks = tuple(_check(row) for row in found["checks"])
        code = Code(found["code"]) if found["code"] else None
        return Trial(name=label, checks=checks, passed=code is None, code=code, reason=found["reason"])

    def compare_gradients(self, draw: Draw, path: Path, answer: dict[str, Any], *, seed: int) -> Trial:
        """Compare a candidate's gradients for a draw."""
        found = self.ask("compare_gradients", name=draw.name, path=str(path), answer=answer, seed=seed)
        code = Code(found["code"]) if found["code"] else None
        checks = tuple(_check(row) for row in found["checks"])
        return Trial(name="gradients", checks=checks, passed=code is None, code=code, reason=found["reason"])

    def forget_stacks(self) -> None:
        """Drop small outputs that a rejected or cancelled candidate left: they are not the next one's."""
        self.ask("check_stacks")

    def check_stacks(self, *, timed: bool = False) -> Trial | None:
        """The small outputs over all draws since the last call; those of timed calls say nothing of the task."""
        rows = self.ask("check_stacks")["rows"]
        if not rows:
            return None
        if not timed:
            self.weak.update(row["output"] for row in rows if row["weak"])
        checks = tuple(_check(row) for row in rows)
        failed = next((row for row in rows if not row["passed"]), None)
        trial = Trial(
            name="small outputs over all draws",
            checks=checks,
            passed=failed is None,
            code=Code.NUM_MISMATCH if failed else None,
            reason=f"{failed['output']}: {failed['reason']}" if failed else "",
        )
        return trial

    def close(self) -> None:
        """End the oracle."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def task_fields(task: Task) -> dict[str, Any]:
    """What the worker needs of a task, as plain data."""
    return {
        "class_name": task.class_name,
        "inputs": task.inputs,
        "init": task.init,
        "mode": task.mode,
        "error_cap": task.error_cap,
    }


def reference_fault(
    error: WorkerFault | WorkerDied | WorkerTimedOut, file: Path, *, copy: Path | None = None
) -> UsageError:
    """A worker's failure on the user's own model, as one message. `copy` is what ran in the file's place."""
    if isinstance(error, WorkerFault):
        text = error.error["message"] if error.error.get("code") == "REFERENCE_FAULT" else str(error)
        place = f" ({error.place})" if error.place else ""
        if copy is not None:
            place = place.replace(str(copy), str(file))
            text = text.replace(f"at {copy.name}:", f"at {file.name}:")
        needs_gpu = "CUDA" in text or "cuda" in text
        hint = "The model asks for a GPU, and this process has none: make its device a parameter." if needs_gpu else ""
        return ReferenceFault(f"{file.name}: {text.splitlines()[0] if text else error}{place}", hint=hint)
    if isinstance(error, WorkerTimedOut):
        return ReferenceFault(
            f"{file.name}: {error}", hint="Give smaller example inputs, or raise time_limit_s in task.toml."
        )
    return ReferenceFault(f"{file.name}: the reference ended its process with {_status(error.status)}")


def _status(status: int | None) -> str:
    if status is None or status >= 0:
        return f"status {status}"
    return f"signal {-status} ({signal.strsignal(-status) or 'unknown'})"


def _check(row: dict[str, Any]) -> OutputCheck:
    return OutputCheck(
        output=row["output"],
        dtype=row["dtype"],
        shape=tuple(row["shape"]),
        passed=row["passed"],
        error=row["error"],
        limit=row["limit"],
        eager_error=row["eager_error"],
        max_abs_error=row.get("max_abs_error", 0.0),
        nonfinite_mismatches=row.get("nonfinite_mismatches", 0),
        worst=tuple(
            Worst(index=tuple(item["index"]), expected=item["expected"], actual=item["actual"])
            for item in row.get("worst", ())
        ),
        error_map=tuple(tuple(line) for line in row.get("error_map", ())),
        reason=row["reason"],
    )
