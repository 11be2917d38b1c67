"""Where one evaluator's processes run: interpreter, environment, sandbox, folders. Everything goes when it closes."""

import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cuda_tui import process
from cuda_tui.errors import UsageError
from cuda_tui.evaluation.machine import Place
from cuda_tui.evaluation.workers import Placement, WarmParent, Worker, Zygote
from cuda_tui.sandbox import access as sandbox_access
from cuda_tui.sandbox.access import Access
from cuda_tui.sandbox.rung import Rung, wrap
from cuda_tui.workspace.task import Task


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """The user's Python: its path, the environment to start from, the protection, and a warm parent to share.

    `cache` is a folder of the machine for what may be kept between sessions. Whoever makes it closes it.
    """

    python: str
    environment: Mapping[str, str]
    rung: Rung
    cache: Path
    parent: WarmParent

    @classmethod
    def at(cls, python: str, *, environment: Mapping[str, str], rung: Rung, cache: Path) -> "Interpreter":
        """With a warm parent that starts when it is first needed."""
        kept = sandbox_access.environment(
            environment,
            python=python,
            TORCHINDUCTOR_CACHE_DIR=str(cache / "inductor"),
            TRITON_CACHE_DIR=str(cache / "triton"),
            CUDA_CACHE_PATH=str(cache / "ptx"),
            TORCHINDUCTOR_COMPILE_THREADS="1",  # a pool of compilers would outlive its worker
        )
        log = cache / "logs" / f"zygote-{os.getpid()}.log"
        parent = WarmParent(python=python, env=kept, log=log)
        return cls(python=python, environment=kept, rung=rung, cache=cache, parent=parent)

    def close(self) -> None:
        """End the warm parent and every worker."""
        self.parent.close()


class Runtime:
    """The folders that processes exchange files through, and what each may reach."""

    def __init__(self, *, root: Path, task: Task, interpreter: Interpreter) -> None:
        self.task = task
        self.python = interpreter.python
        self.rung = interpreter.rung
        self.cache = interpreter.cache
        self._parent = interpreter.parent
        self._place = Place.of(task.device, interpreter.environment)
        # Outside the workspace, which the agent's shell can write: what is exchanged and built here is trusted.
        private = self.cache / "workspaces" / hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]
        self.folder = private / f"run-{os.getpid()}"
        self.build_folder = private / "build"
        _sweep(private)
        self.inbox = self._make("inbox")
        self._scratch = self._make("scratch")
        self.environment = {**interpreter.environment, **self._private_folders()}
        self.cancel: threading.Event | None = None  # looked at while the zygote starts
        self._system = sandbox_access.system_access(self.python, read=self._project())
        self._made = 0
        self._workers: list[Worker] = []
        self._adding = threading.Lock()  # baselines are loaded side by side

    def _project(self) -> list[Path]:
        root = self.task.project_root
        return [Path(root)] if root else []

    def _private_folders(self) -> dict[str, str]:
        # Landlock cannot give a private /tmp; a folder of our own does in its place.
        temporary = str(self._scratch) if self.rung.worker == "landlock" or self.rung.name == "landlock" else "/tmp"
        return {
            "HOME": str(self._scratch),
            "TMPDIR": temporary,
            "TORCH_EXTENSIONS_DIR": str(self._scratch / "extensions"),
        }

    def _make(self, name: str) -> Path:
        folder = self.folder / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"{folder} cannot be written: {error.strerror}", hint="Set XDG_CACHE_HOME to a folder that can."
            ) from None
        return folder

    @property
    def zygote(self) -> Zygote:
        """The warm parent, started on first use; about 4 s."""
        return self._parent.zygote(self.cancel)

    @property
    def no_gpu(self) -> str:
        """Why a task for a GPU cannot run here; empty where it can, and for a task on the CPU."""
        if not self.task.device.startswith("cuda"):
            return ""
        if not self._place.present:
            return "there is no GPU here to run it on"
        if self.zygote.versions.get("cuda") in (None, "None"):
            return f"PyTorch {self.zygote.versions.get('torch')} is built without CUDA"
        return ""

    @property
    def roots(self) -> list[str]:
        """Import roots of the user's project."""
        return [self.task.project_root] if self.task.project_root else []

    @property
    def working_directory(self) -> str | None:
        """Where the user's own command would run."""
        return self.task.project_root

    def new_folder(self, stem: str) -> Path:
        """A fresh folder of this run."""
        self._made += 1
        return self._make(f"{stem}-{self._made}")

    def oracle(self, reference: Path, *, threads: int = 1, cpu: int | None = None) -> Worker:
        """A trusted worker: reads the reference, writes the inbox and the compile cache, reads every outbox."""
        self.cache.mkdir(parents=True, exist_ok=True)
        access = self._system.and_read_project(reference).and_read(self.folder)
        access = access.and_write(self.inbox, self._scratch, self.cache)
        return self._fork("oracle", access, threads=threads, cpu=cpu)

    def candidate(self, files: Path, outbox: Path, *, threads: int = 1, cpu: int | None = None) -> Worker:
        """An untrusted worker: reads its copy of the files and the inbox, writes its outbox."""
        access = self._system.and_read(files, self.inbox).and_write(outbox)
        return self._fork("candidate", access, threads=threads, cpu=cpu)

    def _fork(self, kind: Literal["oracle", "candidate"], access: Access, *, threads: int, cpu: int | None) -> Worker:
        log = self.folder / f"{kind}.log"
        device = "cpu" if self.no_gpu else self.task.device  # to trace on and to compile for
        placement = Placement(threads=threads, cpu=cpu, device=device, environment=self._private_folders())
        worker = self.zygote.fork(kind, access=access, rung=self.rung, log=log, placement=placement)
        with self._adding:
            self._workers = [*(earlier for earlier in self._workers if earlier.alive), worker]
        return worker

    def run_command(self, workspace: Path) -> "SandboxedRun":
        """How builds run: in the sandbox, with the workspace writable and no network."""
        return SandboxedRun(self._system.and_write(workspace, self.build_folder, self._scratch), self.rung)

    def tool_command(self, *read: Path, outbox: Path, project: Path | None = None) -> "SandboxedRun":
        """How profilers and checkers run one side: it reads these folders, and writes its outbox and nothing else."""
        access = self._system.and_read_project(project) if project is not None else self._system
        return SandboxedRun(access.and_read(*read).and_write(outbox, self._scratch), self.rung)

    def close(self) -> None:
        """End this run's workers and remove its folders. The warm parent stays."""
        for worker in self._workers:
            worker.close()
        self._workers = []
        shutil.rmtree(self.folder, ignore_errors=True)


class SandboxedRun:
    """`process.run` inside the sandbox."""

    def __init__(self, access: Access, rung: Rung) -> None:
        self._access = access
        self._rung = rung

    def __call__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        on_line: Callable[[str], None] | None = None,
        timeout_s: float | None = None,
        cancel: threading.Event | None = None,
    ) -> process.Finished:
        """Run a command as `process.run` does."""
        wrapped = wrap(list(argv), access=self._access, rung=self._rung, cwd=cwd)
        return process.run(wrapped, cwd=cwd, env=env, on_line=on_line, timeout_s=timeout_s, cancel=cancel)


def _sweep(parent: Path) -> None:
    """Remove the folders that killed runs left behind."""
    for folder in parent.glob("run-*"):
        pid = folder.name.partition("-")[2]
        if pid.isdigit() and not Path("/proc", pid).exists():
            shutil.rmtree(folder, ignore_errors=True)
