"""The rules that choose a CUDA launch, and the walks that they save."""

from collections.abc import Callable
from typing import Any

import pytest

from cuda_tui.autopilot.cuda_shape import CudaTuning, Form, Shape, choose, index_type
from cuda_tui.autopilot.cuda_variants import variants
from cuda_tui.autopilot.estimate import estimate, machine_for
from cuda_tui.autopilot.online import joined_walks
from cuda_tui.autopilot.plan import Plan
from tests.autopilot.tracing import fused, torch

pytestmark = pytest.mark.slow  # each test traces a function
F = torch.nn.functional


def plan_of(function: Callable[..., Any], *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Plan:
    """The plan of a function of tensors that are never read."""
    _, fusion = fused(function, *(torch.empty(shape, dtype=dtype) for shape in shapes), device="cuda")
    assert len(fusion.groups) == 1
    return fusion.groups[0].plan


def shape_of(function: Callable[..., Any], *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Shape:
    return choose(plan_of(function, *shapes, dtype=dtype), CudaTuning())


def softmax(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(-1)


@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 4), (torch.bfloat16, 8), (torch.float64, 2)])
def test_a_thread_moves_sixteen_bytes_of_every_dtype(dtype: torch.dtype, width: int) -> None:
    assert shape_of(lambda x: x * 2, (1 << 16,), dtype=dtype).width == width


def test_rows_of_odd_length_are_read_one_by_one() -> None:
    assert shape_of(softmax, (64, 1001)).width == 1


def test_a_choice_between_tensors_at_a_multiple_of_the_vector_keeps_it() -> None:
    assert shape_of(lambda x, y: torch.cat([x, y], -1) * 2, (64, 32), (64, 32)).width == 4


@pytest.mark.parametrize(("length", "threads"), [(64, 8), (1024, 32), (4096, 256), (16_384, 512), (32_768, 1024)])
def test_rows_stay_in_registers_of_as_many_threads_as_they_need(length: int, threads: int) -> None:
    shape = shape_of(softmax, ((1 << 24) // length, length))
    assert (shape.form, shape.x) == (Form.HELD, threads)
    assert shape.x * shape.items * shape.width >= length


def test_rows_too_long_for_a_block_are_walked_online() -> None:
    plan = plan_of(softmax, (512, 1 << 18))
    assert choose(plan, CudaTuning()).form is Form.WALKED
    assert plan.passes == 3
    assert joined_walks(plan)[0].passes == 2


def test_maximum_and_both_sums_of_a_loss_take_one_walk() -> None:
    plan = plan_of(lambda x: torch.logsumexp(x, -1) + x.log_softmax(-1).amax(-1), (64, 1 << 17))
    joined, pairs = joined_walks(plan)
    assert len(pairs) == 1
    assert len(pairs[0].reds) >= 3
    assert joined.levels[pairs[0].sums[0]] == 1


@pytest.mark.parametrize(("rows", "form"), [(1, Form.SPLIT), (16, Form.SPLIT), (4096, Form.WALKED)])
def test_few_long_rows_are_split_between_blocks(rows: int, form: Form) -> None:
    shape = shape_of(lambda x: (x * x).sum(-1), (rows, 1 << 17))
    assert shape.form is form
    assert shape.chunks * rows >= 128 or form is Form.WALKED


def test_a_channel_of_few_classes_stays_in_registers() -> None:
    assert shape_of(lambda x: x.softmax(1), (8, 19, 256, 512)).form is Form.COLUMN_HELD


def test_long_columns_are_split_and_read_in_vectors() -> None:
    shape = shape_of(lambda x: x.sum(0), (65_536, 4096))
    assert (shape.form, shape.width) == (Form.COLUMN_SPLIT, 4)


def test_indices_have_64_bits_only_where_sizes_need_them() -> None:
    assert index_type(plan_of(lambda x: x * 2, (1 << 30,))) == "int"
    assert index_type(plan_of(lambda x: x * 2, (1 << 31,))) == "int64_t"


@pytest.mark.parametrize("shape", [(1 << 24,), (8192, 1024), (512, 1 << 18), (2, 1 << 20)])
def test_variants_are_launches_of_their_own(shape: tuple[int, ...]) -> None:
    plan = plan_of(softmax, shape)
    shapes = [choose(plan, CudaTuning()), *(choose(plan, item.tuning) for item in variants(plan))]
    assert len(shapes) > 1
    assert len(set(shapes)) == len(shapes)


def test_the_estimate_uses_the_bandwidth_measured_on_the_device() -> None:
    graph, fusion = fused(lambda x: (x * 2 + 1).tanh(), torch.empty(1 << 24), device="cuda")
    slow, fast = (
        estimate(fusion.groups[0], graph, machine_for("cuda", copy_gbs=rate)).own_us for rate in (1000.0, 4000.0)
    )
    assert slow > 2 * fast
    assert machine_for("cuda", name="NVIDIA H200").bytes_per_us > machine_for("cuda").bytes_per_us
