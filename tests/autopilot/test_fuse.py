"""Which operators end up in one kernel."""

import pytest

from tests.autopilot.tracing import fused, torch

F = torch.nn.functional
pytestmark = pytest.mark.slow  # each test traces a model


def test_library_calls_stay_and_their_neighbours_are_fused() -> None:
    weight = torch.randn(16, 8)
    _, fusion = fused(lambda x: F.silu(F.linear(x * 2 + 1, weight)) * 3, torch.randn(4, 8))
    assert {group.work for group in fusion.groups} == {("mul", "add"), ("silu", "mul_1")}
    assert "linear" in fusion.left


def test_an_intermediate_that_is_returned_becomes_a_second_output() -> None:
    _, fusion = fused(lambda x: ((y := x * 2), y + 1), torch.randn(4, 8))
    assert [group.outputs for group in fusion.groups] == [("mul", "add")]


def test_operators_around_a_library_call_are_not_merged_across_it() -> None:
    graph, fusion = fused(lambda x: (y := x * 2) + (y @ y), torch.randn(8, 8))
    assert len(fusion.groups) == 2
    assert set(graph.nodes) == {"mul", "matmul", "add"}


def test_reductions_along_different_axes_are_different_kernels() -> None:
    _, fusion = fused(lambda x: x.sum(0).sum() + x.softmax(1).sum(), torch.randn(40, 50))
    assert len(fusion.groups) > 1
    assert all(len({red.over for red in group.plan.reds}) <= 1 for group in fusion.groups)


def test_cheap_values_are_computed_again_rather_than_read() -> None:
    x, labels = torch.randn(2, 19, 64, 64), torch.randint(0, 19, (2, 64, 64))

    def losses(x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        one_hot = (labels.unsqueeze(1) == torch.arange(19).view(1, -1, 1, 1)).float()
        return (x.log_softmax(1) * one_hot).sum(1), (one_hot * x).sum((2, 3))

    _, fusion = fused(losses, x, labels)
    assert len(fusion.groups) == 2
    assert all("eq" in group.work for group in fusion.groups)
    assert all("_to_copy" not in group.outputs for group in fusion.groups)


def test_a_mean_cross_entropy_keeps_its_rows_in_one_kernel() -> None:
    _, fusion = fused(lambda x, t: F.cross_entropy(x, t), torch.randn(32, 100), torch.randint(0, 100, (32,)))
    assert any(group.outputs == ("cross_entropy_loss_each",) for group in fusion.groups)


def test_neighbouring_axes_are_joined_into_one_loop() -> None:
    _, fusion = fused(lambda x: (x * 2).exp(), torch.randn(3, 5, 7))
    plan = fusion.groups[0].plan
    assert plan.rows == ()
    assert [plan.sizes[axis] for axis in plan.inner] == [105]


def test_a_tensor_read_along_two_axes_is_still_fused() -> None:
    _, fusion = fused(lambda x: (x + x.t()) * 2, torch.randn(9, 9))
    assert fusion.groups[0].work == ("add", "mul")


def test_integer_division_and_unknown_operators_are_left_with_a_reason() -> None:
    _, fusion = fused(lambda x: torch.cumsum(x, 0), torch.randn(9))
    assert fusion.groups == ()
    assert fusion.left == {"cumsum": "no rule for cumsum"}
