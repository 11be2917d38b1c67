"""Names the axes of a group: dimensions that are walked together get one axis, and reshapes disappear.

Two steps. *Refine*: a dimension that some reshape splits is split everywhere it travels, until every reshape only
regroups whole factors. *Unify*: factors that correspond (operand and result of an elementwise operator, both sides
of a reshape) become one Axis. A value's dimensions are then lists of axes, and broadcasting goes by name.
"""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

from cuda_tui.autopilot.ir import (
    Cat,
    Constant,
    Gather,
    Iota,
    Leaf,
    Map,
    Permute,
    Reduce,
    Reshape,
    Slice,
    Take,
    Unfusible,
    Value,
    operands,
    post_order,
)


@dataclass(frozen=True, eq=False)
class Axis:
    """One loop. Compared by identity."""

    number: int
    size: int


class SharedTensor(Unfusible):
    """A tensor is walked along two axes by two uses; separate leaves may help."""


Place: TypeAlias = tuple[Value, int]  # a value and one of its dimensions
Match: TypeAlias = tuple[list[Place], list[Place]]  # the same index space, possibly cut differently


def separate_leaves(roots: list[Value]) -> list[Value]:
    """The same expressions with a leaf of its own for every use, so that one tensor may be read along two axes."""
    done: dict[Value, Value] = {}
    for value in post_order(roots):
        parts = tuple(_fresh(done[item]) for item in operands(value))
        match value:
            case Map() | Cat():
                done[value] = replace(value, args=parts)
            case Gather() | Take():
                done[value] = replace(value, arg=parts[0], index=parts[1])
            case Reduce() | Reshape() | Permute() | Slice():
                done[value] = replace(value, arg=parts[0])
            case _:
                done[value] = value
    return [done[root] for root in roots]


def _fresh(value: Value) -> Value:
    return replace(value) if isinstance(value, (Leaf, Constant, Iota)) else value


class Axes:
    """The axes of every value below `roots`. Raises Unfusible where one loop nest cannot hold them."""

    def __init__(self, roots: list[Value]) -> None:
        self._values = post_order(roots)
        if any(0 in value.shape for value in self._values):
            raise Unfusible("an empty tensor")
        self._factors: dict[Place, list[int]] = {
            (value, dim): [size] if size > 1 else [] for value in self._values for dim, size in enumerate(value.shape)
        }
        self._matches = [match for value in self._values for match in _matches(value)]
        self._refine()
        self._parent: dict[tuple[Value, int, int], tuple[Value, int, int]] = {}
        self._unify()
        self._axes: dict[tuple[Value, int, int], Axis] = {}
        self._check()

    def of(self, value: Value, dim: int) -> list[Axis]:
        """Axes of one dimension, outermost first; none where its size is one."""
        return [self._axis((value, dim, index)) for index in range(len(self._factors[value, dim]))]

    def all_of(self, value: Value) -> list[Axis]:
        return [axis for dim in range(len(value.shape)) for axis in self.of(value, dim)]

    def _refine(self) -> None:
        changed = True
        while changed:
            changed = False
            for left, right in self._matches:
                changed |= self._cut_alike(left, right)

    def _cut_alike(self, left: list[Place], right: list[Place]) -> bool:
        """Give both sides the union of their cuts; say whether that changed anything."""
        sides = [[size for place in side for size in self._factors[place]] for side in (left, right)]
        if sides[0] == sides[1]:
            return False
        cuts = sorted(set(_cuts(sides[0])) | set(_cuts(sides[1])))
        if any(outer % inner for inner, outer in pairwise(cuts)):
            raise Unfusible("a reshape that mixes dimensions unevenly")
        changed = False
        for side in (left, right):
            inner = 1
            for place in reversed(side):
                outer = inner * math.prod(self._factors[place])
                inside = [cut for cut in cuts if inner <= cut <= outer]
                factors = [high // low for low, high in pairwise(inside)][::-1]
                changed |= factors != self._factors[place]
                self._factors[place] = factors
                inner = outer
        return changed

    def _unify(self) -> None:
        for left, right in self._matches:
            sides = [[(*place, index) for place in side for index in range(len(self._factors[place]))]
                     for side in (left, right)]  # fmt: skip
            for one, other in zip(*sides, strict=True):
                self._parent[self._root(one)] = self._root(other)

    def _root(self, key: tuple[Value, int, int]) -> tuple[Value, int, int]:
        while (above := self._parent.get(key, key)) != key:
            self._parent[key] = self._parent.get(above, above)
            key = above
        return key

    def _axis(self, key: tuple[Value, int, int]) -> Axis:
        root = self._root(key)
        if root not in self._axes:
            self._axes[root] = Axis(len(self._axes), self._factors[root[0], root[1]][root[2]])
        return self._axes[root]

    def _check(self) -> None:
        for value in self._values:
            axes = self.all_of(value)
            if len(set(axes)) != len(axes):
                raise SharedTensor("one tensor is needed along two axes at once")
            for dim in _undivided(value):
                if any(len(self._factors[place]) > 1 for place in dim):
                    raise Unfusible("a slice, concatenation or lookup along a dimension that is also reshaped")


def _cuts(factors: list[int]) -> list[int]:
    """Products of the inner factors: where the index space is cut."""
    cuts = [1]
    for size in reversed(factors):
        cuts.append(cuts[-1] * size)
    return cuts


def _matches(value: Value) -> list[Match]:
    everything: list[Place] = [(value, dim) for dim in range(len(value.shape))]
    match value:
        case Map(args=args):
            return [match for arg in args for match in _aligned(value, arg)]
        case Reduce(arg=arg, dims=dims):
            return [([(arg, dim)], [(value, dim)]) for dim in range(len(value.shape)) if dim not in dims]
        case Reshape(arg=arg):
            return [([(arg, dim) for dim in range(len(arg.shape))], everything)]
        case Permute(arg=arg, order=order):
            return [([(arg, source)], [(value, dim)]) for dim, source in enumerate(order)]
        case Slice(arg=arg, dim=cut):
            return [([(arg, dim)], [(value, dim)]) for dim in range(len(value.shape)) if dim != cut]
        case Cat(args=args, dim=cut):
            return [([(arg, dim)], [(value, dim)]) for arg in args for dim in range(len(value.shape)) if dim != cut]
        case Gather(arg=arg, index=index, dim=cut):
            alike: list[Match] = [([(index, dim)], [everything[dim]]) for dim in range(len(value.shape))]
            return alike + [([(arg, dim)], [everything[dim]]) for dim in range(len(value.shape)) if dim != cut]
        case Take(arg=arg, index=index):
            rows: list[Match] = [([(index, dim)], [everything[dim]]) for dim in range(len(index.shape))]
            return [*rows, ([(arg, 1)], [everything[-1]])]
        case _:
            return []


def _aligned(value: Value, arg: Value) -> list[Match]:
    shift = len(value.shape) - len(arg.shape)
    return [([(arg, dim)], [(value, dim + shift)]) for dim, size in enumerate(arg.shape) if size > 1]


def _undivided(value: Value) -> list[list[Place]]:
    """Dimensions that must stay whole: those an index is computed for."""
    match value:
        case Slice(arg=arg, dim=dim):
            return [[(arg, dim), (value, dim)]]
        case Cat(args=args, dim=dim):
            return [[(value, dim), *((arg, dim) for arg in args)]]
        case Gather(arg=arg, dim=dim):
            return [[(arg, dim)]]
        case Take(arg=arg):
            return [[(arg, 0)]]
        case Iota():
            return []
        case _:
            return []
