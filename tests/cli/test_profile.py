"""`cuda-tui profile`: what it prints, and that a check that cannot be made says why."""

import os
import sys
from pathlib import Path

import msgspec
import pytest

from cuda_tui.cli.devices import Host
from cuda_tui.cli.profile import Wanted, run
from cuda_tui.evaluation.profile.sanitizer import Checked
from cuda_tui.workspace.task import Task
from cuda_tui.workspace.workspace import Workspace

pytestmark = pytest.mark.slow

MODEL = b"""
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2


def get_inputs():
    return [torch.randn(64, 64)]
"""


def look(tmp_path: Path, wanted: Wanted, *, as_json: bool = False) -> int:
    workspace = Workspace.create(tmp_path / "w", task=Task(name="x"), model_source=MODEL)
    host = Host(python=sys.executable, env=dict(os.environ))
    return run(workspace.root, wanted, host=host, cache=tmp_path / "cache", as_json=as_json)


def test_reference_is_a_table_of_operators(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert look(tmp_path, Wanted(reference=True)) == 0
    out = capsys.readouterr().out
    assert out.startswith("reference: ")
    assert "aten::relu" in out


def test_check_on_the_cpu_says_why_it_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert look(tmp_path, Wanted(check="memcheck"), as_json=True) == 0
    checked = msgspec.json.decode(capsys.readouterr().out, type=Checked)
    assert not checked.ran
    assert "runs on the CPU" in checked.problem


def test_machine_code_without_kernels_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert look(tmp_path, Wanted(sass="")) == 0
    assert capsys.readouterr().out == "there are no kernels to build\n"
