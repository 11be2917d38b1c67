"""A workspace: a folder with one task, its sources, and a git repository of its own."""

import difflib
import hashlib
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec

from cuda_tui.errors import UsageError, WorkspaceError
from cuda_tui.workspace import protected
from cuda_tui.workspace.data import data_folder
from cuda_tui.workspace.git import Git
from cuda_tui.workspace.task import Task
from cuda_tui.workspace.task_file import dump_task, load_task

WRITTEN = Path(".cuda-tui", "written.json")
CLOSED = (".git", ".cuda-tui")
MODEL_NEW = '''"""The optimised model: same constructor, same state_dict, same results.

It starts as the reference itself. Replace it with a class that calls the operators of `kernels/`:
`import cuda_extension`, then `cuda_extension.my_op(x)`.
"""

from {module} import {class_name}


class ModelNew({class_name}):
    pass
'''


@dataclass(frozen=True, kw_only=True)
class Copied:
    """What a copy of a workspace holds; `skipped` are new files too large to take along."""

    root: Path
    files: tuple[str, ...]
    skipped: tuple[str, ...]


class Workspace:
    """One workspace. Make it with `create`, `open` or `adopt.adopt`. Paths in its methods are relative to `root`."""

    def __init__(self, root: Path, task: Task) -> None:
        self.root = root
        self.task = task
        self.git = Git(root)

    # ---- making and opening

    @classmethod
    def create(
        cls,
        root: Path,
        *,
        task: Task,
        model_source: bytes,
        template: Path | None = None,
        files: dict[str, bytes] | None = None,
    ) -> "Workspace":
        """Make a workspace in a new or empty folder: template, task, model, `files`, and the first commit.

        Raises UsageError where the folder cannot be used.
        """
        root = usable_folder(root)
        template = template or data_folder("workspace_template")
        try:
            shutil.copytree(
                template, root, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", ".cuda-tui")
            )
            text = (template / "task.toml").read_text(encoding="utf-8")
            (root / "task.toml").write_text(dump_task(task, text), encoding="utf-8")
            (root / task.file).parent.mkdir(parents=True, exist_ok=True)
            (root / task.file).write_bytes(model_source)
            module = PurePosixPath(task.file).stem
            start = MODEL_NEW.format(module=module, class_name=task.class_name)
            (root / "model_new.py").write_text(start, encoding="utf-8")
            for name, content in (files or {}).items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            workspace = cls(root, task)
            protected.record(root, protected.protected_names(task))
        except OSError as error:
            raise UsageError(f"The workspace {root} cannot be written: {error}", hint="Name another folder.") from None
        workspace.git.start()
        workspace.commit(f"Start: {task.name}")
        return workspace

    @classmethod
    def open(cls, root: Path) -> "Workspace":
        """Open an existing workspace. Raises WorkspaceError naming what is wrong; nothing is repaired here."""
        root = Path(root).absolute()
        if not root.is_dir():
            raise WorkspaceError(f"{root} is no folder.")
        workspace = cls(root, load_task(root / "task.toml"))
        if not (root / ".git").exists():
            raise WorkspaceError(f"{root} has lost its git repository.", hint="Start a new workspace from its files.")
        if workspace.head() is None:
            raise WorkspaceError(f"{root} has no first commit.", hint="Start a new workspace from its files.")
        return workspace

    # ---- protected files

    def protected_names(self) -> tuple[str, ...]:
        """Files that nobody edits."""
        return protected.protected_names(self.task)

    def protected_problems(self) -> list[str]:
        """One sentence for each protected file that was changed or is missing."""
        return protected.problems(self.root, self.git, self.protected_names())

    def restore_protected(self) -> list[str]:
        """Put protected files back as the first commit has them; returns the paths that were changed back."""
        changed = []
        for name, content in protected.originals(self.git, self.protected_names()).items():
            path = self.root / name
            if protected.file_hash(path) != hashlib.sha256(content).hexdigest():
                path.unlink(missing_ok=True)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                changed.append(name)
        protected.record(self.root, self.protected_names())
        return changed

    # ---- files, as tools use them

    def locate(self, path: str) -> Path:
        """The file's place. Raises UsageError where the path leaves the workspace, by `..`, a symlink or a root."""
        candidate = self.root / path
        real, base = Path(os.path.realpath(candidate)), Path(os.path.realpath(self.root))
        if real != base and base not in real.parents:
            raise UsageError(f"{path} lies outside the workspace.", hint="Use a path relative to the workspace.")
        return base / real.relative_to(base)

    def _relative(self, path: str) -> str:
        return self.locate(path).relative_to(os.path.realpath(self.root)).as_posix()

    def read(self, path: str) -> str:
        """A file's text; bytes that are not UTF-8 are shown as replacement characters. Raises UsageError."""
        place = self.locate(path)
        if self._relative(path).split("/")[0] == ".git":
            raise UsageError(f"{path} belongs to git.")
        try:
            return place.read_bytes().decode("utf-8", "replace")
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from None

    def list_files(self) -> tuple[str, ...]:
        """Files of the workspace, tracked and new, without build products; sorted."""
        return tuple(self.git.files()[0])

    def propose(self, path: str, text: str) -> str:
        """The unified diff that `write` would make; empty where nothing would change. Raises UsageError."""
        name = self._writable(path)
        place = self.root / name
        before = place.read_text(encoding="utf-8", errors="replace") if place.exists() else None
        return unified_diff(name, before, text)

    def write(self, path: str, text: str) -> str:
        """Write a file whole or not at all; returns the unified diff. Raises UsageError, also for protected files."""
        name = self._writable(path)
        diff = self.propose(name, text)
        place = self.root / name
        partial = place.with_name(f".{place.name}.part")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(text, encoding="utf-8", errors="surrogateescape")
            os.replace(partial, place)
        except OSError as error:
            raise UsageError(f"{name} cannot be written: {error.strerror}") from None
        self.claim([name])
        return diff

    def delete(self, path: str) -> str:
        """Remove a file; returns the unified diff. Raises UsageError."""
        name = self._writable(path)
        place = self.root / name
        if not place.is_file():
            raise UsageError(f"{name} does not exist.")
        before = place.read_text(encoding="utf-8", errors="replace")
        place.unlink()
        self.claim([name])
        return unified_diff(name, before, None)

    def _writable(self, path: str) -> str:
        name = self._relative(path)
        if name in (".", "") or (self.root / name).is_dir():
            raise UsageError(f"{path} is a folder.")
        if name.split("/")[0] in CLOSED:
            raise UsageError(f"{name} belongs to the product, not to the task.")
        if name in self.protected_names():
            raise UsageError(f"{name} is protected: it is part of the task.", hint="Change model_new.py and kernels/.")
        return name

    # ---- history

    def head(self) -> str | None:
        """The current commit's full hash."""
        return self.git.head()

    def commit(self, message: str) -> str | None:
        """Commit all files as they are; None where nothing changed. No hooks, no signature."""
        tree, head = self.git.write_tree(), self.head()
        if head is not None and self.git.tree_of(head) == tree:
            return None
        commit = self.git.commit_tree(tree, message)
        self.git.run("read-tree", commit)
        self.git.run("update-index", "-q", "--refresh", "--really-refresh")
        return commit

    def diff_from_start(self) -> str:
        """What differs now from the first commit, committed or not, as a unified diff."""
        first = self.git.first_commit()
        return "" if first is None else self.git.diff(first, self.git.write_tree())

    def changed_by_others(self) -> list[str]:
        """Files that differ from HEAD and are not as the product wrote them last."""
        head = self.head()
        changed = self.git.changed(head, self.git.write_tree()) if head else []
        written = self._written()
        return [name for name in changed if written.get(name, "") != (protected.file_hash(self.root / name) or "none")]

    def restore(self, commit: str, *, include_others: bool = False) -> str:
        """Go back to the files of a commit, as a new commit; returns its hash.

        What is not committed yet is committed first, so that going back is itself reversible. Files that someone
        else changed stop it: WorkspaceError lists them, unless `include_others` says that the person agreed.
        """
        commit = self.git.resolve(commit)
        others = self.changed_by_others()
        if others and not include_others:
            raise WorkspaceError(
                f"Files were changed outside of the session: {', '.join(others)}.",
                hint="Commit them, or agree to have them saved in a commit and then set back.",
            )
        self.commit(f"Before going back to {commit[:12]}")
        tree = self.git.tree_of(commit)
        head = self.head()
        assert head is not None
        touched = self.git.changed(head, commit)
        self.git.run("read-tree", "--reset", "-u", commit)
        self.claim(touched)
        if self.git.tree_of(head) == tree:
            return head
        return self.git.commit_tree(tree, f"Back to {commit[:12]}")

    def _written(self) -> dict[str, str]:
        try:
            return msgspec.json.decode((self.root / WRITTEN).read_bytes(), type=dict[str, str])
        except (OSError, msgspec.DecodeError):
            return {}

    def claim(self, names: Iterable[str]) -> None:
        """Note these files, as they are, as the product's own writing: `restore` may then set them back unasked.

        `write` and `delete` do it themselves; a shell command of the agent's needs it for what the command changed.
        """
        written = self._written() | {name: protected.file_hash(self.root / name) or "none" for name in names}
        path = self.root / WRITTEN
        path.parent.mkdir(exist_ok=True)
        partial = path.with_suffix(".part")
        partial.write_bytes(msgspec.json.encode(written))
        os.replace(partial, path)

    # ---- copies

    def snapshot_copy(self, destination: Path) -> Copied:
        """Copy tracked and new files, not build products, to a new folder. Links stay links. No repository there."""
        kept, skipped = self.git.files()
        destination.mkdir(parents=True, exist_ok=True)
        for name in kept:
            target = destination / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.root / name, target, follow_symlinks=False)
        return Copied(root=destination, files=tuple(kept), skipped=tuple(skipped))


def usable_folder(root: Path) -> Path:
    """The absolute path of a new or empty folder. Raises UsageError for a home, a root and a folder with files."""
    root = Path(os.path.abspath(root.expanduser()))
    real, home = Path(os.path.realpath(root)), Path(os.path.realpath(Path.home()))
    if real == home or real in home.parents:
        raise UsageError(f"{root} is the home folder or above it.", hint="Name a folder of its own.")
    try:
        root.mkdir(parents=True, exist_ok=True)
        if any(root.iterdir()):
            raise UsageError(f"{root} is not empty.", hint="Name a new folder for the workspace.")
    except OSError as error:
        raise UsageError(f"The folder {root} cannot be used: {error.strerror}", hint="Name another folder.") from None
    if not os.access(root, os.W_OK | os.X_OK):
        raise UsageError(f"The folder {root} cannot be written.", hint="Name another folder.")
    return root


def unified_diff(name: str, before: str | None, after: str | None) -> str:
    """A unified diff in git's form; None is a file that does not exist."""
    lines = difflib.unified_diff(
        (before or "").splitlines(keepends=True),
        (after or "").splitlines(keepends=True),
        "/dev/null" if before is None else f"a/{name}",
        "/dev/null" if after is None else f"b/{name}",
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
