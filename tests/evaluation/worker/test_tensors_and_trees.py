"""Tensors through a file and structures through a plan come back as they were."""

import dataclasses
import itertools
import os
from collections import OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch

from cuda_tui.evaluation.worker import precise, timing, trees
from cuda_tui.evaluation.worker.tensors import read_tensors, write_tensors

TENSORS = {
    "matrix": torch.arange(12.0).reshape(3, 4),
    "transposed": torch.arange(12.0).reshape(3, 4).t(),
    "every second": torch.arange(24.0).reshape(4, 6)[::2, 1::2],
    "channels last": torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "expanded": torch.arange(4.0).expand(3, 4),
    "expanded inside": torch.arange(3.0)[:, None].expand(3, 4),
    "scalar": torch.tensor(3.5),
    "bool": torch.tensor([True, False, True]),
    "bf16": torch.randn(5).bfloat16(),
    "half": torch.randn(5).half(),
    "int8": torch.arange(5, dtype=torch.int8),
    "int64": torch.arange(5),
    "complex": torch.randn(3, dtype=torch.complex64),
    "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
    "empty": torch.zeros(0, 7),
    "offset view": torch.arange(9.0)[1:],
    "not finite": torch.tensor([float("nan"), float("inf"), -0.0]),
    "with gradient": torch.randn(3, requires_grad=True),
    "overlapping": torch.arange(6.0).as_strided((3, 3), (1, 1)),
}


@pytest.mark.parametrize("tensor", TENSORS.values(), ids=TENSORS.keys())
def test_tensor_comes_back_with_values_and_strides(tensor: torch.Tensor, tmp_path: Path) -> None:
    rows = write_tensors([torch.ones(3), tensor], str(tmp_path / "file"))
    first, back = read_tensors(str(tmp_path / "file"), rows)
    assert torch.equal(first, torch.ones(3))
    assert back.dtype == tensor.dtype
    assert back.shape == tensor.shape
    assert back.stride() == tensor.stride()
    assert torch.equal(torch.nan_to_num(back), torch.nan_to_num(tensor.detach()))


def test_what_was_read_is_a_private_copy(tmp_path: Path) -> None:
    rows = write_tensors([torch.ones(3)], str(tmp_path / "file"))
    read_tensors(str(tmp_path / "file"), rows)[0].zero_()
    assert read_tensors(str(tmp_path / "file"), rows)[0].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "change",
    [{"offset": 1 << 40}, {"offset": -64}, {"bytes": 1 << 40}, {"shape": [99]}, {"stride": [-1]}, {"bytes": 4}],
)
def test_row_that_points_outside_of_the_file_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    rows = write_tensors([torch.ones(3)], str(tmp_path / "file"))
    with pytest.raises(ValueError, match="outside"):
        read_tensors(str(tmp_path / "file"), [rows[0] | change])


def test_link_in_the_place_of_an_output_is_refused(tmp_path: Path) -> None:
    rows = write_tensors([torch.ones(3)], str(tmp_path / "real"))
    os.symlink(tmp_path / "real", tmp_path / "file")
    with pytest.raises(ValueError, match="no regular file"):
        read_tensors(str(tmp_path / "file"), rows)


def test_copies_keep_strides_and_drop_gradients() -> None:
    for tensor in TENSORS.values():
        copy = precise.clone_strided(tensor)
        assert not copy.requires_grad
        assert copy.data_ptr() != tensor.data_ptr() or tensor.numel() == 0
        if 0 not in tensor.stride() and tensor.numel() > 1:
            assert copy.stride() == tensor.stride()
        assert precise.as_double(tensor).dtype in {tensor.dtype, torch.float64, torch.complex128}


@dataclasses.dataclass
class Out:
    logits: Any
    hidden: Any = None


Pair = namedtuple("Pair", "a b")


class Bag:
    """Has `to_tuple`, as some libraries' outputs do."""

    def __init__(self, *items: Any) -> None:
        self.items = items

    def to_tuple(self) -> tuple[Any, ...]:
        return self.items


T = torch.ones(2)
TREES = {
    "tensor": (T, ["out"]),
    "nested": ([T, (T, {"k": T})], ["out[0]", "out[1][0]", "out[1][1]['k']"]),
    "dataclass": (Out(T, (T,)), ["out.logits", "out.hidden[0]"]),
    "named tuple": (Pair(T, 3), ["out.a"]),
    "ordered": (OrderedDict(x=T, y=None), ["out['x']"]),
    "integer keys": ({1: T, 2: T}, ["out[1]", "out[2]"]),
    "to_tuple": (Bag(T, T), ["out[0]", "out[1]"]),
    "plain": ([1, 2.5, "s", None, True, b"b", 1j], []),
}


@pytest.mark.parametrize(("tree", "paths"), TREES.values(), ids=TREES.keys())
def test_structure_is_walked_and_rebuilt(tree: Any, paths: list[str]) -> None:
    leaves = trees.flatten(tree)
    assert leaves.paths == paths
    again = trees.unflatten(leaves.plan, leaves.tensors)
    assert type(again) is type(tree) or isinstance(tree, OrderedDict)
    assert trees.shape_of(trees.flatten(again).plan) == trees.shape_of(leaves.plan) or isinstance(tree, OrderedDict)
    assert trees.flatten(again).values == leaves.values


def test_structures_that_differ_have_other_shapes() -> None:
    shapes = [
        trees.shape_of(trees.flatten(tree).plan) for tree in ((T,), [T], {"a": T}, {"b": T}, (T, T), (T, None), T)
    ]
    assert len({repr(shape) for shape in shapes}) == len(shapes)


def test_opaque_object_is_named_and_cannot_be_an_input() -> None:
    leaves = trees.flatten([T, object()])
    assert leaves.opaque == {"out[1]": "object"}
    with pytest.raises(TypeError, match="object cannot be handed"):
        trees.unflatten(leaves.plan, leaves.tensors)


@pytest.mark.parametrize(
    "tensor", [torch.randn(5, 3), torch.arange(15).reshape(5, 3), torch.randn(3, 5).t(), torch.randn(5, 3).bfloat16()]
)
def test_every_timed_call_sees_other_content_and_any_of_them_can_be_made_again(tensor: torch.Tensor) -> None:
    mine, theirs = precise.clone_strided(tensor), precise.clone_strided(tensor)
    change = timing.changes([mine], [0.4])[0]
    seen = []
    for number in range(100, 112):
        change.apply(number)
        seen.append(tuple(mine.reshape(-1).tolist()))
    assert all(a != b for a, b in itertools.pairwise(seen))
    timing.changes([theirs], [0.4])[0].apply(111)
    assert torch.equal(mine, theirs)
    assert sorted(mine.reshape(-1).tolist()) == sorted(tensor.reshape(-1).tolist()) or tensor.is_floating_point()


def test_input_without_a_share_is_left_alone() -> None:
    assert timing.changes([T, T], [None, None]) == []
