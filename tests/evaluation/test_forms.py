"""Inputs at other places in memory: verified, not taken, or wrong with the form and the input named."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cuda_tui.evaluation.pipeline import Evaluator
from cuda_tui.evaluation.report import Code, Report, Verdict
from cuda_tui.evaluation.runtime import Interpreter
from cuda_tui.workspace.task import Task
from cuda_tui.workspace.workspace import Workspace

pytestmark = pytest.mark.slow

MODEL = """
import torch


class Model(torch.nn.Module):
    def forward(self, x, y):
        FORWARD


def get_inputs():
    return [torch.randn(48, 64), torch.randn(48, 64)]
"""
CLEAN = "return x * 2.0 + y"
FLAT = """assert x.dtype == torch.float32
        flat = torch.as_strided(X, (X.numel(),), (1,), X.storage_offset()).reshape(X.shape)
        return WITH"""
Judge = Callable[..., Report]


@pytest.fixture
def judge(tmp_path: Path, interpreter: Interpreter) -> Iterator[Judge]:
    """judge(forward of ModelNew, reference="...", **fields of the task) -> Report."""
    made: list[Evaluator] = []

    def run(forward: str, *, reference: str = CLEAN, **task: object) -> Report:
        source = MODEL.replace("FORWARD", reference)
        fields = Task(name="forms", init=None, draws=1)
        for name, value in task.items():
            import msgspec

            fields = msgspec.structs.replace(fields, **{name: value})
        workspace = Workspace.create(tmp_path / f"w{len(made)}", task=fields, model_source=source.encode())
        (workspace.root / "model_new.py").write_text(
            MODEL.replace("FORWARD", forward).replace("Model(", "ModelNew("), encoding="utf-8"
        )
        made.append(Evaluator(workspace, interpreter=interpreter))
        return made[-1].evaluate(stop_after="verify")

    yield run
    for evaluator in made:
        evaluator._bench.close()


def forms(report: Report) -> dict[str, list[str]]:
    """Outcome to "form: inputs"."""
    assert report.verify is not None
    found: dict[str, list[str]] = {}
    for check in report.verify.forms:
        found.setdefault(check.outcome, []).append(f"{check.form} {list(check.inputs)}")
    return found


def test_candidate_that_respects_strides_has_its_forms_verified_and_told(judge: Judge) -> None:
    report = judge("return torch.add(y, x, alpha=2.0)")
    assert report.verdict is Verdict.PASSED, report.message
    assert forms(report) == {"verified": ["offset [0, 1]", "transposed [0, 1]", "expanded [0, 1]", "sliced [0, 1]"]}
    assert report.verify is not None
    assert report.verify.form_lines[0].startswith("Forms verified: offset views of inputs 0, 1; transposed")


def test_flat_indexing_of_a_transposed_input_is_wrong_and_names_form_and_input(judge: Judge) -> None:
    report = judge(FLAT.replace("X", "y").replace("WITH", "x * 2.0 + flat"))
    assert report.verdict is Verdict.REJECTED
    assert report.code is Code.NUM_MISMATCH
    assert "fails on transposed input 1" in report.message


def test_input_that_is_not_taken_is_listed_and_the_other_is_verified(judge: Judge) -> None:
    report = judge(
        "if not x.is_contiguous():\n            raise RuntimeError('x must be contiguous')\n        return x * 2.0 + y"
    )
    assert report.verdict is Verdict.PASSED, report.message
    found = forms(report)
    assert found["refused"] == ["transposed [0]", "expanded [0]", "sliced [0]"]
    assert found["verified"] == ["offset [0, 1]", "transposed [1]", "expanded [1]", "sliced [1]"]
    assert report.verify is not None
    assert "transposed input 0 (x must be contiguous)" in report.verify.form_lines[1]


def test_kernel_that_reads_before_an_offset_view_is_wrong(judge: Judge) -> None:
    report = judge("flat = torch.as_strided(x, x.shape, x.stride(), 0)\n        return flat * 2.0 + y")
    assert report.verdict is Verdict.REJECTED
    assert "fails on offset views of input 0" in report.message


def test_process_that_dies_on_a_form_is_rejected_with_the_form(judge: Judge) -> None:
    report = judge(
        "if x.storage_offset():\n            import ctypes\n            ctypes.string_at(8)\n        return x * 2.0 + y"
    )
    assert report.code is Code.MEM_FAULT
    assert "fails on offset views of inputs 0, 1: segmentation fault" in report.message


def test_form_that_the_reference_refuses_is_not_held_against_the_candidate(judge: Judge) -> None:
    report = judge(CLEAN, reference="return x.view(-1).view(48, 64) * 2.0 + y")
    assert report.verdict is Verdict.PASSED, report.message
    assert "transposed []" in forms(report)["not tried"]
    assert any(flag.code == "SKIPPED_FORM" and "transposed" in flag.message for flag in report.flags)


def test_task_says_which_forms_are_tried(judge: Judge) -> None:
    report = judge(FLAT.replace("X", "y").replace("WITH", "x * 2.0 + flat"), forms=("offset",))
    assert report.verdict is Verdict.PASSED, report.message
    assert forms(report)["verified"] == ["offset [0, 1]"]
    assert len(forms(report)["not tried"]) == 3


def test_small_output_that_is_wrong_on_a_form_names_it(judge: Judge) -> None:
    flat = FLAT.replace("X", "y").replace("WITH", "(x * flat).sum()")
    report = judge(flat, reference="return (x * y).sum()", draws=5)
    assert report.verdict is Verdict.REJECTED
    assert "fails on transposed input" in report.message
