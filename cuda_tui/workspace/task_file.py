"""task.toml: written from a Task into the template's file, whose comments stay; read back strictly."""

from pathlib import Path
from typing import Any

import msgspec
import tomlkit
from tomlkit.exceptions import ParseError

from cuda_tui.errors import WorkspaceError
from cuda_tui.workspace.task import Task


def dump_task(task: Task, template: str) -> str:
    """The template's text with the task's values. Keys whose value is absent are left out."""
    document = tomlkit.parse(template)
    defaults = Task(name="")
    for name in Task.__struct_fields__:
        value: Any = getattr(task, name)
        if value is None:
            # TOML has no null: a default that is not None is switched off by an empty text.
            value = "" if getattr(defaults, name) is not None else None
        if value is None:
            document.pop(name, None)
        else:
            document[name] = list(value) if isinstance(value, tuple) else value
    return tomlkit.dumps(document)


def load_task(path: Path) -> Task:
    """The task of a workspace. Raises WorkspaceError naming the file and the bad key."""
    try:
        values = tomlkit.parse(path.read_text(encoding="utf-8")).unwrap()
    except FileNotFoundError:
        raise WorkspaceError(
            f"{path.parent} is no workspace: it has no task.toml.", hint="Start one with `cuda-tui optimize FILE`."
        ) from None
    except (ParseError, UnicodeDecodeError, OSError) as error:
        raise WorkspaceError(f"{path} cannot be read: {error}") from None
    unknown = sorted(set(values) - set(Task.__struct_fields__))
    if unknown:
        raise WorkspaceError(f"{path} has an unknown key: {unknown[0]}")
    for name in ("init", "project_root"):
        if values.get(name) == "":
            values[name] = None
    try:
        return msgspec.convert(values, Task)
    except msgspec.ValidationError as error:
        raise WorkspaceError(f"{path}: {error}") from None
