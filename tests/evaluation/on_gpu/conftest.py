"""Evaluators on the GPU for whole workspaces, sharing one warm parent."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

from cuda_tui.evaluation.pipeline import Evaluator
from cuda_tui.evaluation.report import Report
from cuda_tui.evaluation.runtime import Interpreter
from cuda_tui.nvml import Nvml
from cuda_tui.sandbox.rung import detect
from cuda_tui.workspace.task import Task
from cuda_tui.workspace.workspace import Workspace

StopAfter = Literal["build", "verify", "measure"]


class Bench:
    """One workspace on the GPU: its model, and candidates given as files."""

    def __init__(self, root: Path, model: str, interpreter: Interpreter, **task: object) -> None:
        fields = Task(name="gpu", device="cuda", architectures=(architecture(),))
        self.root = root
        self.evaluator = Evaluator(
            Workspace.create(root, task=_replaced(fields, task), model_source=model.encode()), interpreter=interpreter
        )

    def evaluate(self, model_new: str, stop_after: StopAfter = "verify", **kernels: str) -> Report:
        """The report on a candidate: its Python and, by name with `__` for the dot, its sources in kernels/."""
        (self.root / "model_new.py").write_text(model_new, encoding="utf-8")
        for path in (self.root / "kernels").glob("*.c*"):
            path.unlink()
        for name, text in kernels.items():
            (self.root / "kernels" / name.replace("__", ".")).write_text(text, encoding="utf-8")
        return self.evaluator.evaluate(stop_after=stop_after)


def _replaced(task: Task, fields: dict[str, object]) -> Task:
    import msgspec

    return msgspec.structs.replace(task, **fields)


def say(*values: object) -> None:
    """A line of figures, for runs with -s."""
    sys.stdout.write(" ".join(str(value) for value in values) + "\n")


def architecture() -> str:
    """The attached device's own target."""
    major, minor = Nvml.open().read(0).capability or (9, 0)
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


@pytest.fixture(scope="session")
def gpu_interpreter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interpreter]:
    """Our own Python with one warm parent."""
    found = Interpreter.at(
        sys.executable, environment=dict(os.environ), rung=detect(), cache=tmp_path_factory.mktemp("cache")
    )
    yield found
    found.close()


@pytest.fixture(scope="session")
def make_bench(
    tmp_path_factory: pytest.TempPathFactory, gpu_interpreter: Interpreter
) -> Iterator[Callable[..., Bench]]:
    """make_bench(model source, **fields of the task) -> Bench."""
    made: list[Bench] = []

    def make(model: str, **task: object) -> Bench:
        made.append(Bench(tmp_path_factory.mktemp("gpu") / "workspace", model, gpu_interpreter, **task))
        return made[-1]

    yield make
    for bench in made:
        bench.evaluator.close()
