"""`cuda-tui eval`: its exit codes, its lines, its JSON."""

import os
import sys
from pathlib import Path

import msgspec
import pytest

from cuda_tui.cli import evaluate
from cuda_tui.cli.devices import Host
from cuda_tui.evaluation.report import Code, Report, Verdict
from cuda_tui.workspace.task import Task
from cuda_tui.workspace.workspace import Workspace

pytestmark = pytest.mark.slow

MODEL = "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return {}\n\n\n"
MODEL += "def get_inputs():\n    return [torch.randn(32, 32)]\n"
NEW = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return {}\n"


@pytest.mark.parametrize(
    ("model", "new", "code", "verdict"),
    [
        ("x * 2", "x + x", 0, "PASSED: verified"),
        ("x * 2", "x * 3", 4, "REJECTED(NUM_MISMATCH): draw 1"),
        ("torch.ones(32, 32)", "torch.ones(32, 32)", 5, "UNVERIFIED(DEGENERATE_TASK): the reference's outputs"),
    ],
)
def test_exit_code_says_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str, new: str, code: int, verdict: str
) -> None:
    workspace = Workspace.create(tmp_path / "w", task=Task(name="x"), model_source=MODEL.format(model).encode())
    (workspace.root / "model_new.py").write_text(NEW.format(new))
    as_json = code == 4
    found = evaluate.run(
        workspace.root,
        host=Host(python=sys.executable, env=dict(os.environ)),
        cache=tmp_path / "cache",
        as_json=as_json,
        stop_after="verify",
    )
    assert found == code
    out = capsys.readouterr().out
    if as_json:
        report = msgspec.json.decode(out.encode(), type=Report)
        assert (report.verdict, report.code) == (Verdict.REJECTED, Code.NUM_MISMATCH)
    else:
        assert out.startswith(verdict)
