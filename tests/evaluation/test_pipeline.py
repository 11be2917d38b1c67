"""The evaluator as a whole: what stops it, what it survives, and that it leaves nothing behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cuda_tui.errors import ReferenceFault
from cuda_tui.evaluation.pipeline import Evaluator
from cuda_tui.evaluation.progress import Progress, SliceDone, StageBegan
from cuda_tui.evaluation.report import Code, NotMeasured, Report, Verdict
from cuda_tui.evaluation.runtime import Interpreter
from cuda_tui.sandbox.rung import detect
from cuda_tui.workspace.task import Task
from cuda_tui.workspace.workspace import Workspace

pytestmark = pytest.mark.slow

MODEL = b"""
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(256, 512)]
"""
HONEST = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.exp(torch.log_softmax(x, dim=-1))
"""
HANGS_WITH_THE_GIL = """
import ctypes, torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        ctypes.PyDLL(None).sleep(600)
        return x
"""


class Room:
    """One evaluator for this module, with a hook on its progress."""

    def __init__(self, root: Path, cache: Path) -> None:
        self.workspace = Workspace.create(root, task=Task(name="room", time_limit_s=4.0), model_source=MODEL)
        self.hook: Any = None
        self.cancelled_at = 0.0
        self.evaluator = Evaluator(
            self.workspace,
            interpreter=Interpreter.at(
                sys.executable,
                environment=dict(os.environ) | {"PROVIDER_API_KEY": "canary-123"},
                rung=detect(),
                cache=cache,
            ),
            on_progress=self._progress,
        )

    def _progress(self, progress: Progress) -> None:
        if self.hook is not None and self.hook(progress):
            self.hook = None
            # From another thread and a moment later, so that the stage is under way.
            threading.Timer(0.15, self._cancel).start()

    def _cancel(self) -> None:
        self.cancelled_at = time.monotonic()
        self.evaluator.cancel()

    def evaluate(self, source: str = HONEST, **arguments: Any) -> Report:
        (self.workspace.root / "model_new.py").write_text(source)
        return self.evaluator.evaluate(**{"stop_after": "verify", **arguments})


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    made = Room(tmp_path_factory.mktemp("pipeline") / "work space", tmp_path_factory.mktemp("cache"))
    yield made
    made.evaluator.close()


@pytest.fixture(autouse=True)
def _clean(room: Room) -> Iterator[None]:
    yield
    room.hook = None
    room.workspace.restore_protected()
    for path in (room.workspace.root / "kernels").glob("bad*"):
        path.unlink()


# First, while nothing is warm: baselines must be compiling when the cancel comes.
@pytest.mark.parametrize("stage", ["reference", "verify", "baselines"])
def test_cancel_ends_a_stage_within_two_seconds_and_harms_nothing(room: Room, stage: str) -> None:
    room.hook = lambda progress: isinstance(progress, StageBegan) and progress.stage == stage
    report = room.evaluate(stop_after="measure")
    assert time.monotonic() - room.cancelled_at < 2
    assert (report.verdict, report.code) == (Verdict.UNVERIFIED, Code.CANCELLED)
    assert room.evaluate().verdict is Verdict.PASSED


def test_cancel_during_a_slice_ends_it_and_the_next_call_works(room: Room) -> None:
    room.hook = lambda progress: isinstance(progress, SliceDone)
    report = room.evaluate(stop_after="measure")
    assert time.monotonic() - room.cancelled_at < 2
    assert report.code is Code.CANCELLED
    assert room.evaluate().verdict is Verdict.PASSED


def test_cancel_ends_a_candidate_that_hangs(room: Room) -> None:
    room.hook = lambda progress: isinstance(progress, StageBegan) and progress.stage == "verify"
    report = room.evaluate(HANGS_WITH_THE_GIL)
    assert report.code is Code.CANCELLED
    assert time.monotonic() - room.cancelled_at < 2


def test_candidate_that_hangs_with_the_interpreter_locked_is_rejected(room: Room) -> None:
    report = room.evaluate(HANGS_WITH_THE_GIL)
    assert (report.verdict, report.code) == (Verdict.REJECTED, Code.HANG)
    assert "did not end in 4 s" in report.message
    assert room.evaluate().verdict is Verdict.PASSED


def test_changed_protected_file_is_tampering(room: Room) -> None:
    with (room.workspace.root / "model.py").open("a") as handle:
        handle.write("# looser\n")
    report = room.evaluate()
    assert (report.verdict, report.code) == (Verdict.REJECTED, Code.TAMPER)
    assert "model.py was changed" in report.message


def test_source_that_does_not_compile_is_reported_with_its_place(room: Room) -> None:
    (room.workspace.root / "kernels" / "bad.cpp").write_text("int f() {\n    return not_declared;\n}\n")
    report = room.evaluate()
    assert (report.verdict, report.code) == (Verdict.REJECTED, Code.BUILD)
    assert report.message.startswith("kernels/bad.cpp:2: ")
    assert "not_declared" in report.message
    assert report.build is not None
    assert report.performance == NotMeasured(reason="not built")


def test_key_in_the_environment_reaches_no_candidate(room: Room) -> None:
    source = HONEST.replace(
        "import torch\n",
        "import os, torch\nseen = [dict(os.environ), open('/proc/self/environ').read()]\n"
        "assert 'canary-123' not in str(seen), 'a key leaked'\n",
        1,
    )
    report = room.evaluate(source)
    assert report.verdict is Verdict.PASSED, report.message


FORGED = """
import json, os, torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        for number in range(3, 64):
            try:
                os.write(number, json.dumps({answer}).encode() + b"\\n")
            except OSError:
                pass
        {then}
        return torch.softmax(x, dim=-1)
"""
SETTINGS = '{"functions": [], "switches": []}'
EXPORT = '{"plan": {}, "values": {}, "problems": [], "rows": [], "input_rows": [], "alias": {}, "settings": SETTINGS}'


@pytest.mark.parametrize("then", ["os._exit(0)", "pass"])
@pytest.mark.parametrize("answer", ["[1]", '{"spans_ns": 1}', EXPORT, '{"error": 3}', '"x" * 1000'])
def test_forged_answer_is_rejected_and_accuses_nobody_else(room: Room, answer: str, then: str) -> None:
    answer = answer.replace("SETTINGS", SETTINGS)
    report = room.evaluate(FORGED.replace("{answer}", answer).replace("{then}", then))
    assert report.verdict is Verdict.REJECTED
    assert report.code in {Code.FORGED_RESULT, Code.RAISED}
    assert room.evaluate().verdict is Verdict.PASSED


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("torch.allclose = lambda *a, **k: True", Code.TAMPER),
        ("torch.Tensor.detach = torch.Tensor.clone", Code.TAMPER),
        ("import time; time.perf_counter = lambda: 0.0", Code.CLOCK),
        ("torch.set_num_threads(2)", Code.GLOBAL_STATE),
        ("torch.set_float32_matmul_precision('medium')", Code.GLOBAL_STATE),
        ("torch.set_flush_denormal(True)", Code.GLOBAL_STATE),
    ],
)
def test_candidate_that_changes_the_process_is_rejected(room: Room, change: str, code: Code) -> None:
    report = room.evaluate(HONEST.replace("import torch\n", f"import torch\n{change}\n", 1))
    assert (report.verdict, report.code) == (Verdict.REJECTED, code), report.message


@pytest.mark.parametrize(
    "use",
    ["torch.compile(torch.softmax)(x, dim=-1)", "torch._dynamo.optimize('eager')(torch.softmax)(x, dim=-1)"],
)
def test_candidate_that_leaves_the_work_to_torch_compile_is_rejected(room: Room, use: str) -> None:
    source = HONEST.replace("torch.exp(torch.log_softmax(x, dim=-1))", use)
    report = room.evaluate(source.replace("import torch\n", "import torch, torch._dynamo\n", 1))
    assert (report.verdict, report.code) == (Verdict.REJECTED, Code.BANNED_OP), report.message


def test_output_that_is_written_in_part_is_rejected(room: Room) -> None:
    source = HONEST.replace(
        "        return torch.exp(torch.log_softmax(x, dim=-1))\n",
        "        y, out = torch.softmax(x, dim=-1), torch.empty_like(x)\n        out[:] = y\n        return out\n",
    )
    assert room.evaluate(source).verdict is Verdict.PASSED
    # An element nearly zero, in fresh memory that the system hands out as zeros.
    report = room.evaluate(source.replace("out[:] = y", "out[y > 2e-5] = y[y > 2e-5]"))
    assert (report.verdict, report.code) == (Verdict.REJECTED, Code.NUM_MISMATCH)
    assert report.verify is not None
    assert float(report.verify.trials[-1].checks[0].max_abs_error) > 1e9


def test_abort_is_a_fault_by_its_own_name(room: Room) -> None:
    report = room.evaluate(HONEST.replace("        return", "        import os; os.abort()\n        return"))
    assert (report.verdict, report.code) == (Verdict.REJECTED, Code.MEM_FAULT)
    assert "abort" in report.message


def test_oracle_that_is_lost_is_started_again(room: Room) -> None:
    room.evaluate()
    worker = room.evaluator._reference._worker
    assert worker is not None
    worker._end()
    with pytest.raises(ReferenceFault, match="ended its process"):
        room.evaluate()
    assert room.evaluate().verdict is Verdict.PASSED


def test_report_names_its_stages_its_sandbox_and_a_receipt(room: Room) -> None:
    report = room.evaluate()
    assert [stage.stage for stage in report.stages] == ["policy", "reference", "verify"]
    assert report.sandbox == detect().summary
    assert report.receipt is not None
    assert "model_new.py" in report.receipt.files
    assert len(set(report.receipt.seeds)) == len(report.receipt.seeds) == 6
    assert {"torch", "python", "cuda-tui"} <= set(report.receipt.versions)


CONTROLLER = """
import os, sys, threading
from pathlib import Path
from cuda_tui.evaluation.pipeline import Evaluator
from cuda_tui.evaluation.runtime import Interpreter
from cuda_tui.sandbox.rung import detect
from cuda_tui.workspace.workspace import Workspace

interpreter = Interpreter.at(sys.executable, environment=dict(os.environ), rung=detect(), cache=Path(sys.argv[2]))
evaluator = Evaluator(Workspace.open(Path(sys.argv[1])), interpreter=interpreter)
evaluator.check_reference()
print("ready", flush=True)
evaluator.evaluate(stop_after="verify")
"""


def marked(mark: str) -> list[int]:
    """Living processes whose environment carries a mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            alive = (folder / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
            if alive and mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def test_killed_controller_leaves_no_process(room: Room, tmp_path: Path) -> None:
    (room.workspace.root / "model_new.py").write_text(HANGS_WITH_THE_GIL)
    mark = f"canary-{os.getpid()}-{time.monotonic_ns()}"
    # TZ is on the allow-list, so every worker carries the mark too.
    with subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, str(room.workspace.root), str(tmp_path)],
        env=dict(os.environ) | {"TZ": mark},
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as controller:
        assert controller.stdout is not None
        assert controller.stdout.readline() == b"ready\n"
        assert len(marked(mark)) >= 2
        controller.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 3
    while survivors := marked(mark):
        assert time.monotonic() < deadline, f"still there: {survivors}"


MEAN = """
import torch


class {name}(torch.nn.Module):
    def forward(self, x):
        {extra}
        return x.mean()
{inputs}"""
LATER = "self.calls = getattr(self, 'calls', 0) + 1; x = x * 3 if self.calls > 60 else x"


def test_wrong_small_output_of_one_candidate_is_not_held_against_the_next(
    tmp_path: Path, interpreter: Interpreter
) -> None:
    inputs = "\n\ndef get_inputs():\n    return [torch.randn(64, 64) + torch.randn(())]\n"
    source = MEAN.format(name="Model", extra="", inputs=inputs)
    workspace = Workspace.create(tmp_path / "w", task=Task(name="mean"), model_source=source.encode())
    evaluator = Evaluator(workspace, interpreter=interpreter)
    try:
        model_new = workspace.root / "model_new.py"
        model_new.write_text(MEAN.format(name="ModelNew", extra=LATER, inputs=""))
        assert evaluator.evaluate().code is Code.STALE_RESULT
        model_new.write_text(MEAN.format(name="ModelNew", extra="", inputs=""))
        report = evaluator.evaluate(stop_after="verify")
        assert report.verdict is Verdict.PASSED, report.message
    finally:
        evaluator.close()
