"""From what the person named to a workspace: find the class, its inputs and its constructor's arguments, or say
which one is missing and how to give it."""

import ast
import io
import os
import re
import shutil
import tokenize
from pathlib import Path
from typing import Any

from cuda_tui.errors import UsageError
from cuda_tui.evaluation.reference import reference_fault
from cuda_tui.evaluation.runtime import Interpreter, Runtime
from cuda_tui.evaluation.worker_paths import package_of
from cuda_tui.evaluation.workers import WorkerDied, WorkerFault, WorkerTimedOut
from cuda_tui.records import Record
from cuda_tui.workspace.adopt import adopt
from cuda_tui.workspace.task import Task
from cuda_tui.workspace.workspace import Workspace

INPUT_NAMES = ("get_inputs", "example_inputs", "sample_inputs", "make_inputs", "inputs", "example", "sample")


class Target(Record):
    """What the person named: a file and perhaps a class, or a workspace folder."""

    path: str
    class_name: str | None = None


class Wanted(Record):
    """What the person said besides the file: what gives inputs, the device, and CUDA targets ("sm_90a")."""

    inputs: str | None = None
    device: str = "cpu"
    architectures: tuple[str, ...] = ()


def parse_target(text: str) -> Target:
    """`FILE`, `FILE:Class` or a folder. Raises UsageError where there is no such thing."""
    path = Path(text).expanduser()
    if path.exists():
        return Target(path=str(path.resolve()))
    file, colon, name = text.rpartition(":")
    if colon and Path(file).expanduser().exists():
        return Target(path=str(Path(file).expanduser().resolve()), class_name=name)
    raise UsageError(f"No such file: {file if colon else text}", hint="Name a Python file, FILE:Class, or a workspace.")


def open_target(
    text: str,
    *,
    interpreter: Interpreter,
    wanted: "Wanted | None" = None,
    workspace: Path | None = None,
    workspaces: Path,
) -> Workspace:
    """The workspace for a target: an existing one, an adopted folder, or a new one made from a file.

    `workspaces` is the folder for new ones. Raises UsageError naming what is missing.
    """
    wanted = wanted or Wanted()
    target = parse_target(text)
    path = Path(target.path)
    if path.is_dir():
        return _open_folder(path, device=wanted.device, workspace=workspace, workspaces=workspaces)
    if path.suffix != ".py":
        raise UsageError(f"{path.name} is not a Python file.", hint="Name the .py file that defines the model.")
    root = project_root(path)
    source = path.read_bytes()
    folder = workspace or new_folder(workspaces, known_as(path))
    facts = _inspect(path, root, interpreter, folder)
    class_name = choose_class(facts, target.class_name, path)
    inputs_name = choose_inputs(facts, wanted.inputs, path)
    init = _choose_init(facts, class_name, path, inputs_name)
    alone = imports_alone(path, root)
    task = Task(
        name=f"{known_as(path)}:{class_name}",
        class_name=class_name,
        inputs=inputs_name,
        init=init,
        source=str(path),
        project_root=str(root) if not alone or _reads_files(source) else None,
        device=wanted.device,
        architectures=wanted.architectures,
    )
    model = source if alone else _adapter(path, root, class_name, inputs_name, init)
    start = rename_class(model.decode("utf-8"), class_name) if alone else _subclass(path, class_name, root)
    return Workspace.create(folder, task=task, model_source=model, files={"model_new.py": start.encode()})


def _open_folder(path: Path, *, device: str, workspace: Path | None, workspaces: Path) -> Workspace:
    if (path / "task.toml").exists():
        return Workspace.open(path)
    if (path / "model.py").exists():
        return adopt(path, root=workspace or new_folder(workspaces, path.name), device=device)
    raise UsageError(
        f"{path} is neither a workspace nor a folder with a model.py.", hint="Name the Python file of the model."
    )


def known_as(path: Path) -> str:
    """What a person calls a model file: its name, and the folder's where every model has the same one."""
    return path.parent.name if path.stem == "model" and path.parent.name else path.stem


def new_folder(workspaces: Path, stem: str) -> Path:
    """An unused folder name: STEM, STEM-2, STEM-3."""
    clean = re.sub(r"[^A-Za-z0-9_.-]+", "-", stem) or "model"
    number = 1
    while True:
        folder = workspaces / (clean if number == 1 else f"{clean}-{number}")
        if not folder.exists() or not any(folder.iterdir()):
            return folder
        number += 1


def project_root(path: Path) -> Path:
    """The folder the user's own command would run in: above the outermost package, else the file's own."""
    return Path(package_of(path)[0])


def imports_alone(path: Path, root: Path) -> bool:
    """Whether the file needs none of its neighbours: no relative imports, none of modules beside it or at the root."""
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError as error:
        raise UsageError(f"{path.name}:{error.lineno}: {error.msg}", hint="Mend the file and try again.") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.level or _is_local(node.module or "", path, root)):
            return False
        if isinstance(node, ast.Import) and any(_is_local(alias.name, path, root) for alias in node.names):
            return False
    return True


def _is_local(name: str, path: Path, root: Path) -> bool:
    top = name.partition(".")[0]
    return any((folder / f"{top}.py").exists() or (folder / top).is_dir() for folder in (path.parent, root))


def _reads_files(source: bytes) -> bool:
    """Whether the file opens something by a relative name; it then needs its folder."""
    return bool(re.search(rb"\bopen\(|\bPath\(|__file__|\.load\(", source))


def _inspect(path: Path, root: Path, interpreter: Interpreter, folder: Path) -> dict[str, Any]:
    """Classes and functions of the file, from an isolated worker that imports it."""
    scratch = folder.parent / f".{folder.name}-intake"
    task = Task(name=path.stem, project_root=str(root))
    runtime = Runtime(root=scratch, task=task, interpreter=interpreter)
    try:
        with runtime.oracle(path.parent) as worker:
            return worker.ask("inspect", limit_s=120, path=str(path), roots=[str(root)], cwd=str(root))
    except (WorkerFault, WorkerDied, WorkerTimedOut) as error:
        fault = reference_fault(error, path)
        roots = f"Import roots tried: {', '.join(dict.fromkeys((str(path.parent), str(root))))}."
        raise UsageError(fault.message, hint=fault.hint or roots) from None
    finally:
        runtime.close()
        shutil.rmtree(scratch, ignore_errors=True)


def choose_class(facts: dict[str, Any], wanted: str | None, path: Path) -> str:
    """The named class, `Model`, or the only one. Raises UsageError listing the choices."""
    names = [row["name"] for row in facts["classes"]]
    if wanted is not None:
        if wanted not in names:
            listed = ", ".join(names) or "none"
            raise UsageError(f"{path.name} has no nn.Module named {wanted}.", hint=f"It defines: {listed}.")
        return wanted
    if not names:
        raise UsageError(f"{path.name} defines no nn.Module.", hint="Name a file with a class derived from nn.Module.")
    if "Model" in names:
        return "Model"
    if len(names) == 1:
        return str(names[0])
    # Parts are listed before the whole in most files, but a guess could optimise the wrong one.
    raise UsageError(
        f"{path.name} defines several modules: {', '.join(names)}.", hint=f"Say which: {path.name}:{names[-1]}"
    )


def choose_inputs(facts: dict[str, Any], wanted: str | None, path: Path) -> str:
    """The function or value that gives example inputs. Raises UsageError with a sample to paste."""
    offered = [*facts["functions"], *facts["values"]]
    if wanted is not None:
        if wanted not in offered:
            hint = f"It offers: {', '.join(offered) or 'none'}."
            raise UsageError(f"{path.name} has no inputs function or value named {wanted}.", hint=hint)
        return wanted
    for name in INPUT_NAMES:
        if name in offered:
            return name
    guesses = [name for name in offered if "input" in name and "init" not in name]
    if len(guesses) == 1:
        return str(guesses[0])
    raise UsageError(
        f"{path.name} does not say what its inputs look like.",
        hint="Add a function to it, or name one with --inputs:\n"
        "def get_inputs():\n    return [torch.randn(16, 1024)]  # or a dict of keyword arguments",
    )


def _choose_init(facts: dict[str, Any], class_name: str, path: Path, inputs_name: str) -> str | None:
    # `get_inputs_large` goes with `get_init_inputs_large` where there is one.
    paired = "get_init_inputs" + inputs_name.removeprefix("get_inputs") if inputs_name.startswith("get_inputs") else ""
    for name in (paired, "get_init_inputs"):
        if name in [*facts["functions"], *facts["values"]]:
            return name
    required = next(row["required"] for row in facts["classes"] if row["name"] == class_name)
    if required:
        raise UsageError(
            f"{class_name} in {path.name} needs constructor arguments: {', '.join(required)}.",
            hint=f"Add a function that gives them:\ndef get_init_inputs():\n    return [...]  # {', '.join(required)}",
        )
    return None


def rename_class(source: str, class_name: str) -> str:
    """The source with the class called ModelNew wherever its name is used: the candidate's first state."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = source.splitlines(keepends=True)
    found = [token.start for token in tokens if token.type == tokenize.NAME and token.string == class_name]
    for row, column in reversed(found):
        line = lines[row - 1]
        lines[row - 1] = line[:column] + "ModelNew" + line[column + len(class_name) :]
    return "".join(lines)


def _subclass(path: Path, class_name: str, root: Path) -> str:
    """The candidate's first state where the class lives among its neighbours."""
    head = ADAPTER.format(file=str(path), root=str(root), module=package_of(path)[1], names=class_name)
    return f"{head}\n\nclass ModelNew({class_name}):\n    pass\n"


ADAPTER = '''"""Adapter: the model lives in {file} and imports its neighbours, so it is imported from there."""

import sys

if {root!r} not in sys.path:
    sys.path.insert(0, {root!r})

from {module} import {names}
'''


def _adapter(path: Path, root: Path, class_name: str, inputs: str, init: str | None) -> bytes:
    names = ", ".join(name for name in (class_name, inputs, init) if name)
    _, module = package_of(path)
    return ADAPTER.format(file=os.fspath(path), root=str(root), module=module, names=names).encode()
