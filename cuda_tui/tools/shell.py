"""shell: a command inside the sandbox. The workspace is writable, its contract is not, and there is no network."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuda_tui.agent.protocols import Emit, Proposal
from cuda_tui.errors import Cancelled, UsageError
from cuda_tui.events import LineLogged
from cuda_tui.messages import Effect, ToolResult, ToolSpec
from cuda_tui.process import Finished, run
from cuda_tui.sandbox.access import Access, system_access
from cuda_tui.sandbox.rung import Rung, wrap
from cuda_tui.tools.base import clipped, integer, schema, spec, text, visible
from cuda_tui.tools.commands import drops_data, parts_of
from cuda_tui.workspace.workspace import Workspace

DEFAULT_S = 120
LONGEST_S = 1800


@dataclass(frozen=True, kw_only=True)
class ShellTool:
    """Runs `bash -c` in the workspace. `env` is the whole environment that the command gets."""

    workspace: Workspace
    rung: Rung
    python: str
    env: Mapping[str, str]

    @property
    def spec(self) -> ToolSpec:
        return spec(
            "shell",
            Effect.EXECUTE,
            """Run a bash command in the workspace, inside a sandbox: no network, private /tmp, nothing of the user's
            but the workspace is writable, protected files and .git are read-only. Building, verifying, measuring and
            profiling have tools of their own; use those. `seconds` is a time limit.""",
            schema(
                {"command": text("the command")},
                {"seconds": integer(f"limit, {DEFAULT_S} by default", minimum=1, maximum=LONGEST_S)},
            ),
        )

    def propose(self, arguments: dict[str, Any]) -> Proposal:
        """The command with control characters shown; what "approve all" would cover is each of its parts."""
        command = arguments["command"]
        if not command.strip() or "\0" in command:
            raise UsageError("the command is empty or holds a NUL")
        parts = parts_of(command)
        if parts:
            scope = "in this workspace, exactly: " + " ; ".join(visible(part) for part in parts)
        else:
            reason = "it can drop data" if drops_data(command) else "it cannot be split into parts"
            scope = f"this one command only ({reason})"
        return Proposal(command=visible(command), scope=scope, grants=parts)

    async def run(self, arguments: dict[str, Any], *, emit: Emit, cancel: asyncio.Event) -> ToolResult:
        limit_s = arguments.get("seconds", DEFAULT_S)
        finished = await in_thread(
            lambda stop: self._run(arguments["command"], emit=emit, stop=stop, limit_s=limit_s), cancel
        )
        notes = await asyncio.to_thread(self._mend_contract)
        if finished.cancelled:
            raise Cancelled("the command was stopped")
        ending = f"stopped after {limit_s} s" if finished.timed_out else f"exit code {finished.returncode}"
        output = clipped(visible(finished.output).rstrip())
        content = "\n".join(filter(None, [f"[{ending}, {finished.seconds:.1f} s]", notes, output]))
        return ToolResult(content=content, is_error=finished.returncode != 0 or finished.timed_out)

    def _run(self, command: str, *, emit: Emit, stop: threading.Event, limit_s: float) -> Finished:
        root = self.workspace.root
        argv = wrap(["bash", "-c", command], access=self._access(), rung=self.rung, cwd=root)
        return run(
            argv,
            cwd=root,
            env=self.env,
            on_line=lambda line: emit(LineLogged(source="shell", text=line)),
            timeout_s=limit_s,
            cancel=stop,
        )

    def _access(self) -> Access:
        root = self.workspace.root
        contract = [root / name for name in self.workspace.protected_names() if (root / name).exists()]
        records = [path for path in (root / ".cuda-tui" / "protected.json",) if path.exists()]
        folders = [Path(folder) for folder in (self.workspace.task.project_root,) if folder]
        return system_access(self.python, read=[root / ".git", *contract, *records, *folders], write=[root])

    def _mend_contract(self) -> str:
        """Without a sandbox a command can change protected files: they are put back, and the model is told."""
        if not self.workspace.protected_problems():
            return ""
        changed = self.workspace.restore_protected()
        return f"[protected files were changed and have been put back: {', '.join(changed)}]"


async def in_thread(work: Callable[[threading.Event], Finished], cancel: asyncio.Event) -> Finished:
    """Run blocking work in a thread; when `cancel` is set, so is the event that the work watches."""
    stop = threading.Event()
    working = asyncio.create_task(asyncio.to_thread(work, stop))
    stopping = asyncio.create_task(cancel.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            stop.set()
        return await working
    finally:
        stop.set()
        stopping.cancel()
