"""The trace of a model: structure, names, costs, and what cannot be traced."""

import collections
import json
import warnings
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch's own import warns where NumPy is not installed
    import torch

from cuda_tui.evaluation.worker.trace import Untraceable, trace

pytestmark = pytest.mark.slow

Pair = collections.namedtuple("Pair", ["hidden", "loss"])


class Nested(torch.nn.Module):
    """Nested inputs and outputs, a list of layers, a buffer, and a plain tensor attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8)])
        self.register_buffer("shift", torch.ones(8))
        self.scale = torch.full((8,), 2.0)

    def forward(self, batch: dict[str, Any], *, gain: float = 1.0, mask: torch.Tensor | None = None) -> dict[str, Any]:
        x = self.layers[0](batch["x"]) * self.scale + self.shift
        x = torch.relu_(x + batch["more"][1]) * gain
        return {"pair": Pair(x, x.sum()), "list": [x, None, 3], "mask": mask}


@pytest.fixture(scope="module")
def nested() -> dict[str, Any]:
    batch = {"x": torch.randn(4, 8), "more": (7, torch.randn(8))}
    return trace(Nested().eval(), (batch,), {"gain": 0.5})


def test_trace_is_json(nested: dict[str, Any]) -> None:
    assert json.loads(json.dumps(nested, allow_nan=False)) == nested


def test_inputs_are_named_by_the_path_from_forward(nested: dict[str, Any]) -> None:
    assert [item["path"] for item in nested["inputs"]] == [["batch", "x"], ["batch", "more", 1]]
    assert {"path": ["batch", "more", 0], "value": 7} in nested["fixed_inputs"]
    assert {"path": ["gain"], "value": 0.5} in nested["fixed_inputs"]


def test_held_tensors_have_their_qualified_names(nested: dict[str, Any]) -> None:
    held = {item["target"]: item["kind"] for item in nested["parameters"]}
    assert held == {
        "layers.0.weight": "parameter", "layers.0.bias": "parameter", "shift": "buffer", "scale": "attribute"
    }  # fmt: skip


def test_output_structure_is_kept(nested: dict[str, Any]) -> None:
    items = dict(nested["outputs"]["items"])
    assert items["pair"]["class"] == "Pair"
    assert [name for name, _ in items["pair"]["items"]] == ["hidden", "loss"]
    assert items["list"]["items"][1:] == [{"kind": "constant", "value": None}, {"kind": "constant", "value": 3}]


def test_graph_has_no_operator_that_changes_its_operand(nested: dict[str, Any]) -> None:
    assert [node["op"] for node in nested["nodes"] if node["op"].split(".")[1].endswith("_")] == []


def test_nodes_say_where_they_come_from_and_what_they_cost(nested: dict[str, Any]) -> None:
    linear = next(node for node in nested["nodes"] if node["op"] == "aten.linear.default")
    assert linear["flop"] == 2 * 4 * 8 * 8
    assert linear["bytes_read"] == 4 * (4 * 8 + 8 * 8 + 8)
    assert linear["module"] == "layers.0 (Linear)"
    assert linear["source"].startswith("test_trace.py:")
    assert linear["code"].startswith("x = self.layers[0]")


def test_a_small_tensor_made_in_forward_is_stored_by_value() -> None:
    class Constant(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * torch.tensor([2.0, float("inf")])

    found = trace(Constant().eval(), (torch.randn(3, 2),), {})["parameters"]
    assert [(item["kind"], item["value"]) for item in found] == [("constant", [2.0, {"float": "inf"}])]


def test_control_flow_on_values_is_named_with_its_line() -> None:
    class Branch(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.sum() > 0:
                return x
            return -x

    with pytest.raises(Untraceable, match="depends on the values of a tensor") as raised:
        trace(Branch().eval(), (torch.randn(3),), {})
    assert raised.value.source.startswith("test_trace.py:")


def test_a_model_that_returns_no_tensor_is_refused() -> None:
    class Nothing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> int:
            return 3

    with pytest.raises(Untraceable, match="returns no tensor"):
        trace(Nothing().eval(), (torch.randn(3),), {})


def test_a_buffer_that_forward_changes_is_listed() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            calls = self.get_buffer("calls")
            calls.add_(1)
            return x * calls

    assert trace(Counting().eval(), (torch.randn(3),), {})["mutations"] == ["calls"]
