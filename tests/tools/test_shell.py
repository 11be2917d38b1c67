"""The shell tool in the real sandbox."""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cuda_tui.errors import Cancelled
from cuda_tui.events import AnyEvent, LineLogged
from cuda_tui.messages import ToolResult
from cuda_tui.process import descendants
from cuda_tui.sandbox.access import environment
from cuda_tui.sandbox.rung import Rung, detect
from cuda_tui.tools.shell import ShellTool
from cuda_tui.workspace.workspace import Workspace

pytestmark = pytest.mark.slow


def shell(workspace: Workspace, rung: Rung | None = None) -> ShellTool:
    env = environment({**os.environ, "PROVIDER_API_KEY": "canary-123"}, python=sys.executable)
    return ShellTool(workspace=workspace, rung=rung or detect(), python=sys.executable, env=env)


async def run(tool: ShellTool, command: str, **more: Any) -> ToolResult:
    return await tool.run({"command": command, **more}, emit=lambda _: None, cancel=asyncio.Event())


async def test_command_runs_in_the_workspace_and_streams_its_lines(workspace: Workspace) -> None:
    lines: list[Any] = []
    result = await shell(workspace).run(
        {"command": "echo a; echo b >&2; ls model.py"}, emit=lines.append, cancel=asyncio.Event()
    )
    assert not result.is_error
    assert [line.text for line in lines if isinstance(line, LineLogged)] == ["a", "b", "model.py"]


async def test_keys_are_not_in_the_command_s_environment(workspace: Workspace) -> None:
    assert "canary" not in (await run(shell(workspace), "env; cat /proc/self/environ")).content


@pytest.mark.skipif(detect().name == "none", reason="no sandbox on this machine")
async def test_contract_history_and_home_cannot_be_changed(workspace: Workspace) -> None:
    before = workspace.head()
    result = await run(
        shell(workspace), "echo x > model.py; rm -rf .git; echo x > task.toml; ls ~/.ssh; echo new > new.txt"
    )
    assert workspace.protected_problems() == []
    assert workspace.head() == before
    assert workspace.read("new.txt") == "new\n"
    assert "Read-only" in result.content or "Permission denied" in result.content


async def test_contract_changed_without_a_sandbox_is_put_back(workspace: Workspace) -> None:
    none = Rung(name="none", worker="none")
    result = await run(shell(workspace, none), "echo x > model.py")
    assert "have been put back: model.py" in result.content
    assert workspace.protected_problems() == []


async def test_failure_and_time_limit_are_results(workspace: Workspace) -> None:
    failed = await run(shell(workspace), "exit 3")
    assert (failed.is_error, "exit code 3" in failed.content) == (True, True)
    late = await run(shell(workspace), "sleep 30", seconds=1)
    assert "stopped after 1 s" in late.content


async def test_cancel_ends_the_command_and_all_its_children(workspace: Workspace) -> None:
    cancel = asyncio.Event()
    started = asyncio.Event()
    loop = asyncio.get_running_loop()

    def emit(_: AnyEvent) -> None:
        loop.call_soon_threadsafe(started.set)

    running = asyncio.create_task(
        shell(workspace).run(
            {"command": "setsid sleep 77 & echo up; sleep 77"},
            emit=emit,
            cancel=cancel,
        )
    )
    await started.wait()
    begun = time.monotonic()
    cancel.set()
    with pytest.raises(Cancelled):
        await running
    assert time.monotonic() - begun < 2
    assert sleepers() == []


def sleepers() -> list[int]:
    """Our descendants that run `sleep 77`."""
    return [pid for pid in descendants(os.getpid()) if b"sleep\x0077" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_control_characters_of_a_command_are_shown(workspace: Workspace) -> None:
    proposal = shell(workspace).propose({"command": "echo ok \x1b[2K\r rm x"})
    assert "\x1b" not in proposal.command
    assert "<U+001B>" in proposal.command
