"""The workspace's own repository, through git's plumbing: no hooks, no signing, no prompt, no other repository.

Every command names the repository and the working folder itself, so a repository around the workspace is never seen.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from cuda_tui.errors import InfrastructureError, WorkspaceError

TIMEOUT_S = 60.0
LARGEST_NEW_FILE = 1 << 20  # bytes; larger untracked files stay out of commits and copies, and are listed
IDENTITY = ("cuda-tui", "cuda-tui@localhost")  # for commits where the person has no git identity


class Git:
    """git in one folder. Raises InfrastructureError where git is missing, WorkspaceError where it refuses."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, *arguments: str, text: str = "", index: Path | None = None, identity: bool = False) -> str:
        """One git command's standard output."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        environment |= {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C.UTF-8"}
        if index is not None:
            environment["GIT_INDEX_FILE"] = str(index)
        if identity:
            environment |= self._identity()
        command = ["git", f"--git-dir={self.root / '.git'}", f"--work-tree={self.root}"]
        for setting in (
            "core.hooksPath=/dev/null",
            "core.autocrlf=false",
            "core.quotePath=false",
            "core.fsmonitor=false",
        ):
            command += ["-c", setting]
        command += ["-c", f"safe.directory={self.root}", *arguments]
        try:
            done = subprocess.run(
                command, cwd=self.root, env=environment, input=text, capture_output=True, text=True,
                errors="surrogateescape", timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
        except FileNotFoundError:
            raise InfrastructureError("git is missing.", hint="Install it: apt install git") from None
        except subprocess.TimeoutExpired:
            raise WorkspaceError(f"git {arguments[0]} did not end in {TIMEOUT_S:.0f} s in {self.root}.") from None
        if done.returncode != 0:
            raise WorkspaceError(f"git {arguments[0]} failed in {self.root}: {done.stderr.strip()}")
        return done.stdout

    def _identity(self) -> dict[str, str]:
        """Ours, for this command only, where the person has none."""
        name = os.environ.get("GIT_AUTHOR_NAME") or self._config("user.name")
        email = os.environ.get("GIT_AUTHOR_EMAIL") or self._config("user.email")
        if not (name and email):
            name, email = IDENTITY
        return {f"GIT_{role}_{part}": value
                for role in ("AUTHOR", "COMMITTER") for part, value in (("NAME", name), ("EMAIL", email))}  # fmt: skip

    def _config(self, key: str) -> str:
        try:
            return self.run("config", "--get", key).strip()
        except WorkspaceError:
            return ""

    def start(self) -> None:
        """Make the repository. Nothing of the person's templates or hooks comes along."""
        self.run("init", "--quiet", "--template=", "--initial-branch=main", str(self.root))

    def head(self) -> str | None:
        """The current commit; None before the first one."""
        try:
            return self.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}").strip()
        except WorkspaceError:
            return None

    def first_commit(self) -> str | None:
        """The commit that the workspace started with."""
        if self.head() is None:
            return None
        return self.run("rev-list", "--max-parents=0", "HEAD").split()[-1]

    def resolve(self, commit: str) -> str:
        """The full hash of a commit named in any way. Raises WorkspaceError where there is none."""
        if commit.startswith("-"):
            raise WorkspaceError(f"{commit} is no commit.")
        try:
            return self.run("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}").strip()
        except WorkspaceError:
            raise WorkspaceError(f"The workspace {self.root} has no commit {commit}.") from None

    def files(self) -> tuple[list[str], list[str]]:
        """Paths that count as the workspace's, tracked or new, and those left out for their size."""
        listed = self.run("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
        tracked = set(self.run("ls-files", "-z", "--cached").split("\0"))
        kept: list[str] = []
        skipped: list[str] = []
        for name in sorted(filter(None, listed.split("\0"))):
            path = self.root / name
            if not path.is_symlink() and not path.is_file():
                continue
            too_large = name not in tracked and not path.is_symlink() and path.stat().st_size > LARGEST_NEW_FILE
            (skipped if too_large else kept).append(name)
        return kept, skipped

    def write_tree(self) -> str:
        """The files as they are now, as a tree object. The index stays as it was."""
        with tempfile.TemporaryDirectory(prefix="cuda-tui-") as folder:
            index = Path(folder, "index")
            names, _ = self.files()
            self._add(names, index)
            return self.run("write-tree", index=index).strip()

    def _add(self, names: Iterable[str], index: Path) -> None:
        text = "\0".join(names)
        self.run("update-index", "--add", "-z", "--stdin", text=text, index=index)

    def commit_tree(self, tree: str, message: str) -> str:
        """A commit of a tree on top of HEAD, which then points to it. Index and files are left to the caller."""
        head = self.head()
        parents = ["-p", head] if head else []
        commit = self.run("commit-tree", tree, *parents, text=message + "\n", identity=True).strip()
        self.run("update-ref", "-m", message.partition("\n")[0], "HEAD", commit, *([head] if head else []))
        return commit

    def tree_of(self, commit: str) -> str:
        """The tree of a commit."""
        return self.run("rev-parse", f"{commit}^{{tree}}").strip()

    def diff(self, before: str, after: str) -> str:
        """A unified diff of two trees or commits."""
        return self.run("diff-tree", "-p", "-r", "--no-color", "--no-ext-diff", "--no-textconv", before, after)

    def changed(self, before: str, after: str) -> list[str]:
        """Paths that differ between two trees or commits."""
        return [name for name in self.run("diff-tree", "-r", "-z", "--name-only", before, after).split("\0") if name]

    def show(self, commit: str, path: str) -> bytes | None:
        """A file as a commit has it; None where the commit lacks it."""
        try:
            return self.run("cat-file", "blob", f"{commit}:{path}").encode("utf-8", "surrogateescape")
        except WorkspaceError:
            return None
