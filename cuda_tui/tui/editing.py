"""Changing a proposal in the person's own editor."""

import json
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cuda_tui.errors import UsageError
from cuda_tui.messages import ToolCall

# The argument that a person would want to edit, by the tools' own names for it.
_MAIN = ("command", "content", "new", "new_text", "new_string", "text")

RunEditor = Callable[[Sequence[str]], int]


def main_argument(call: ToolCall) -> str | None:
    """The one text argument that is the call's substance; None where all arguments are edited as JSON."""
    return next((name for name in _MAIN if isinstance(call.arguments.get(name), str)), None)


def edit_call(call: ToolCall, *, editor: Sequence[str], run: RunEditor) -> dict[str, Any] | None:
    """The call's arguments after the person edited them; None where nothing was changed.

    Raises UsageError where the editor fails or leaves something that is not JSON.
    """
    name = main_argument(call)
    text = str(call.arguments[name]) if name else json.dumps(call.arguments, indent=2, ensure_ascii=False)
    suffix = Path(str(call.arguments.get("path", ""))).suffix if name else ".json"
    with tempfile.TemporaryDirectory(prefix="cuda-tui-edit-") as folder:
        path = Path(folder) / f"proposal{suffix or '.txt'}"
        path.write_text(text, encoding="utf-8")
        try:
            status = run([*editor, str(path)])
        except OSError as error:
            raise UsageError(f"cannot start the editor {editor[0]}: {error.strerror}", hint="set EDITOR") from error
        if status != 0:
            raise UsageError(f"the editor {editor[0]} ended with {status}", hint="the proposal is unchanged")
        edited = path.read_text(encoding="utf-8")
    if edited == text:
        return None
    if name:
        return {**call.arguments, name: edited}
    try:
        arguments = json.loads(edited)
    except json.JSONDecodeError as error:
        raise UsageError(f"the edited arguments are not JSON: {error}", hint="the proposal is unchanged") from error
    if not isinstance(arguments, dict):
        raise UsageError("the edited arguments are not a JSON object", hint="the proposal is unchanged")
    return arguments


def run_on_terminal(command: Sequence[str], *, terminal: int) -> int:
    """Run an editor on the real terminal, whose descriptor is `terminal`; returns its exit status."""
    return subprocess.run(command, stdin=0, stdout=terminal, stderr=terminal, check=False).returncode
