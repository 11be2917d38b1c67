"""The workspace's history as the loop needs it."""

from cuda_tui.events import Restored, StepCommitted
from cuda_tui.workspace.workspace import Workspace

NOTEBOOK = "NOTES.md"


class WorkspaceCheckpoints:
    """Commits and restores one workspace. The notebook tells the whole story, so going back never shortens it."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    @property
    def path(self) -> str:
        """The workspace's folder."""
        return str(self._workspace.root)

    def head(self) -> str:
        """The current commit."""
        return self._workspace.head() or ""

    def commit(self, message: str) -> StepCommitted | None:
        """Commit what changed, or return None where nothing did."""
        before = self.head()
        commit = self._workspace.commit(message)
        if commit is None:
            return None
        files = tuple(self._workspace.git.changed(before, commit)) if before else ()
        return StepCommitted(
            commit=commit, message=message, files=files, diff_from_start=self._workspace.diff_from_start()
        )

    def restore(self, commit: str) -> Restored | None:
        """Bring the files of `commit` back as a new commit; None where they are those already.

        Raises WorkspaceError where someone else changed files meanwhile.
        """
        workspace = self._workspace
        target = workspace.git.resolve(commit)
        workspace.commit("Before going back")
        if set(workspace.git.changed(self.head(), target)) <= {NOTEBOOK}:
            return None
        notebook = workspace.root / NOTEBOOK
        notes = notebook.read_bytes() if notebook.is_file() else None
        restored = workspace.restore(target)
        if notes is not None and notes != (notebook.read_bytes() if notebook.is_file() else None):
            notebook.write_bytes(notes)
            restored = workspace.commit(f"Keep the notes of later steps (at {target[:12]})") or restored
        return Restored(to=target, commit=restored, diff_from_start=workspace.diff_from_start())
