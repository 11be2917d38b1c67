"""read, list, search, write, edit: the workspace's files, and nothing outside that could hold a secret."""

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuda_tui.agent.protocols import Emit, Proposal
from cuda_tui.errors import UsageError
from cuda_tui.messages import ChangeDetails, Effect, ReadDetails, ToolResult, ToolSpec
from cuda_tui.tools.base import ReadOnly, clipped, failure, integer, schema, spec, text
from cuda_tui.workspace.workspace import Workspace

READ_LINES = 800
SEARCH_HITS = 100
SOURCE_SUFFIXES = frozenset({".py", ".pyi", ".cu", ".cuh", ".cpp", ".cc", ".c", ".h", ".hpp", ".md", ".txt"})
WRITE_SCOPE = "every change of a file in this workspace"


def read_text(workspace: Workspace, path: str, readable: tuple[Path, ...]) -> str:
    """A file of the workspace; or, by its absolute path, a source file in one of the `readable` folders.

    Raises UsageError for everything else: what is not source code could be a credential.
    """
    if not Path(path).is_absolute():
        return workspace.read(path)
    real = Path(path).resolve()
    if real.is_relative_to(workspace.root.resolve()):
        return workspace.read(str(real.relative_to(workspace.root.resolve())))
    if not any(real.is_relative_to(folder.resolve()) for folder in readable):
        raise UsageError(f"{path} lies outside the workspace, the project and the skills")
    if real.suffix not in SOURCE_SUFFIXES or any(part.startswith(".") for part in real.parts):
        raise UsageError(f"{path} is not read: outside the workspace only source files are")
    try:
        return real.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


@dataclass(frozen=True, kw_only=True)
class ReadTool(ReadOnly):
    """Reads a file, whole or some lines of it."""

    workspace: Workspace
    readable: tuple[Path, ...] = ()  # folders outside the workspace whose source files may be read

    @property
    def spec(self) -> ToolSpec:
        return spec(
            "read",
            Effect.READ,
            f"""Read a text file. Paths are relative to the workspace; skills and the user's own sources have absolute
            paths. At most {READ_LINES} lines are returned; use `start` for more.""",
            schema(
                {"path": text("the file")},
                {"start": integer("first line, from 1", minimum=1), "lines": integer("how many lines", minimum=1)},
            ),
        )

    async def run(self, arguments: dict[str, Any], *, emit: Emit, cancel: asyncio.Event) -> ToolResult:
        path = arguments["path"]
        whole = await asyncio.to_thread(read_text, self.workspace, path, self.readable)
        lines = whole.split("\n")
        start = arguments.get("start", 1)
        shown = lines[start - 1 : start - 1 + min(arguments.get("lines", READ_LINES), READ_LINES)]
        content = "\n".join(shown)
        if len(shown) < len(lines):
            content = f"[lines {start} to {start + len(shown) - 1} of {len(lines)}]\n{content}"
        return ToolResult(content=clipped(content) or "(empty)", details=ReadDetails(path=path, text=whole))


@dataclass(frozen=True, kw_only=True)
class ListTool(ReadOnly):
    """Lists the workspace's files."""

    workspace: Workspace

    @property
    def spec(self) -> ToolSpec:
        return spec("list", Effect.READ, "List the workspace's files, without build products.", schema())

    async def run(self, arguments: dict[str, Any], *, emit: Emit, cancel: asyncio.Event) -> ToolResult:
        files = await asyncio.to_thread(self.workspace.list_files)
        protected = set(self.workspace.protected_names())
        return ToolResult(content="\n".join(f"{name}{' (protected)' if name in protected else ''}" for name in files))


@dataclass(frozen=True, kw_only=True)
class SearchTool(ReadOnly):
    """Searches the workspace's files for a pattern."""

    workspace: Workspace

    @property
    def spec(self) -> ToolSpec:
        return spec(
            "search",
            Effect.READ,
            "Search the workspace's text files for a regular expression (Python's), line by line.",
            schema({"pattern": text("the expression")}, {"under": text("only paths that begin with this")}),
        )

    async def run(self, arguments: dict[str, Any], *, emit: Emit, cancel: asyncio.Event) -> ToolResult:
        try:
            pattern = re.compile(arguments["pattern"])
        except re.error as error:
            return failure(f"not a regular expression: {error}")
        hits = await asyncio.to_thread(self._hits, pattern, arguments.get("under", ""))
        shown = hits[:SEARCH_HITS]
        more = [f"[... {len(hits) - len(shown)} more]"] if len(hits) > len(shown) else []
        return ToolResult(content=clipped("\n".join(shown + more)) or "no line matches")

    def _hits(self, pattern: re.Pattern[str], under: str) -> list[str]:
        hits = []
        for name in self.workspace.list_files():
            if name.startswith(under):
                lines = self.workspace.read(name).split("\n")
                hits += [f"{name}:{n}: {line[:300]}" for n, line in enumerate(lines, 1) if pattern.search(line)]
        return hits


@dataclass(frozen=True, kw_only=True)
class WriteTool:
    """Writes a whole file."""

    workspace: Workspace

    @property
    def spec(self) -> ToolSpec:
        return spec(
            "write",
            Effect.WRITE,
            "Write a whole file of the workspace, new or not. Protected files cannot be written.",
            schema({"path": text("the file, relative to the workspace"), "content": text("its whole new content")}),
        )

    def propose(self, arguments: dict[str, Any]) -> Proposal:
        """The diff against the file as it is. Raises UsageError for a path that cannot be written."""
        diff = self.workspace.propose(arguments["path"], arguments["content"])
        return Proposal(diff=diff, scope=WRITE_SCOPE, grants=(WRITE_SCOPE,))

    async def run(self, arguments: dict[str, Any], *, emit: Emit, cancel: asyncio.Event) -> ToolResult:
        return await asyncio.to_thread(_change, self.workspace, arguments["path"], arguments["content"])


@dataclass(frozen=True, kw_only=True)
class EditTool:
    """Replaces one exact, unique piece of a file."""

    workspace: Workspace

    @property
    def spec(self) -> ToolSpec:
        return spec(
            "edit",
            Effect.WRITE,
            """Replace one piece of a file. `old` must occur exactly once, with its white space; give enough lines
            around it to make it unique.""",
            schema(
                {
                    "path": text("the file, relative to the workspace"),
                    "old": text("the piece as it is now, exactly"),
                    "new": text("what replaces it"),
                }
            ),
        )

    def propose(self, arguments: dict[str, Any]) -> Proposal:
        """The diff. Raises UsageError where `old` is not there, or more than once."""
        after = self._after(arguments)
        diff = self.workspace.propose(arguments["path"], after)
        return Proposal(diff=diff, scope=WRITE_SCOPE, grants=(WRITE_SCOPE,))

    async def run(self, arguments: dict[str, Any], *, emit: Emit, cancel: asyncio.Event) -> ToolResult:
        after = await asyncio.to_thread(self._after, arguments)
        return await asyncio.to_thread(_change, self.workspace, arguments["path"], after)

    def _after(self, arguments: dict[str, Any]) -> str:
        before = self.workspace.read(arguments["path"])
        old = arguments["old"]
        count = before.count(old) if old else 0
        if count != 1:
            fact = "is empty" if not old else "does not occur" if count == 0 else f"occurs {count} times"
            raise UsageError(f"`old` {fact} in {arguments['path']}", hint="read the file and copy the piece exactly")
        return before.replace(old, arguments["new"])


def _change(workspace: Workspace, path: str, content: str) -> ToolResult:
    diff = workspace.write(path, content)
    if not diff:
        return ToolResult(content=f"{path} was like that already; nothing changed")
    added = sum(line.startswith("+") and not line.startswith("+++") for line in diff.splitlines())
    removed = sum(line.startswith("-") and not line.startswith("---") for line in diff.splitlines())
    return ToolResult(content=f"{path}: +{added} -{removed} lines", details=ChangeDetails(path=path, diff=diff))
