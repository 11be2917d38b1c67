"""The controller's side of a candidate: a copy of its files, fresh processes, and what their ends mean."""

import contextlib
import hashlib
import secrets
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from cuda_tui.evaluation import faults
from cuda_tui.evaluation.answers import (
    BatchAnswer,
    CompileAnswer,
    ExportAnswer,
    GradientAnswer,
    GraphSliceAnswer,
    Prepared,
    ProfileAnswer,
    SliceAnswer,
    StateAnswer,
)
from cuda_tui.evaluation.reference import Draw, Reference
from cuda_tui.evaluation.report import BuildReport, Code, Trial
from cuda_tui.evaluation.runtime import Runtime
from cuda_tui.evaluation.timed import Positions, Timed
from cuda_tui.evaluation.workers import Worker, WorkerDied, WorkerFault, WorkerTimedOut
from cuda_tui.records import Record
from cuda_tui.workspace.workspace import Workspace

LOAD_LIMIT_S = 120.0
COMPILE_LIMIT_S = 60.0  # of tracing a model as one graph; nothing is generated


class Rejected(Exception):
    """The candidate is at fault; the code and sentence are the report's."""

    def __init__(self, code: Code, reason: str, *, refusal: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.refusal = refusal  # the candidate's own words, where it raised and its process is as good as before


def accept_timed(trial: Trial) -> None:
    """Raise Rejected where the output of a timed call is wrong: untimed ones were right."""
    if not trial.passed:
        stale = trial.code in (None, Code.NUM_MISMATCH, Code.PRECISION, Code.NONFINITE)
        code = Code.STALE_RESULT if stale or trial.code is None else trial.code
        raise Rejected(code, f"the output of a timed call is wrong: {trial.reason}")


class Candidate:
    """One state of the workspace's files with the library built from them, copied away from the agent's hands."""

    def __init__(self, workspace: Workspace, build: BuildReport | None, runtime: Runtime, reference: Reference) -> None:
        self._runtime = runtime
        self._reference = reference
        self.files = runtime.new_folder("candidate")
        workspace.snapshot_copy(self.files)
        # The reference is not the candidate's to read: what imports it fails, and says so.
        (self.files / workspace.task.file).unlink(missing_ok=True)
        self.library = self._copy_library(workspace, build)
        self.hashes = {
            str(path.relative_to(self.files)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.files.rglob("*"))
            if path.is_file() and ".git" not in path.parts
        }

    def _copy_library(self, workspace: Workspace, build: BuildReport | None) -> Path | None:
        if build is None or build.library is None:
            return None
        built = workspace.root / build.library
        folder = self.files / "library"
        folder.mkdir()
        shutil.copy2(built, folder)
        shutil.copy2(built.with_suffix(".json"), folder)
        copied = folder / built.name
        if hashlib.sha256(copied.read_bytes()).hexdigest() != build.library_sha256:
            raise Rejected(Code.TAMPER, f"{built.name} is not the file that was built")
        return copied

    @contextlib.contextmanager
    def process(
        self, *, threads: int = 1, cpu: int | None = None, cancel: threading.Event | None = None
    ) -> Iterator["CandidateProcess"]:
        """A fresh isolated process with the candidate loaded. Raises Rejected where it does not load."""
        outbox = self._runtime.new_folder("outbox")
        worker = self._runtime.candidate(self.files, outbox, threads=threads, cpu=cpu)
        running = CandidateProcess(worker, outbox, self._runtime.inbox, self._reference, cancel)
        try:
            running.load(load_request(self, self._runtime, self._reference))
            yield running
        finally:
            worker.close()
            shutil.rmtree(outbox, ignore_errors=True)

    def check_unchanged(self) -> None:
        """The files are still what was hashed. Raises Rejected otherwise."""
        for name, digest in self.hashes.items():
            path = self.files / name
            if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
                raise Rejected(Code.TAMPER, f"{name} changed while the candidate ran")

    def close(self) -> None:
        """Remove the copy."""
        shutil.rmtree(self.files, ignore_errors=True)


def load_request(candidate: Candidate, runtime: Runtime, reference: Reference) -> dict[str, Any]:
    """What a worker needs to load a candidate: paths, constructor arguments and torch's switches."""
    return {
        "folder": str(candidate.files),
        "path": str(candidate.files / "model_new.py"),
        "roots": [str(candidate.files), *runtime.roots],
        "library": str(candidate.library) if candidate.library else None,
        "seed": secrets.randbits(32),
        "init": reference.init,
        "inbox": str(runtime.inbox),
        "mode": reference.task.mode,
        "precision": reference.precision,
    }


class CandidateProcess:
    """One loaded candidate."""

    def __init__(
        self, worker: Worker, outbox: Path, inbox: Path, reference: Reference, cancel: threading.Event | None
    ) -> None:
        self._worker = worker
        self._outbox = outbox
        self._inbox = inbox
        self._reference = reference
        self._cancel = cancel
        self._exports = 0

    def load(self, request: dict[str, Any]) -> None:
        """Import model_new and construct ModelNew, as `load_request` says."""
        self.ask("load", LOAD_LIMIT_S, request=request)

    def ask(self, operation: str, limit_s: float, **fields: Any) -> dict[str, Any]:
        """One request. Every failure is the candidate's, and is raised as Rejected."""
        try:
            return self._worker.ask(operation, limit_s=limit_s, cancel=self._cancel, **fields)
        except WorkerFault as fault:
            raise _rejected(fault, operation) from None
        except WorkerTimedOut as late:
            raise Rejected(Code.HANG, f"{operation} did not end in {late.limit_s:.0f} s") from None
        except WorkerDied as died:
            raise Rejected(*faults.of_end(died.status, operation)) from None

    def set_state(self, draw: Draw) -> None:
        """Load the draw's state. Raises Rejected where a parameter or buffer of the reference is missing."""
        path = str(self._inbox / draw.written["state_file"])
        answer = self.ask("set_state", self._limit(), path=path, rows=draw.written["state"])
        problems = _checked(answer, StateAnswer)["problems"]
        declared = [text for text in problems if self._reference.state.get(text.split(" ")[0]) == "declared"]
        if declared:
            raise Rejected(
                Code.STATE_IGNORED, f"ModelNew's state differs from the reference's: {'; '.join(declared[:3])}"
            )

    def run(self, draw: Draw, *, elsewhere: bool = False) -> tuple[Path, dict[str, Any]]:
        """One call on a draw, with another GPU as the current one if so asked; where the outputs are, what was said."""
        out = self._new_export()
        return out, self._export(self.ask("run", self._limit(), **self._on(draw), out=str(out), elsewhere=elsewhere))

    def prepare(self, draw: Draw, positions: Positions) -> Timed:
        """Make ready for timing on a draw."""
        path, rows, plan = str(self._inbox / draw.written["file"]), draw.written["rows"], draw.written["plan"]
        self.ask("prepare", self._limit(), path=path, rows=rows, plan=plan, positions=positions)
        return Timed(lambda: self.ask("renew", self._limit()), self.time_slice)

    def time_slice(self, calls: int, salt: int) -> dict[str, Any]:
        """Time some calls."""
        return _checked(self.ask("time_slice", self._limit(calls), calls=calls, salt=salt), SliceAnswer)

    def export_timed(self) -> tuple[Path, dict[str, Any]]:
        """The output of the last timed call."""
        out = self._new_export()
        return out, self._export(self.ask("export_timed", self._limit(), out=str(out)))

    # ---- timing on a GPU

    def prepare_on_gpu(self, draw: Draw, changing: list[bool], how: Literal["graph", "batch"]) -> "Prepared":
        """Capture the model over a draw; `not_capturable` says why that was impossible."""
        path, rows, plan = str(self._inbox / draw.written["file"]), draw.written["rows"], draw.written["plan"]
        answer = self.ask(
            "prepare_on_gpu", self._limit(200), path=path, rows=rows, plan=plan, changing=changing, how=how
        )
        return read_prepared(answer)

    def graph_slice(self, seed: int, record: bool) -> dict[str, Any]:
        """One slice of replays."""
        return _checked(self.ask("graph_slice", self._limit(500), seed=seed, record=record), GraphSliceAnswer)

    def batch(self, seed: int) -> dict[str, Any]:
        """One batch of calls as called."""
        return _checked(self.ask("batch", self._limit(200), seed=seed), BatchAnswer)

    def export_replayed(self, number: int) -> tuple[Path, dict[str, Any]]:
        """The output of one call of the last replay."""
        out = self._new_export()
        return out, self._export(self.ask("export_replayed", self._limit(), number=number, out=str(out)))

    def export_batched(self) -> tuple[Path, dict[str, Any]]:
        """The output of the last call of the last batch."""
        out = self._new_export()
        return out, self._export(self.ask("export_batched", self._limit(), out=str(out)))

    def _export(self, answer: dict[str, Any]) -> dict[str, Any]:
        """A well-formed account of an output. Raises Rejected where the call left torch or Python changed."""
        changed = _checked(answer, ExportAnswer)["settings"]
        usual = self._reference.settings
        switches = [text for text in changed["switches"] if text not in usual["switches"]]
        if any(text.startswith("graphs compiled") for text in switches):
            raise Rejected(Code.BANNED_OP, "the candidate runs code compiled by torch.compile: that is a baseline")
        functions = [name for name in changed["functions"] if name not in usual["functions"]]
        if functions:
            clocks = all(name.startswith(("time.", "torch.cuda.Event.")) for name in functions)
            code = Code.CLOCK if clocks else Code.TAMPER
            raise Rejected(code, f"the candidate replaced {', '.join(functions[:3])}")
        if switches:
            raise Rejected(Code.GLOBAL_STATE, f"the candidate changed global settings: {'; '.join(switches[:3])}")
        return answer

    def gradients(self, draw: Draw, *, wrt_inputs: bool, seed: int) -> tuple[Path, dict[str, Any]]:
        """Gradients on a draw; returns where they are and the names of what gets one."""
        out = self._new_export()
        answer = self.ask("gradients", self._limit(3), **self._on(draw), out=str(out), wrt_inputs=wrt_inputs, seed=seed)
        return out, _checked(answer, GradientAnswer)

    def breaks_compile(self, draw: Draw) -> str:
        """Why torch.compile cannot take the model as one graph; empty where it can. The process is not for timing."""
        answer = _checked(self.ask("compiles", COMPILE_LIMIT_S, **self._on(draw)), CompileAnswer)
        return str(answer["reason"])

    def _on(self, draw: Draw) -> dict[str, Any]:
        written = draw.written
        return {"path": str(self._inbox / written["file"]), "rows": written["rows"], "plan": written["plan"]}

    def profile(self, draw: Draw) -> dict[str, Any]:
        """Operators by time."""
        path, rows, plan = str(self._inbox / draw.written["file"]), draw.written["rows"], draw.written["plan"]
        return _checked(self.ask("profile", self._limit(20), path=path, rows=rows, plan=plan), ProfileAnswer)

    def _limit(self, calls: int = 1) -> float:
        return self._reference.limit_s(calls)

    def _new_export(self) -> Path:
        self._exports += 1
        return self._outbox / f"out-{self._exports}.bin"


def read_prepared(answer: dict[str, Any]) -> Prepared:
    """The answer of `prepare_on_gpu`, of either side. Raises Rejected where it has another form."""
    return msgspec.convert(_checked(answer, Prepared), Prepared)


def _checked(answer: dict[str, Any], form: type[Record]) -> dict[str, Any]:
    """The answer, which must have the form that our own code on the other side gives it."""
    try:
        msgspec.convert(answer, form)
    except msgspec.ValidationError as error:
        raise Rejected(Code.FORGED_RESULT, f"an answer was not written by the evaluator's own code: {error}") from None
    return answer


def _rejected(fault: WorkerFault, operation: str) -> Rejected:
    error = fault.error
    if known := faults.of_error(error, operation):
        return Rejected(*known)
    if error.get("code") in Code.__members__:
        return Rejected(Code(error["code"]), error["message"])
    place = f" at {Path(error['file']).name}:{error['line']}" if error.get("file") else ""
    first = (error["message"].splitlines() or [""])[0]
    if error["type"] == "ModuleNotFoundError" and "'model'" in first:
        return Rejected(Code.REFERENCE_USED, f"model_new imports the reference (model.py){place}")
    return Rejected(Code.RAISED, f"{operation}: {error['type']}: {first}{place}", refusal=first or error["type"])
