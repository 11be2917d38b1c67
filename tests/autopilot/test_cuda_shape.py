"""The rules that choose a CUDA launch, and the walks that they save."""

from collections.abc import Callable
from typing import Any

import pytest

from cuda_tui.autopilot.cuda_shape import CudaTuning, Form, Shape, choose, index_type
from cuda_tui.autopilot.cuda_variants import rules, variants
from cuda_tui.autopilot.design import TaskFacts
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


@pytest.mark.parametrize(("length", "threads"), [(64, 8), (1024, 64), (4096, 256), (16_384, 512), (32_768, 1024)])
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


@pytest.mark.parametrize(("count", "items"), [(1, 2), (2, 1)])
def test_a_thread_has_two_loads_in_flight(count: int, items: int) -> None:
    size = (1 << 23,)
    shape = shape_of(lambda *tensors: sum(tensors) * 2, *[size] * count)
    assert (shape.form, shape.items) == (Form.FLAT, items)


@pytest.mark.parametrize(
    ("rows", "length", "form"),
    [(2048, 1 << 16, Form.CLUSTER), (512, 1 << 18, Form.CLUSTER), (4096, 1 << 15, Form.HELD), (2, 1 << 18, Form.SPLIT)],
)
def test_a_cluster_holds_rows_too_long_for_a_block_where_they_fill_the_gpu(rows: int, length: int, form: Form) -> None:
    plan = plan_of(softmax, (rows, length))
    shape = choose(plan, rules(plan, clusters=True))
    assert shape.form is form
    assert form is not Form.CLUSTER or shape.chunks * shape.x * shape.items * shape.width >= length


def test_a_cluster_takes_rows_that_one_block_would_spill() -> None:
    plan = plan_of(lambda x: F.layer_norm(x, (65_536,)), (2048, 65_536), dtype=torch.bfloat16)
    assert choose(plan, rules(plan, clusters=False)).form is Form.HELD
    assert choose(plan, rules(plan, clusters=True)).form is Form.CLUSTER


def test_rows_that_are_walked_once_need_no_cluster() -> None:
    plan = plan_of(lambda x: torch.logsumexp(x, -1), (4096, 1 << 17))
    assert choose(plan, rules(plan, clusters=True)).form is Form.WALKED


@pytest.mark.parametrize("shape", [(1 << 24,), (8192, 1024), (4096, 1 << 15), (512, 1 << 18), (2, 1 << 20)])
@pytest.mark.parametrize("clusters", [False, True])
def test_variants_are_launches_of_their_own(shape: tuple[int, ...], clusters: bool) -> None:
    plan = plan_of(softmax, shape)
    offered = variants(plan, clusters=clusters)
    shapes = [choose(plan, rules(plan, clusters=clusters)), *(choose(plan, item.tuning) for item in offered)]
    assert clusters or all(found.form is not Form.CLUSTER for found in shapes)
    assert len(shapes) > 1
    assert len(set(shapes)) == len(shapes)


def test_the_estimate_uses_the_bandwidth_that_the_gpu_s_name_lets_expect() -> None:
    graph, fusion = fused(lambda x: (x * 2 + 1).tanh(), torch.empty(1 << 24), device="cuda")
    slow, fast = (
        estimate(fusion.groups[0], graph, machine_for("cuda", name=name)).own_us
        for name in ("NVIDIA L4", "NVIDIA H200")
    )
    assert slow > 2 * fast


@pytest.mark.parametrize(
    ("task", "gpu", "clusters"),
    [
        ("", {"capability": [9, 0]}, True),
        ("", {"capability": [8, 9]}, False),
        ("", {}, False),
        ('architectures = ["sm_90a"]', {}, True),
        ('architectures = ["sm_80", "sm_90"]', {"capability": [9, 0]}, False),
        ('architectures = ["8.6+PTX"]', {"capability": [9, 0]}, False),
        ('architectures = ["sm_100", "120f"]', {}, True),
    ],
)
def test_clusters_are_for_code_that_runs_on_nothing_older_than_9_0(
    task: str, gpu: dict[str, Any], clusters: bool
) -> None:
    machine = TaskFacts.read(f'device = "cuda"\n{task}\n').machine({"name": "NVIDIA H200", **gpu})
    assert machine.clusters is clusters
    assert machine.name == "NVIDIA H200"
