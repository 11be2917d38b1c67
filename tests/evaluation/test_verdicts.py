"""What the evaluator says of candidates, honest and not. Every cheat has its honest twin in HONEST."""

import os
import sys
from pathlib import Path

import pytest

from cuda_tui.evaluation.pipeline import Evaluator
from cuda_tui.evaluation.report import Code, Measured, Outcome, Verdict
from cuda_tui.evaluation.runtime import Interpreter
from cuda_tui.sandbox.rung import detect
from cuda_tui.workspace.task import Task
from cuda_tui.workspace.workspace import Workspace
from tests.evaluation.conftest import HONEST, Evaluate

pytestmark = pytest.mark.slow

FORWARD = HONEST[HONEST.index("        y = torch.softmax") :]


def with_forward(body: str) -> str:
    """HONEST with another forward body."""
    return HONEST.replace(FORWARD, body)


HONEST_RETURN = "        return y, {'mean': y.mean(dim=0) + bias}\n"
COMPUTE = "        y = torch.softmax(x * self.weight + self.shift, dim=-1) * self.scale\n"


def test_honest_candidate_passes(evaluate: Evaluate) -> None:
    report = evaluate(HONEST)
    assert report.verdict is Verdict.PASSED, report.message
    assert report.verify is not None
    assert report.verify.tensors_compared == 20  # two outputs in five draws, one with NaN, and four forms
    assert {trial.name for trial in report.verify.trials} >= {"draw 1, state redrawn", "NaN and infinities"}


@pytest.mark.parametrize(
    ("name", "source", "codes"),
    [
        (
            "zeros",
            with_forward("        y = torch.zeros_like(x)\n        return y, {'mean': bias}\n"),
            {Code.NUM_MISMATCH, Code.NONFINITE},
        ),
        ("wrong dtype", with_forward(COMPUTE + "        return y.double(), {'mean': bias}\n"), {Code.LAYOUT}),
        ("wrong structure", with_forward(COMPUTE + "        return [y, {'mean': bias}]\n"), {Code.LAYOUT}),
        ("missing key", with_forward(COMPUTE + "        return y, {}\n"), {Code.LAYOUT}),
        ("one output wrong", with_forward(COMPUTE + "        return y, {'mean': bias * 1}\n"), {Code.NUM_MISMATCH}),
        (
            "bf16 inside",
            with_forward(
                "        y = torch.softmax((x * self.weight + self.shift).bfloat16().float(), dim=-1) * self.scale\n"
                + HONEST_RETURN
            ),
            {Code.PRECISION, Code.NUM_MISMATCH},
        ),
        (
            "state copied at construction",
            with_forward(
                "        y = torch.softmax(x * self.private + self.shift, dim=-1) * self.scale\n" + HONEST_RETURN
            ),
            {Code.NUM_MISMATCH},
        ),
        ("input changed", with_forward(COMPUTE + "        x.mul_(0.5)\n" + HONEST_RETURN), {Code.INPUT_MUTATED}),
        (
            "kept by pointer",
            with_forward(
                "        key = x.data_ptr()\n"
                "        if 'y' not in self.kept:\n"
                "            self.kept['y'] = torch.softmax(x * self.weight + self.shift, dim=-1) * self.scale\n"
                "        y = self.kept['y']\n" + HONEST_RETURN
            ),
            {Code.NUM_MISMATCH, Code.NONFINITE},
        ),
        ("NaN dropped", with_forward("        x = torch.nan_to_num(x)\n" + COMPUTE + HONEST_RETURN), {Code.NONFINITE}),
        (
            "imports the reference",
            "from model import Model\n\n\nclass ModelNew(Model):\n    pass\n",
            {Code.REFERENCE_USED},
        ),
        ("no ModelNew", "import torch\n", {Code.RAISED}),
        ("syntax error", "def (:\n", {Code.RAISED}),
        ("raises", with_forward("        raise ValueError('no')\n"), {Code.RAISED}),
        (
            "segmentation fault",
            with_forward("        import ctypes\n        ctypes.string_at(8)\n" + COMPUTE + HONEST_RETURN),
            {Code.MEM_FAULT},
        ),
        ("leaves", with_forward("        import os\n        os._exit(0)\n"), {Code.FORGED_RESULT}),
        (
            "lost parameter",
            HONEST.replace("self.weight = torch.nn.Parameter(torch.ones(width))", "self.w = torch.ones(width)").replace(
                "self.weight", "self.w"
            ),
            {Code.STATE_IGNORED},
        ),
        (
            "tensor subclass",
            with_forward(
                COMPUTE
                + "        class Late(torch.Tensor):\n            pass\n"
                + "        return y.as_subclass(Late), {'mean': y.mean(dim=0) + bias}\n"
            ),
            {Code.LAYOUT},
        ),
    ],
)
def test_candidate_at_fault_is_rejected(evaluate: Evaluate, name: str, source: str, codes: set[Code]) -> None:
    report = evaluate(source)
    assert report.verdict is Verdict.REJECTED, name
    assert report.code in codes, f"{name}: {report.code} {report.message}"
    assert report.message


def test_next_candidate_after_a_fault_is_unharmed(evaluate: Evaluate) -> None:
    evaluate(with_forward("        import os, signal\n        os.kill(os.getpid(), signal.SIGKILL)\n"))
    assert evaluate(HONEST).verdict is Verdict.PASSED


def test_candidate_reaches_neither_network_nor_files_nor_other_processes(evaluate: Evaluate) -> None:
    probe = """
        import os, socket
        found = []
        if len([p for p in os.listdir("/proc") if p.isdigit()]) > 2:
            found.append("processes")
        for path in ("/root/.ssh", os.path.expanduser("~/.bashrc"), "/etc/shadow"):
            if os.path.exists(path):
                found.append(path)
        try:
            socket.create_connection(("127.0.0.1", 9), 0.2)
        except OSError as error:
            if error.errno not in (101, 99, 111):
                found.append(str(error))
        for folder in ("/usr", os.getcwd()):
            try:
                open(folder + "/written", "w")
                found.append("wrote " + folder)
            except OSError:
                pass
        if found:
            raise RuntimeError(", ".join(found))
"""
    report = evaluate(with_forward(probe + COMPUTE + HONEST_RETURN))
    assert report.verdict is Verdict.PASSED, report.message


def test_identical_code_is_never_called_faster(evaluate: Evaluate) -> None:
    report = evaluate(HONEST, "measure")
    assert report.verdict is Verdict.PASSED, report.message
    assert isinstance(report.performance, Measured)
    eager = report.performance.ratio_to("eager")
    assert eager is not None
    assert eager.outcome in {Outcome.SAME, Outcome.INCONCLUSIVE}
    assert len(report.performance.candidate.process_medians_us) == 4


@pytest.mark.parametrize(
    ("name", "source", "codes"),
    [
        (
            "result kept between timed calls",
            with_forward(
                "        self.calls += 1\n"
                "        if self.calls > 10:\n            return self.kept['out']\n"
                "        y = torch.softmax(x * self.weight + self.shift, dim=-1) * self.scale\n"
                "        self.kept['out'] = (y, {'mean': y.mean(dim=0) + bias})\n"
                "        return self.kept['out']\n"
            ),
            {Code.STALE_RESULT, Code.NONFINITE},
        ),
        (
            "clock divided",
            "import time\n_real = time.perf_counter_ns\ntime.perf_counter_ns = lambda: _real() // 100\n"
            "import sys\nfor name, module in list(sys.modules.items()):\n"
            "    if name.endswith('.timing'):\n        module._clock = time.perf_counter_ns\n" + HONEST,
            {Code.CLOCK},
        ),
    ],
)
def test_timing_cheats_are_caught(evaluate: Evaluate, name: str, source: str, codes: set[Code]) -> None:
    report = evaluate(source, "measure")
    assert report.verdict is Verdict.REJECTED, name
    assert report.code in codes, f"{name}: {report.code} {report.message}"


def test_trial_that_the_reference_itself_refuses_is_named_and_not_passed_over_in_silence(tmp_path: Path) -> None:
    model = (
        b"import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        b"        if torch.isnan(x).any():\n            raise ValueError('no NaN, please')\n        return x * 2\n\n\n"
        b"def get_inputs():\n    return [torch.randn(32, 32)]\n"
    )
    workspace = Workspace.create(tmp_path / "workspace", task=Task(name="picky", init=None), model_source=model)
    (workspace.root / "model_new.py").write_bytes(model.replace(b"Model(", b"ModelNew("))
    interpreter = Interpreter.at(sys.executable, environment=dict(os.environ), rung=detect(), cache=tmp_path / "cache")
    evaluator = Evaluator(workspace, interpreter=interpreter)
    try:
        report = evaluator.evaluate(stop_after="verify")
    finally:
        evaluator.close()
    assert report.verdict is Verdict.PASSED, report.message
    flag = next(flag for flag in report.flags if flag.code == "SKIPPED_TRIAL")
    assert "NaN and infinities" in flag.message
    assert "no NaN, please" in flag.message
