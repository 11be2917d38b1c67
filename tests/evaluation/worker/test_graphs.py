"""What of device timing needs no device: how sets are planned and rewritten, and which captures are refused."""

import random

import pytest
import torch

from cuda_tui.evaluation.worker import precise
from cuda_tui.evaluation.worker.graphs import MAX_SETS, MIN_SETS, Sets, plan, replays_for, rewritten
from cuda_tui.evaluation.worker.tensors import span

L2 = 60 << 20


def test_input_that_the_oracle_makes_anew_is_the_one_that_the_timed_call_had() -> None:
    given = [torch.randn(33, 7), torch.randint(0, 9, (50,)), torch.randn(4, 6).t(), torch.ones(3)]
    changing = [True, True, True, False]
    sets = Sets([tensor.clone(memory_format=torch.preserve_format) for tensor in given], 5, changing)
    sets.rewrite(77, 3)
    for number in range(5):
        made = rewritten(given, changing, sets=5, number=number, seed=77, replay=3)
        for mine, theirs in zip(made, sets.tensors(number), strict=True):
            assert torch.equal(mine, theirs)
            assert mine.stride() == theirs.stride()


def test_slice_of_a_wider_tensor_is_made_anew_with_its_gaps() -> None:
    given = [torch.randn(8, 30)[:, ::3], torch.randn(5, 12).chunk(3, -1)[1]]
    written = [precise.clone_strided(tensor) for tensor in given]  # what travels to the candidate
    sets = Sets(written, 3, [True, True])
    sets.rewrite(5, 1)
    for number in range(3):
        made = rewritten(given, [True, True], sets=3, number=number, seed=5, replay=1)
        assert all(map(torch.equal, made, sets.tensors(number)))


def test_places_differ_by_more_than_a_factor() -> None:
    sets = Sets([torch.rand(1000) + 0.5], 2, [True])
    sets.rewrite(3, 0)
    ratio = sets.tensors(1)[0] / sets.tensors(0)[0]
    assert float(ratio.std()) > 0.05


def test_rewriting_changes_what_may_change_and_keeps_the_range() -> None:
    given = [torch.rand(1000), torch.arange(1000), torch.rand(10)]
    sets = Sets(given, 3, [True, True, False])
    sets.rewrite(1, 0)
    first = [[tensor.clone() for tensor in sets.tensors(number)] for number in range(3)]
    sets.rewrite(1, 1)
    for number in range(3):
        floats, whole, fixed = sets.tensors(number)
        assert not torch.equal(floats, first[number][0])
        assert floats.min() >= 0
        assert floats.max() <= 1
        assert torch.equal(whole.sort().values, torch.arange(1000))
        assert not torch.equal(whole, first[number][1])
        assert torch.equal(fixed, given[2])
    assert not torch.equal(sets.tensors(0)[0], sets.tensors(1)[0])


def test_places_are_as_aligned_as_memory_of_torchs_own() -> None:
    sets = Sets([torch.randn(7, 3)], 4, [True])
    offsets = [sets.tensors(number)[0].storage_offset() * 4 for number in range(4)]
    assert all(offset % 512 == 0 for offset in offsets)
    assert len(set(offsets)) == 4


@pytest.mark.parametrize(
    ("input_bytes", "output_bytes", "call_us"),
    [(1 << 12, 1 << 12, 1.0), (1 << 24, 1 << 24, 10.0), (1 << 30, 1 << 30, 500.0), (0, 4, 3.0), (1 << 20, 8, 40_000.0)],
)
def test_plan_outgrows_the_cache_and_fills_the_window_within_its_bounds(
    input_bytes: int, output_bytes: int, call_us: float
) -> None:
    sets, calls = plan(input_bytes, output_bytes, call_us, l2_bytes=L2, memory_bytes=14e9)
    assert MIN_SETS <= sets <= MAX_SETS
    assert calls >= sets
    assert sets == MAX_SETS or sets * (input_bytes + output_bytes) >= 3 * L2
    assert calls * call_us >= 200
    assert calls >= 20 or calls * call_us >= 2000


def test_plan_gives_up_sets_before_memory() -> None:
    sets, calls = plan(1 << 30, 1 << 30, 500.0, l2_bytes=L2, memory_bytes=3 << 30)
    assert (sets, calls) == (3, 3)


def test_long_windows_have_fewer_replays_but_never_fewer_than_three() -> None:
    assert replays_for(200.0) == 7
    assert replays_for(1e6) == 3


def test_span_of_a_turned_tensor_is_its_memory() -> None:
    assert span(torch.randn(4, 6).t()) == 24


def test_content_depends_on_seed_and_replay_alone() -> None:
    random.seed(5)
    given = [torch.randn(100)]
    first = rewritten(given, [True], sets=3, number=1, seed=9, replay=2)
    random.seed(6)
    assert torch.equal(first[0], rewritten(given, [True], sets=3, number=1, seed=9, replay=2)[0])
    assert not torch.equal(first[0], rewritten(given, [True], sets=3, number=1, seed=9, replay=3)[0])
