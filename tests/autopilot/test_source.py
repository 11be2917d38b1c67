"""The user's source with a new class."""

import pytest

from cuda_tui.autopilot.ir import Unfusible
from cuda_tui.autopilot.source import Source

TEXT = '''\
"""A model."""

from __future__ import annotations

import math
import os

import torch
from torch import nn

WIDTH = 8
UNUSED = 9


class Block(nn.Module):
    def forward(self, x):
        return x


def helper(x):
    return x * math.pi


class Model(nn.Module):
    """What it is."""

    count = 3

    def __init__(self, width: int = WIDTH) -> None:
        super(Model, self).__init__()
        self.block = Block()
        self.scale = self._scale()

    def _scale(self):
        return 2.0

    def _only_for_forward(self, x):
        return helper(x)

    def forward(self, x: torch.Tensor, mask=None, *, gain: float = 1.0) -> torch.Tensor:
        # the old way
        return self._only_for_forward(self.block(x)) * gain


def get_inputs():
    return [torch.randn(2, 8)]
'''


@pytest.fixture
def written() -> str:
    return Source(TEXT, "Model").rewritten(
        ["return x"], imports=["import torch", "", "import cuda_extension"], docstring="d"
    )


def test_rewritten_module_is_valid_and_has_the_new_forward(written: str) -> None:
    compile(written, "model_new.py", "exec")
    assert "class ModelNew(nn.Module):" in written
    assert (
        "def forward(self, x: torch.Tensor, mask=None, *, gain: float=1.0) -> torch.Tensor:\n        return x"
        in written
    )
    assert "the old way" not in written


def test_constructor_and_what_it_needs_are_kept(written: str) -> None:
    for kept in ("WIDTH = 8", "class Block", "def _scale", "super(ModelNew, self)", "count = 3", '"""What it is."""'):
        assert kept in written


def test_what_only_the_old_forward_needed_is_left_out(written: str) -> None:
    for dropped in ("_only_for_forward", "def helper", "get_inputs", "UNUSED", "import os", "import math"):
        assert dropped not in written


def test_future_imports_stay_first(written: str) -> None:
    assert written.index("from __future__") < written.index("import torch")


def test_defaults_of_forward_are_known() -> None:
    assert Source(TEXT, "Model").signature.defaults == {"mask": "None", "gain": "1.0"}


def test_a_class_that_is_not_in_the_file_is_refused() -> None:
    with pytest.raises(Unfusible, match="does not define the class Net"):
        Source(TEXT, "Net")
