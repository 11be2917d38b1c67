"""Run one side alone, in the sandbox, under a tool: the controller's end of `worker.solo`."""

import json
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuda_tui import process
from cuda_tui.errors import Cancelled
from cuda_tui.evaluation.candidate import Candidate, load_request
from cuda_tui.evaluation.profile.programs import folder_of
from cuda_tui.evaluation.reference import Draw, Reference, task_fields
from cuda_tui.evaluation.runtime import Runtime
from cuda_tui.evaluation.workers import WORKER

GRACE_S = 10.0  # between the process's own dump of its stacks and its end
LINE_LIMIT = 300

Tool = Callable[[Path], Sequence[str]]  # the command line of a tool that writes to this log file


@dataclass(frozen=True, kw_only=True)
class Side:
    """What runs: its part of the request, and the folders it has to read."""

    request: Mapping[str, Any]
    read: tuple[Path, ...] = ()
    project: Path | None = None  # the user's own folder, shown without the files that hold keys
    sources: tuple[str, ...] = ()  # what its own kernels are built from, as paths inside its workspace


@dataclass(frozen=True, kw_only=True)
class Calls:
    """How often, for how long, and with which variables added to the environment."""

    warm: int = 3
    calls: int = 1
    limit_s: float = 120.0
    grace_s: float = GRACE_S
    variables: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Ran:
    """How it ended. `log` is what the tool wrote of its own; `error` is the exception that ended the side."""

    returncode: int
    log: str
    output: str
    timed_out: bool
    error: dict[str, Any] | None

    @property
    def text(self) -> str:
        """The tool's log and all that was printed."""
        return f"{self.log}\n{self.output}"

    def first_words(self, *marks: str) -> str:
        """The first line with one of the marks, else the last line that is not empty, cut."""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        told = next((line for line in lines if any(mark in line for mark in marks)), None)
        return (told or (lines[-1] if lines else f"exit code {self.returncode}"))[:LINE_LIMIT]


class Solo:
    """Runs sides of one task alone; every run in its own process group, with a folder and a time limit of its own."""

    def __init__(self, runtime: Runtime, reference: Reference, *, cancel: threading.Event | None = None) -> None:
        self.runtime = runtime
        self.reference = reference
        self._cancel = cancel

    def probe(self) -> Side:
        """A tiny kernel of torch's."""
        return Side(request={"side": "probe"})

    def reference_side(self, model_file: Path) -> Side:
        """The user's model; it makes its own inputs, since it is trusted with the seed."""
        request = {
            "side": "reference",
            "path": str(model_file),
            "task": task_fields(self.runtime.task),
            "roots": self.runtime.roots,
            "cwd": self.runtime.working_directory or str(model_file.parent),
            "seed": secrets.randbits(32),
        }
        return Side(request=request, project=model_file.parent)

    def candidate_side(self, candidate: Candidate, draw: Draw) -> Side:
        """A candidate's copy on a draw, which must not be spent before the run ends."""
        inbox, written = self.runtime.inbox, draw.written
        request = {
            "side": "candidate",
            "load": load_request(candidate, self.runtime, self.reference),
            "state": {"path": str(inbox / written["state_file"]), "rows": written["state"]},
            "inputs": {"path": str(inbox / written["file"]), "rows": written["rows"], "plan": written["plan"]},
        }
        own = (path for path in (candidate.files / "kernels").rglob("*") if path.is_file())
        sources = tuple(sorted(str(path.relative_to(candidate.files)) for path in own))
        return Side(request=request, read=(candidate.files, inbox), sources=sources)

    def run(self, side: Side, *, tool: Tool | None = None, how: Calls = Calls()) -> Ran:
        """Run it, under the tool where one is given. Raises Cancelled, and OSError where the tool does not start."""
        folder = self.runtime.new_folder("solo")
        log, answer, path = folder / "tool.log", folder / "answer.json", folder / "request.json"
        request = {
            **side.request,
            "device": self.runtime.task.device,
            "warm": how.warm,
            "calls": how.calls,
            "limit_s": how.limit_s,
            "answer": str(answer),
        }
        path.write_text(json.dumps(request), encoding="utf-8")
        prefix = list(tool(log)) if tool is not None else []
        tools = [folder_of(prefix[0])] if prefix else []
        sandboxed = self.runtime.tool_command(WORKER, *side.read, *tools, outbox=folder, project=side.project)
        finished = sandboxed(
            [*prefix, self.runtime.python, str(WORKER), "solo", str(path)],
            cwd=folder,
            env={**self.runtime.environment, **(how.variables or {})},
            timeout_s=how.limit_s + how.grace_s,
            cancel=self._cancel,
        )
        if finished.cancelled:
            raise Cancelled("the run was cancelled")
        return Ran(
            returncode=finished.returncode,
            log=_read(log),
            output=finished.output,
            timed_out=finished.timed_out or "Timeout (" in finished.output,
            error=_error(answer),
        )

    def command(self, argv: Sequence[str], *, read: Sequence[Path], limit_s: float) -> process.Finished:
        """Run a program that only reads files, in the sandbox, in a folder of its own. Raises Cancelled."""
        folder = self.runtime.new_folder("tool")
        sandboxed = self.runtime.tool_command(*read, folder_of(argv[0]), outbox=folder)
        finished = sandboxed(argv, cwd=folder, env=self.runtime.environment, timeout_s=limit_s, cancel=self._cancel)
        if finished.cancelled:
            raise Cancelled("the run was cancelled")
        return finished


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _error(path: Path) -> dict[str, Any] | None:
    """What the side said of its end; a candidate may have written anything there, or nothing."""
    try:
        answer = json.loads(_read(path))
    except ValueError:
        return None
    error = answer.get("error") if isinstance(answer, dict) else None
    return error if isinstance(error, dict) else None
