"""Emitted C++ is compiled and compared with PyTorch in double precision."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cuda_tui.autopilot.emit_cpp import emit_cpp
from cuda_tui.autopilot.names import variables
from tests.autopilot.cases import cases
from tests.autopilot.tracing import fused, torch

EPSILON = {"float32": 2**-23, "float64": 2**-52}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `numerics` found: all kernels are built together, once."""
    folder = tmp_path_factory.mktemp("kernels")
    command = [sys.executable, "-W", "ignore", "-m", "tests.autopilot.numerics", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", list(cases()))
def test_kernel_is_as_exact_as_eager(name: str, compared: dict[str, Any]) -> None:
    epsilon = EPSILON["float64" if name == "double" else "float32"]
    for ours, eager, odd in compared[name]["errors"]:
        assert odd == 0
        assert ours <= max(8 * eager, 4 * epsilon)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kernels_return_the_shapes_dtypes_and_strides_of_eager(compared: dict[str, Any]) -> None:
    assert [name for name, found in compared.items() if not found["alike"]] == []


def _emitted(name: str) -> str:
    function, tensors = cases()[name]
    graph, fusion = fused(function, *tensors)
    kernel = emit_cpp(fusion.groups[0].plan, name="op", variables=variables(graph), about=["about"])
    return kernel.files["kernels/op.cpp"]


@pytest.mark.slow
def test_a_concatenation_along_the_vector_axis_cuts_the_loop_instead_of_branching() -> None:
    text = _emitted("rotary")
    assert "for (int64_t j = 0; j < 8; ++j)" in text
    assert "for (int64_t j = 8; j < 16; ++j)" in text
    assert "? (" not in text


@pytest.mark.slow
def test_a_long_sum_is_collected_in_double() -> None:
    assert "double sum" in _emitted("long_row")
    assert "double sum" not in _emitted("softmax")


@pytest.mark.slow
def test_a_reduction_over_the_channels_walks_memory_along_its_contiguous_axis() -> None:
    text = _emitted("softmax_over_channels")
    assert "neighbouring columns" in text.replace("\n// ", " ")
    assert "(c + j)" in text


@pytest.mark.slow
def test_an_index_that_is_out_of_range_is_checked_not_read() -> None:
    assert "index out of range" in _emitted("embedding")


@pytest.mark.slow
def test_half_precision_is_left_to_torch_on_the_cpu() -> None:
    _, fusion = fused(lambda x: (x * 2).exp(), torch.randn(8, 8).bfloat16())
    assert fusion.groups == ()
    assert any("bfloat16" in why for why in fusion.left.values())
