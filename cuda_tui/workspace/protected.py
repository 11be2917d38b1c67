"""Files of a workspace that are its contract: held by hash, checked before each evaluation, restorable."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from cuda_tui.workspace.git import Git
from cuda_tui.workspace.task import Task

RECORD = Path(".cuda-tui", "protected.json")
OURS = (
    "task.toml",
    "cuda_extension.py",
    "cuda_extension_plan.py",
    "AGENTS.md",
    "kernels/cuda_tui.h",
    "kernels/cuda_tui_math.h",
)


def protected_names(task: Task) -> tuple[str, ...]:
    """Paths inside the workspace that nobody edits: ours and the user's model."""
    return (*OURS, task.file)


def file_hash(path: Path) -> str | None:
    """SHA-256 of a regular file; None where there is none (a symlink counts as none)."""
    if path.is_symlink() or not path.is_file():
        return None
    return hashlib.sha256(path.read_bytes()).hexdigest()


def record(root: Path, names: Iterable[str]) -> None:
    """Remember the files as they are now."""
    path = root / RECORD
    path.parent.mkdir(exist_ok=True)
    hashes = {name: found for name in names if (found := file_hash(root / name)) is not None}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(hashes)))


def recorded(root: Path) -> dict[str, str]:
    """What `record` wrote; empty where that is lost or damaged. The first commit still holds the files themselves."""
    try:
        return msgspec.json.decode((root / RECORD).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}


def originals(git: Git, names: Iterable[str]) -> dict[str, bytes]:
    """The protected files as the workspace's first commit has them."""
    first = git.first_commit()
    if first is None:
        return {}
    return {name: content for name in names if (content := git.show(first, name)) is not None}


def problems(root: Path, git: Git, names: Iterable[str]) -> list[str]:
    """One sentence for each protected file that is not what it was. The first commit and the record must agree."""
    names = list(names)
    first, hashes, found = originals(git, names), recorded(root), []
    for name in names:
        expected = hashlib.sha256(first[name]).hexdigest() if name in first else hashes.get(name)
        actual = file_hash(root / name)
        if actual is None:
            found.append(f"{name} is missing or no regular file")
        elif expected is not None and actual != expected:
            found.append(f"{name} was changed")
        elif name in hashes and name in first and hashes[name] != expected:
            found.append(f"{name}: its recorded hash is not that of the first commit")
    return found
