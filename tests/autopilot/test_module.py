"""model_new.py without kernels: every operator stays with PyTorch, so that only the rewriting is tested."""

import sys
import types
from typing import Any

import pytest

from cuda_tui.autopilot.draft import write_draft
from cuda_tui.autopilot.fuse import fuse
from cuda_tui.autopilot.graph import load
from cuda_tui.autopilot.rewrite import normalise
from cuda_tui.autopilot.source import Source
from cuda_tui.evaluation.worker.trace import trace
from tests.autopilot.tracing import torch

pytestmark = pytest.mark.slow

SOURCE = """
import collections

import torch
from torch import nn

Pair = collections.namedtuple("Pair", ["hidden", "loss"])


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(torch.relu(self.fc(x)))


class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.layers = nn.ModuleList([Layer(width), Layer(width)])
        self.register_buffer("shift", torch.ones(width))
        self.scale = torch.full((width,), 2.0)

    def forward(self, batch, mask=None, *, gain=1.0):
        x = batch["x"] + torch.tensor([0.5, float("inf")])[0]
        for layer in self.layers:
            x = layer(x) * self.scale + self.shift
        heads = x.view(4, 2, 4).transpose(0, 1)
        best = x.max(dim=-1)
        return {"pair": Pair(x, x.sum() * gain), "list": [heads, None, 3], "best": (best.values, best.indices)}
"""


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> tuple[torch.nn.Module, torch.nn.Module, dict[str, Any]]:
    """Reference, rewritten module with the same state, and a batch."""
    monkeypatch.setitem(sys.modules, "cuda_extension", types.ModuleType("cuda_extension"))
    scope: dict[str, Any] = {}
    exec(SOURCE, scope)  # the test's own text
    reference = scope["Model"]().eval()
    batch = {"x": torch.randn(4, 8)}
    graph = normalise(load(trace(reference, (batch,), {"gain": 0.5})))
    text = write_draft(graph, (), Source(SOURCE, "Model")).files["model_new.py"]
    new_scope: dict[str, Any] = {}
    exec(compile(text, "model_new.py", "exec"), new_scope)
    new = new_scope["ModelNew"]().eval()
    new.load_state_dict(reference.state_dict())
    return reference, new, batch


Written = tuple[torch.nn.Module, torch.nn.Module, dict[str, Any]]


def test_nested_results_are_the_same(written: Written) -> None:
    reference, new, batch = written
    expected, found = reference(batch, gain=0.5), new(batch, gain=0.5)
    assert list(found) == list(expected)
    assert type(found["pair"]).__name__ == "Pair"
    torch.testing.assert_close(found["pair"].hidden, expected["pair"].hidden)
    torch.testing.assert_close(found["pair"].loss, expected["pair"].loss)
    assert found["list"][0].stride() == expected["list"][0].stride()
    assert found["list"][1:] == [None, 3]
    torch.testing.assert_close(found["best"], expected["best"])


def test_inputs_that_are_not_contiguous_are_accepted(written: Written) -> None:
    reference, new, _ = written
    batch = {"x": torch.randn(8, 4).t()}
    torch.testing.assert_close(new(batch, gain=0.5)["pair"].hidden, reference(batch, gain=0.5)["pair"].hidden)


def test_another_shape_is_refused_with_both_shapes(written: Written) -> None:
    _, new, _ = written
    with pytest.raises(ValueError, match=r"has shape \(5, 8\); these kernels were generated for \(4, 8\)"):
        new({"x": torch.randn(5, 8)}, gain=0.5)


def test_another_constant_argument_is_refused(written: Written) -> None:
    _, new, batch = written
    with pytest.raises(ValueError, match=r"generated for gain = 0\.5"):
        new(batch, gain=0.25)
    with pytest.raises(ValueError, match="generated for mask = None"):
        new(batch, mask=torch.ones(4), gain=0.5)


def test_training_mode_is_refused_where_it_would_differ(written: Written) -> None:
    _, new, batch = written
    with pytest.raises(ValueError, match="generated for eval mode"):
        new.train()(batch, gain=0.5)


KERNELS = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(32))

    def forward(self, x):
        hidden = torch.tanh((x @ self.weight) * 2 + 1)
        return hidden, torch.exp(x.transpose(0, 1) * 3) + 1
"""


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_operator_says_what_torch_compile_may_expect(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: dict[str, Any] = {}
    extension = types.ModuleType("cuda_extension")
    extension.shape_function = lambda name: lambda function: shapes.setdefault(name, function)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda_extension", extension)
    scope: dict[str, Any] = {}
    exec(KERNELS, scope)  # the test's own text
    graph = normalise(load(trace(scope["Model"]().eval(), (torch.randn(8, 32),), {})))
    draft = write_draft(graph, fuse(graph, device=device).groups, Source(KERNELS, "Model"), device=device)
    exec(compile(draft.files["model_new.py"], "model_new.py", "exec"), {})
    made = {kernel.name: kernel for kernel in draft.kernels.values()}
    assert set(shapes) == set(made)
    assert sorted(len(kernel.returned) for kernel in made.values()) == [0, 1]  # tanh overwrites the product
    for name, kernel in made.items():
        given = [torch.empty(graph.type_of(key).shape, device="meta") for key in kernel.arguments]
        found = shapes[name](*given)
        assert (found is None) == (not kernel.returned)
        if kernel.returned:
            assert found.permute(kernel.permutes[kernel.returned[0]]).shape == (32, 8)
            assert found.is_contiguous()
