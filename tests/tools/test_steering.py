"""note and restore, with the history that they leave."""

import asyncio
from typing import Any

import pytest

from cuda_tui.agent.checkpoints import WorkspaceCheckpoints
from cuda_tui.agent.protocols import Tool
from cuda_tui.errors import WorkspaceError
from cuda_tui.events import NoteWritten, Restored
from cuda_tui.messages import ToolResult
from cuda_tui.tools.steering import NoteTool, RestoreTool
from cuda_tui.workspace.workspace import Workspace

pytestmark = pytest.mark.slow


async def run(tool: Tool, emit: Any = lambda event: None, **arguments: Any) -> ToolResult:
    return await tool.run(arguments, emit=emit, cancel=asyncio.Event())


async def test_note_is_kept_in_the_notebook_and_told(workspace: Workspace) -> None:
    seen: list[Any] = []
    await run(NoteTool(workspace=workspace), emit=seen.append, text="fuse: predict 1.3x")
    assert workspace.read("NOTES.md").endswith("\n\nfuse: predict 1.3x\n")
    assert seen == [NoteWritten(text="fuse: predict 1.3x")]


async def test_restore_brings_files_back_and_keeps_the_notes(workspace: Workspace) -> None:
    checkpoints = WorkspaceCheckpoints(workspace)
    workspace.write("kernels/a.cpp", "good\n")
    good = checkpoints.commit("good")
    assert good is not None
    assert good.files == ("kernels/a.cpp",)
    assert "+good" in good.diff_from_start
    workspace.write("kernels/a.cpp", "bad\n")
    workspace.write("kernels/b.cpp", "bad\n")
    workspace.write("NOTES.md", "learned\n")
    bad = checkpoints.commit("bad")
    assert bad is not None
    seen: list[Any] = []
    tool = RestoreTool(workspace=workspace)
    assert "-bad" in tool.propose({"commit": good.commit[:10]}).diff
    await run(tool, emit=seen.append, commit=good.commit[:10])
    assert workspace.read("kernels/a.cpp") == "good\n"
    assert "kernels/b.cpp" not in workspace.list_files()
    assert workspace.read("NOTES.md") == "learned\n"
    assert isinstance(seen[0], Restored)
    assert seen[0].to == good.commit
    await run(tool, commit=bad.commit)  # going back is itself reversible
    assert workspace.read("kernels/b.cpp") == "bad\n"


async def test_going_back_to_where_one_is_does_nothing(workspace: Workspace) -> None:
    head = workspace.head()
    assert head is not None
    workspace.write("NOTES.md", "a note\n")
    assert (await run(RestoreTool(workspace=workspace), commit=head)).content == "the files are those already"


def test_unknown_commit_is_refused(workspace: Workspace) -> None:
    with pytest.raises(WorkspaceError, match="no commit"):
        RestoreTool(workspace=workspace).propose({"commit": "deadbeef"})


def test_nothing_changed_is_no_commit(workspace: Workspace) -> None:
    assert WorkspaceCheckpoints(workspace).commit("nothing") is None
