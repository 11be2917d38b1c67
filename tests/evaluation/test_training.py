"""Gradients and torch.compile: what a candidate's operators let through, in mode "train" and in mode "eval"."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from cuda_tui.evaluation.pipeline import Evaluator
from cuda_tui.evaluation.report import Report, Verdict
from cuda_tui.evaluation.runtime import Interpreter
from cuda_tui.workspace.task import Task
from cuda_tui.workspace.workspace import Workspace

pytestmark = pytest.mark.slow

MODEL = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(64))

    def forward(self, x):
        FORWARD


def get_inputs():
    return [torch.randn(48, 64)]
"""
BINDING = """
#include "cuda_tui.h"
using torch::stable::Tensor;

static Tensor scaled(const Tensor& x, const Tensor& w) {
  CUDA_TUI_CHECK(x.is_contiguous() && w.is_contiguous(), "scaled: x and w must be contiguous");
  Tensor out = torch::stable::empty_like(x);
  const float* from = cuda_tui::input<float>(x);
  const float* by = cuda_tui::input<float>(w);
  float* to = cuda_tui::output<float>(out);
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = from[i] * by[i % w.numel()];
  return out;
}

CUDA_TUI_OPS(m) { m.def("scaled(Tensor x, Tensor w) -> Tensor"); }
CUDA_TUI_IMPL(CPU, m) { m.impl("scaled", TORCH_BOX(&scaled)); }
"""
SHAPES = """

@cuda_extension.shape_function("scaled")
def _(x, w):
    return torch.empty_like(x)
"""
Judge = Callable[..., Report]


@pytest.fixture
def judge(tmp_path: Path, interpreter: Interpreter) -> Iterator[tuple[Judge, list[Evaluator]]]:
    """judge(forward of ModelNew, mode=..., binding=..., head=...) -> Report."""
    made: list[Evaluator] = []

    def run(forward: str, *, mode: str = "eval", binding: str = "", head: str = "") -> Report:
        task = msgspec.structs.replace(Task(name="training", init=None, draws=1), mode=mode)
        source = MODEL.replace("FORWARD", "return x * self.weight")
        workspace = Workspace.create(tmp_path / f"w{len(made)}", task=task, model_source=source.encode())
        new = MODEL.replace("FORWARD", forward).replace("Model(", "ModelNew(")
        if binding:
            (workspace.root / "kernels" / "scaled_binding.cpp").write_text(binding, encoding="utf-8")
            new = new.replace("import torch\n", "import cuda_extension\nimport torch\n" + head, 1)
        (workspace.root / "model_new.py").write_text(new, encoding="utf-8")
        made.append(Evaluator(workspace, interpreter=interpreter))
        return made[-1].evaluate(stop_after="verify")

    yield run, made
    for evaluator in made:
        evaluator._bench.close()


def flag(report: Report, code: str) -> str:
    """The message of a flag, empty where there is none."""
    return next((flag.message for flag in report.flags if flag.code == code), "")


def test_candidate_that_lets_gradients_through_has_no_flag(judge: tuple[Judge, list[Evaluator]]) -> None:
    report = judge[0]("return self.weight * x")
    assert report.verdict is Verdict.PASSED, report.message
    assert flag(report, "INFERENCE_ONLY") == ""


def test_gradients_that_stop_are_a_flag_where_nobody_trains(judge: tuple[Judge, list[Evaluator]]) -> None:
    report = judge[0]("return (self.weight * x).detach()")
    assert report.verdict is Verdict.PASSED, report.message
    assert "gradients stop at this candidate: outputs carry no grad for weight" in flag(report, "INFERENCE_ONLY")


def test_missing_gradient_of_an_input_is_rejected_in_training(judge: tuple[Judge, list[Evaluator]]) -> None:
    report = judge[0]("return self.weight * x.detach()", mode="train")
    assert report.verdict is Verdict.REJECTED
    assert "no gradient for input 0" in report.message


def test_wrong_gradient_is_rejected_in_training_and_the_right_one_passes(
    judge: tuple[Judge, list[Evaluator]],
) -> None:
    doubled = "if y.requires_grad:\n            y.register_hook(lambda grad: grad * 2)"
    wrong = f"y = self.weight * x\n        {doubled}\n        return y"
    report = judge[0](wrong, mode="train")
    assert report.verdict is Verdict.REJECTED
    assert "gradient of weight" in report.message
    right = judge[0]("return self.weight * x", mode="train")
    assert right.verdict is Verdict.PASSED, right.message
    assert right.verify is not None
    assert right.verify.trials[-1].name == "gradients"
    assert [check.output for check in right.verify.trials[-1].checks] == ["gradient of weight", "gradient of input 0"]


def test_operator_without_backward_stops_gradients(judge: tuple[Judge, list[Evaluator]]) -> None:
    report = judge[0]("return cuda_extension.scaled(x, self.weight)", binding=BINDING)
    assert report.verdict is Verdict.PASSED, report.message
    assert "gradients stop" in flag(report, "INFERENCE_ONLY")


@pytest.mark.parametrize(("head", "breaks"), [("", True), (SHAPES, False)])
def test_operator_breaks_compile_unless_its_shape_function_is_registered(
    judge: tuple[Judge, list[Evaluator]], head: str, breaks: bool
) -> None:
    run, made = judge
    assert run("return cuda_extension.scaled(x, self.weight)", binding=BINDING, head=head).verdict is Verdict.PASSED
    evaluator = made[-1]
    with evaluator._tools._candidate(evaluator._build_if_any()) as candidate:
        flags = evaluator._compile_flags(candidate)
    assert bool(flags) is breaks, flags
    assert all("breaks torch.compile: " in found.message for found in flags)
