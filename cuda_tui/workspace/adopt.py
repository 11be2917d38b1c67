"""Open a workspace of the field's form: model.py, model_new.py, kernels/, perhaps a binding at the top; no task.toml.

Nothing in the folder is changed: its files are copied into a fresh workspace of our own.
"""

import re
from pathlib import Path

from cuda_tui.errors import UsageError
from cuda_tui.workspace.task import Task
from cuda_tui.workspace.workspace import Workspace

SOURCES = frozenset({".cpp", ".cc", ".cxx", ".cu", ".cuh", ".h", ".hpp", ".inl"})
LARGEST_SOURCE = 1 << 20  # bytes


def is_adoptable(folder: Path) -> bool:
    """Whether a folder looks like such a workspace."""
    return (folder / "model.py").is_file() and not (folder / "task.toml").exists()


def adopt(folder: Path, *, root: Path, device: str | None = None) -> Workspace:
    """Copy the folder's model, candidate and sources into a new workspace at `root`; the second commit holds them.

    The device is "cuda" where there are `.cu` sources, unless one is named. Raises UsageError.
    """
    folder = folder.absolute()
    if not is_adoptable(folder):
        raise UsageError(f"{folder} has no model.py, or is a workspace already.", hint="Name a folder with a model.py.")
    candidate = {name: path.read_bytes() for name, path in _sources(folder).items()}
    if (folder / "model_new.py").is_file():
        candidate["model_new.py"] = (folder / "model_new.py").read_bytes()
    has_cuda = any(name.endswith(".cu") for name in candidate)
    model = (folder / "model.py").read_bytes()
    has_init = re.search(rb"^def get_init_inputs\b", model, re.MULTILINE) is not None
    task = Task(
        name=folder.name,
        source=str(folder / "model.py"),
        device=device or ("cuda" if has_cuda else "cpu"),
        init="get_init_inputs" if has_init else None,
    )
    workspace = Workspace.create(root, task=task, model_source=model)
    for name, content in candidate.items():
        if name not in workspace.protected_names():
            workspace.write(name, content.decode("utf-8", "surrogateescape"))
    workspace.commit(f"Adopted from {folder.name}")
    return workspace


def _sources(folder: Path) -> dict[str, Path]:
    """Sources at the top and in kernels/, by their place in the workspace. Links and large files are left."""
    found = [*folder.iterdir(), *((folder / "kernels").rglob("*") if (folder / "kernels").is_dir() else ())]
    return {
        path.relative_to(folder).as_posix(): path
        for path in sorted(found)
        if path.suffix in SOURCES and path.is_file() and not path.is_symlink() and path.stat().st_size <= LARGEST_SOURCE
    }
