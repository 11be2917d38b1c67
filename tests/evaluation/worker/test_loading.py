"""The user's file as their own command would import it; state by name; fp64 throughout."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cuda_tui.evaluation.worker import loading, precise
from cuda_tui.evaluation.worker.loading import (
    load_state,
    named_state,
    redraw_state,
    split_arguments,
    tied_names,
    vary_constant,
)


@pytest.fixture(autouse=True)
def _imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in {"pkg", "model"}]:
        del sys.modules[name]


class MappingLike:
    def keys(self) -> list[str]:
        return ["x"]

    def __getitem__(self, key: str) -> int:
        return 5


@pytest.mark.parametrize(
    ("given", "args", "kwargs"),
    [
        ([1, 2], (1, 2), {}),
        ((1,), (1,), {}),
        ({"x": 1}, (), {"x": 1}),
        (([1, 2], {"x": 3}), (1, 2), {"x": 3}),
        (MappingLike(), (), {"x": 5}),
        (7, (7,), {}),
        ([[1, 2], [3]], ([1, 2], [3]), {}),
        ([], (), {}),
    ],
)
def test_arguments_are_understood_in_every_form(given: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert split_arguments(given) == (args, kwargs)


def test_file_of_a_package_is_imported_as_its_member(tmp_path: Path) -> None:
    package = tmp_path / "my folder" / "pkg" / "sub"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text("")
    (package.parent / "layers.py").write_text("W = 3\n")
    (package / "net.py").write_text("from ..layers import W\n")
    module = loading.import_file(str(package / "net.py"), "model", [])
    assert module.W == 3
    assert module.__name__ == "pkg.sub.net"


def test_file_is_registered_before_it_runs(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass C:\n    d: int = 3\n"
    )
    assert loading.import_file(str(tmp_path / "net.py"), "model", []).C().d == 3


class Wide(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(8, 8))
        self.b = torch.nn.Linear(8, 8)
        self.c = torch.nn.Linear(8, 8)
        self.c.weight = self.b.weight
        self.register_buffer("t", torch.randn(8), persistent=False)
        self.register_buffer("n", torch.tensor(3))
        self.p = torch.randn(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(self.b(self.a(x) + self.t)) * self.p  # type: ignore[no-any-return]


def test_state_holds_buffers_and_attributes_and_ties_once() -> None:
    state = named_state(Wide())
    assert {"t", "n", "p", "b.weight", "b.bias", "c.bias"} <= set(state)
    assert "c.weight" not in state
    assert tied_names(Wide()) == {"c.weight": "b.weight"}


def test_state_makes_two_differently_seeded_models_equal() -> None:
    torch.manual_seed(1)
    first = Wide()
    torch.manual_seed(2)
    second = Wide()
    x = torch.randn(3, 8)
    assert not torch.equal(first(x), second(x))
    assert load_state(second, named_state(first)) == []
    assert torch.equal(first(x), second(x))


def test_state_that_does_not_fit_is_named() -> None:
    assert load_state(
        torch.nn.Linear(2, 3), {"weight": torch.ones(2, 2), "bias": torch.ones(3), "p": torch.ones(1)}
    ) == [
        "weight has shape (3, 2), not (2, 2)",
        "p is missing",
    ]


def test_redrawn_state_differs_everywhere_and_keeps_what_has_a_meaning() -> None:
    old = {
        "ones": torch.ones(64),
        "zeros": torch.zeros(64),
        "variance": torch.rand(64) + 0.1,
        "count": torch.tensor(3),
        "mask": torch.full((8, 8), float("-inf")).triu(1),
        "empty": torch.zeros(0),
        "half": torch.randn(64).half(),
    }
    new = redraw_state(old, 1)
    for name in ("ones", "zeros", "variance", "half"):
        assert not torch.equal(new[name], old[name]), name
        assert new[name].dtype == old[name].dtype
    assert bool((new["variance"] > 0).all())
    assert new["count"] == 3
    assert torch.equal(torch.isinf(new["mask"]), torch.isinf(old["mask"]))
    assert not torch.isnan(new["mask"]).any()


class Casts(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = torch.nn.Linear(8, 8)
        self.scale = torch.full((8,), 1 / 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = torch.full((8,), 1 / 3, dtype=torch.float32) + torch.ones(8).bfloat16()
        return (self.l(x.float()).half() * self.scale + made).to(torch.float16)  # type: ignore[no-any-return]


def test_lower_precisions_named_inside_a_model_become_fp64() -> None:
    model = precise.model_in_double(Casts())
    x = torch.randn(4, 8, dtype=torch.float64)
    result = precise.call_in_double(model, (x,), {})
    by_hand = (x @ model.l.weight.T + model.l.bias) * model.scale + 1 / 3 + 1  # type: ignore[union-attr, operator]
    assert result.dtype == torch.float64
    assert torch.allclose(result, by_hand, rtol=1e-7, atol=1e-7)
    assert torch.get_default_dtype() == torch.float32


def test_functions_and_classes_of_a_file_are_described() -> None:
    module = ModuleType("sample")
    exec(
        "import torch\nfrom torch.nn import Linear\nclass Net(torch.nn.Module):\n    def __init__(self, a, b=1): ...\n"
        "def get_inputs(): ...\ndef needs(x): ...\nbatch = [torch.ones(1)]\nother = [1]\n",
        vars(module),
    )
    found = loading.describe_file(module)
    assert [(row["name"], row["required"]) for row in found["classes"]] == [("Net", ["a"])]
    assert found["functions"] == ["get_inputs"]
    assert found["values"] == ["batch"]


def test_constant_input_is_varied_in_its_own_layout() -> None:
    first = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    varied = vary_constant([first], [first.clone(memory_format=torch.preserve_format)], 7)[0]
    assert varied.stride() == first.stride()
    assert not torch.equal(varied, first)
    assert torch.equal(varied.flatten().sort().values, first.flatten().sort().values)
