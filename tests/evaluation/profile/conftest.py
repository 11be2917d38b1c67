"""A task with a candidate, run alone in the sandbox; and fake tools, first on PATH."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cuda_tui.evaluation.candidate import Candidate
from cuda_tui.evaluation.profile.solo import Solo
from cuda_tui.evaluation.reference import Reference
from cuda_tui.evaluation.runtime import Interpreter, Runtime
from cuda_tui.sandbox.rung import detect
from cuda_tui.workspace.task import Task
from cuda_tui.workspace.workspace import Workspace

MODEL = b"""
import torch


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, x):
        return torch.relu(x * self.weight)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return [256]
"""
HONEST = MODEL.decode().partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")


class Bench:
    """One workspace with its reference, and sides to run alone."""

    def __init__(self, root: Path, device: str, path: str, cache: Path) -> None:
        self.workspace = Workspace.create(root, task=Task(name="solo", device=device), model_source=MODEL)
        self.interpreter = Interpreter.at(
            sys.executable, environment={**os.environ, "PATH": path}, rung=detect(), cache=cache
        )
        self.runtime = Runtime(root=root, task=self.workspace.task, interpreter=self.interpreter)
        self.reference = Reference(self.runtime, root / "model.py")
        self.solo = Solo(self.runtime, self.reference)

    def candidate(self, source: str) -> Candidate:
        """A copy of the workspace with this model_new."""
        (self.workspace.root / "model_new.py").write_text(source, encoding="utf-8")
        return Candidate(self.workspace, None, self.runtime, self.reference)

    @property
    def runs(self) -> int:
        """How many processes have been started alone."""
        return len(list(self.runtime.folder.glob("solo-*")))

    def close(self) -> None:
        self.reference.close()
        self.runtime.close()
        self.interpreter.close()


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """make_bench(device="cpu", name="ncu", script="...") -> Bench, with a tool of that name first on PATH."""
    made: list[Bench] = []

    def make(*, device: str = "cpu", name: str = "", script: str = "") -> Bench:
        tools = tmp_path / f"tools-{len(made)}"
        tools.mkdir()
        if name:
            (tools / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
            (tools / name).chmod(0o755)
        root = tmp_path / f"workspace-{len(made)}"
        made.append(Bench(root, device, f"{tools}:{os.environ['PATH']}", tmp_path / "cache"))
        return made[-1]

    yield make
    for bench in made:
        bench.close()
