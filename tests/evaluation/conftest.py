"""One warm evaluator for all verdict tests: its zygote takes seconds to start, a verification tenths of one."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

from cuda_tui.evaluation.pipeline import Evaluator
from cuda_tui.evaluation.report import Report
from cuda_tui.evaluation.runtime import Interpreter
from cuda_tui.sandbox.rung import detect
from cuda_tui.workspace.task import Task
from cuda_tui.workspace.workspace import Workspace

REFERENCE = b"""
import torch


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))
        self.register_buffer("shift", torch.zeros(width), persistent=False)
        self.scale = torch.full((1,), 1.5)

    def forward(self, x, bias=None):
        y = torch.softmax(x * self.weight + self.shift, dim=-1) * self.scale
        return y, {"mean": y.mean(dim=0) if bias is None else y.mean(dim=0) + bias}


def get_inputs():
    return [torch.randn(48, 384)], {"bias": torch.rand(384)}


def get_init_inputs():
    return [384]
"""

HONEST = """
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))
        self.register_buffer("shift", torch.zeros(width), persistent=False)
        self.scale = torch.full((1,), 1.5)
        self.calls = 0
        self.kept = {}
        self.private = self.weight.detach().clone()

    def forward(self, x, bias=None):
        y = torch.softmax(x * self.weight + self.shift, dim=-1) * self.scale
        return y, {"mean": y.mean(dim=0) if bias is None else y.mean(dim=0) + bias}
"""

Evaluate = Callable[..., Report]


@pytest.fixture(scope="session")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interpreter]:
    """Our own Python with one warm parent for all tests that do not need one of their own."""
    found = Interpreter.at(
        sys.executable, environment=dict(os.environ), rung=detect(), cache=tmp_path_factory.mktemp("cache")
    )
    yield found
    found.close()


@pytest.fixture(scope="session")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluate]:
    """evaluate(source_of_model_new) -> Report, on the reference above."""
    root = tmp_path_factory.mktemp("verdicts") / "workspace"
    workspace = Workspace.create(root, task=Task(name="verdicts"), model_source=REFERENCE)
    evaluator = Evaluator(
        workspace,
        interpreter=Interpreter.at(
            sys.executable, environment=dict(os.environ), rung=detect(), cache=tmp_path_factory.mktemp("cache")
        ),
    )

    def run(source: str, stop_after: Literal["build", "verify", "measure"] = "verify") -> Report:
        Path(root, "model_new.py").write_text(source, encoding="utf-8")
        return evaluator.evaluate(stop_after=stop_after)

    yield run
    evaluator.close()
