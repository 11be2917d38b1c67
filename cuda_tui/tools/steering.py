"""note, restore, finish: the notebook, going back, and being done."""

import asyncio
from dataclasses import dataclass
from typing import Any

from cuda_tui.agent.checkpoints import NOTEBOOK, WorkspaceCheckpoints
from cuda_tui.agent.protocols import FINISH, Emit, Proposal
from cuda_tui.events import NoteWritten
from cuda_tui.messages import Effect, ToolResult, ToolSpec
from cuda_tui.tools.base import ReadOnly, schema, spec, text
from cuda_tui.workspace.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class NoteTool(ReadOnly):
    """Adds to the lab notebook, which is ours to write: no approval."""

    workspace: Workspace

    @property
    def spec(self) -> ToolSpec:
        return spec(
            "note",
            Effect.READ,
            f"""Add an entry to {NOTEBOOK}: the hypothesis, the gain you predict, and, after measuring, the gain you
            got. Write one before and after each idea; a refuted idea is worth a line.""",
            schema({"text": text("the entry, a few lines")}),
        )

    async def run(self, arguments: dict[str, Any], *, emit: Emit, cancel: asyncio.Event) -> ToolResult:
        entry = arguments["text"].strip()
        await asyncio.to_thread(self._append, entry)
        emit(NoteWritten(text=entry))
        return ToolResult(content="noted")

    def _append(self, entry: str) -> None:
        before = self.workspace.read(NOTEBOOK) if NOTEBOOK in self.workspace.list_files() else "# Notes\n"
        self.workspace.write(NOTEBOOK, f"{before.rstrip()}\n\n{entry}\n")


@dataclass(frozen=True, kw_only=True)
class RestoreTool:
    """Goes back to the files of an earlier commit."""

    workspace: Workspace

    @property
    def spec(self) -> ToolSpec:
        return spec(
            "restore",
            Effect.WRITE,
            """Bring the files of an earlier commit back, as a new commit; nothing is lost. Verdicts name their
            commits. The notebook stays as it is.""",
            schema({"commit": text("the commit")}),
        )

    def propose(self, arguments: dict[str, Any]) -> Proposal:
        """The diff from the files as they are to those of the commit."""
        git = self.workspace.git
        target = git.resolve(arguments["commit"])
        return Proposal(diff=git.diff(git.write_tree(), target), scope="this restore only")

    async def run(self, arguments: dict[str, Any], *, emit: Emit, cancel: asyncio.Event) -> ToolResult:
        restored = await asyncio.to_thread(WorkspaceCheckpoints(self.workspace).restore, arguments["commit"])
        if restored is None:
            return ToolResult(content="the files are those already")
        emit(restored)
        return ToolResult(content=f"the files of {restored.to[:12]} are back, as commit {restored.commit[:12]}")


@dataclass(frozen=True, kw_only=True)
class FinishTool(ReadOnly):
    """Says that the work is done; the loop ends after it."""

    @property
    def spec(self) -> ToolSpec:
        return spec(
            FINISH,
            Effect.READ,
            """End the session. Say what was gained, as measured, what was left and why. The best measured candidate is
            put in place by itself. If nothing helped, say so: that is a good result too.""",
            schema({"summary": text("a few sentences for the person")}),
        )

    async def run(self, arguments: dict[str, Any], *, emit: Emit, cancel: asyncio.Event) -> ToolResult:
        return ToolResult(content=arguments["summary"])
