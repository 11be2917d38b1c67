"""The file tools on a real workspace."""

import asyncio
from typing import Any

import pytest

from cuda_tui.agent.protocols import Tool
from cuda_tui.errors import UsageError
from cuda_tui.messages import ChangeDetails, ReadDetails, ToolResult
from cuda_tui.tools.base import visible
from cuda_tui.tools.files import EditTool, ListTool, ReadTool, SearchTool, WriteTool
from cuda_tui.workspace.workspace import Workspace

pytestmark = pytest.mark.slow


async def run(tool: Tool, **arguments: Any) -> ToolResult:
    return await tool.run(arguments, emit=lambda _: None, cancel=asyncio.Event())


async def test_write_proposes_the_diff_and_then_makes_it(workspace: Workspace) -> None:
    tool = WriteTool(workspace=workspace)
    arguments = {"path": "kernels/a.cpp", "content": "int a;\n"}
    proposal = tool.propose(arguments)
    assert "+int a;" in proposal.diff
    assert not (workspace.root / "kernels/a.cpp").exists()
    result = await run(tool, **arguments)
    assert isinstance(result.details, ChangeDetails)
    assert result.details.diff == proposal.diff
    assert (workspace.root / "kernels/a.cpp").read_text() == "int a;\n"


@pytest.mark.parametrize("path", ["model.py", "task.toml", ".git/config", "../outside.py", "/tmp/outside.py"])
def test_contract_and_the_world_outside_cannot_be_written(workspace: Workspace, path: str) -> None:
    with pytest.raises(UsageError):
        WriteTool(workspace=workspace).propose({"path": path, "content": "x"})


async def test_edit_replaces_one_exact_piece(workspace: Workspace) -> None:
    workspace.write("a.py", "x = 1\ny = 1\n")
    await run(EditTool(workspace=workspace), path="a.py", old="x = 1", new="x = 2")
    assert workspace.read("a.py") == "x = 2\ny = 1\n"


@pytest.mark.parametrize(("old", "fact"), [("= 1", "occurs 2 times"), ("z", "does not occur"), ("", "is empty")])
def test_edit_of_a_piece_that_is_not_unique_is_refused(workspace: Workspace, old: str, fact: str) -> None:
    workspace.write("a.py", "x = 1\ny = 1\n")
    with pytest.raises(UsageError, match=fact):
        EditTool(workspace=workspace).propose({"path": "a.py", "old": old, "new": "n"})


async def test_read_returns_a_window_and_says_so(workspace: Workspace) -> None:
    workspace.write("long.txt", "\n".join(f"line {n}" for n in range(1, 2001)))
    result = await run(ReadTool(workspace=workspace), path="long.txt", start=1500, lines=2)
    assert result.content == "[lines 1500 to 1501 of 2000]\nline 1500\nline 1501"
    assert isinstance(result.details, ReadDetails)


async def test_source_of_the_project_is_readable_and_credentials_are_not(
    workspace: Workspace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    project = tmp_path_factory.mktemp("project")
    (project / "layers.py").write_text("W = 3\n")
    (project / "credentials.json").write_text("{}")
    (project / ".env.py").write_text("KEY = 1")
    (project / "link.py").symlink_to("/etc/passwd")
    tool = ReadTool(workspace=workspace, readable=(project,))
    assert (await run(tool, path=str(project / "layers.py"))).content == "W = 3\n"
    for name in ("credentials.json", ".env.py", "link.py"):
        with pytest.raises(UsageError):
            await run(tool, path=str(project / name))
    with pytest.raises(UsageError):
        await run(tool, path="/etc/passwd")


async def test_search_and_list_know_the_workspace(workspace: Workspace) -> None:
    found = await run(SearchTool(workspace=workspace), pattern=r"class \w+")
    assert "model.py:1: class Model: pass" in found.content
    bad = await run(SearchTool(workspace=workspace), pattern="(")
    assert bad.is_error
    assert "model.py (protected)" in (await run(ListTool(workspace=workspace))).content


def test_control_and_direction_characters_are_shown() -> None:
    assert visible("ok \x1b[2K\r rm\u202e\tx\n") == "ok <U+001B>[2K<U+000D> rm<U+202E>\tx\n"
