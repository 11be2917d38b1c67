"""What one element costs to compute: scalar expressions over loop axes, shared where they are equal.

Evaluating a value under index expressions makes views vanish: a slice shifts an index, a concatenation becomes a
choice by range, a lookup becomes an index that is itself loaded.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cuda_tui.autopilot.axes import Axes, Axis
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
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Scalar:
    dtype: str
    axes: frozenset[Axis]  # the axes along which it varies
    origin: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Load(Scalar):
    """tensor[offset + Σ axis * stride + Σ dynamic * stride]; a dynamic index must lie in [0, size)."""

    name: str
    offset: int
    strides: dict[Axis, int]
    dynamic: tuple[tuple[Scalar, int, int], ...] = ()  # index, stride, size


@dataclass(frozen=True, eq=False, kw_only=True)
class Literal(Scalar):
    value: Any


@dataclass(frozen=True, eq=False, kw_only=True)
class Position(Scalar):
    """offset + Σ axis * step + Σ dynamic * step: an index used as a number."""

    offset: int
    steps: dict[Axis, int]
    dynamic: tuple[tuple[Scalar, int, int], ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Op(Scalar):
    op: str
    args: tuple[Scalar, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Red(Scalar):
    """A reduction of `arg` over the loops of `over`."""

    op: str
    arg: Scalar
    over: frozenset[Axis]


@dataclass(frozen=True, eq=False, kw_only=True)
class Pick(Scalar):
    """Along one axis: in [start, stop) the piece that lies there."""

    axis: Axis
    pieces: tuple[tuple[int, int, Scalar], ...]


@dataclass(frozen=True)
class Index:
    """An index: offset + Σ axis * step + Σ dynamic * step."""

    offset: int = 0
    steps: tuple[tuple[Axis, int], ...] = ()
    dynamic: tuple[tuple[Scalar, int, int], ...] = ()

    def scaled(self, factor: int, shift: int) -> "Index":
        return Index(
            self.offset * factor + shift,
            tuple((axis, step * factor) for axis, step in self.steps),
            tuple((scalar, step * factor, size) for scalar, step, size in self.dynamic),
        )


def children(scalar: Scalar) -> tuple[Scalar, ...]:
    """What must be computed before it."""
    match scalar:
        case Load(dynamic=dynamic) | Position(dynamic=dynamic):
            return tuple(index for index, _, _ in dynamic)
        case Op(args=args):
            return args
        case Red(arg=arg):
            return (arg,)
        case Pick(pieces=pieces):
            return tuple(piece for _, _, piece in pieces)
        case _:
            return ()


def below(roots: list[Scalar], *, stop: Callable[[Scalar], bool] = lambda scalar: False) -> list[Scalar]:
    """Every scalar under the roots once, operands first. `stop` keeps a scalar but does not enter it."""
    found: dict[Scalar, None] = {}
    stack: list[tuple[Scalar, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        scalar, ready = stack.pop()
        if ready or (scalar not in found and stop(scalar)):
            found.setdefault(scalar)
        elif scalar not in found:
            stack.append((scalar, True))
            stack.extend((item, False) for item in reversed(children(scalar)))
    return list(found)


@dataclass
class Evaluator:
    """Turns values into scalars. Equal scalars are one object."""

    axes: Axes
    _known: dict[tuple[Any, ...], Scalar] = field(default_factory=dict)
    _memo: dict[tuple[Any, ...], Scalar] = field(default_factory=dict)

    def scalar(self, value: Value) -> Scalar:
        """The element of `value` at its own axes."""
        return self._at(value, {})

    def _at(self, value: Value, moved: dict[Axis, Index]) -> Scalar:
        own = self.axes.all_of(value)
        moved = {axis: moved[axis] for axis in own if axis in moved}
        key = (value, tuple(sorted(((axis.number, index) for axis, index in moved.items()), key=lambda item: item[0])))
        if key not in self._memo:
            self._memo[key] = self._evaluate(value, moved)
        return self._memo[key]

    def _evaluate(self, value: Value, moved: dict[Axis, Index]) -> Scalar:
        match value:
            case Constant(value=number, dtype=dtype):
                return self._literal(number, dtype)
            case Leaf():
                return self._load(value, moved)
            case Iota():
                index = self._index(value, 0, moved).scaled(value.step, value.start)
                return self._position(index, value.dtype)
            case Map(args=args):
                return self._op(value, tuple(self._at(arg, moved) for arg in args))
            case Reduce():
                return self._reduce(value, moved)
            case Reshape(arg=arg) | Permute(arg=arg):
                return self._at(arg, moved)
            case Slice(arg=arg, dim=dim, start=start, step=step):
                index = self._index(value, dim, moved).scaled(step, start)
                return self._at(arg, self._place(arg, dim, index, moved))
            case Cat():
                return self._pick(value, moved)
            case Gather(arg=arg, index=chosen) | Take(arg=arg, index=chosen):
                dim = value.dim if isinstance(value, Gather) else 0
                found = Index(dynamic=((self._at(chosen, moved), 1, arg.shape[dim]),))
                return self._at(arg, self._place(arg, dim, found, moved))
            case _:
                raise Unfusible(f"no element of {type(value).__name__}")

    def _index(self, value: Value, dim: int, moved: dict[Axis, Index]) -> Index:
        """The index along one undivided dimension."""
        axes = self.axes.of(value, dim)
        if not axes:
            return Index()
        if len(axes) > 1:  # only a count along a reshaped dimension comes here
            steps, stride = [], 1
            for axis in reversed(axes):
                steps.append((axis, stride))
                stride *= axis.size
            if any(axis in moved for axis in axes):
                raise Unfusible("a count along a dimension that is both reshaped and sliced")
            return Index(steps=tuple(steps))
        return moved.get(axes[0], Index(steps=((axes[0], 1),)))

    def _place(self, arg: Value, dim: int, index: Index, moved: dict[Axis, Index]) -> dict[Axis, Index]:
        axes = self.axes.of(arg, dim)
        return {**moved, axes[0]: index} if axes else moved

    def _load(self, leaf: Leaf, moved: dict[Axis, Index]) -> Scalar:
        total = Index()
        for dim, stride in enumerate(leaf.strides):
            inner = stride
            for axis in reversed(self.axes.of(leaf, dim)):
                total = _plus(total, moved.get(axis, Index(steps=((axis, 1),))).scaled(inner, 0))
                inner *= axis.size
        load = Load(
            dtype=leaf.dtype, axes=_axes_of(total), name=leaf.name, offset=total.offset,
            strides=dict(total.steps), dynamic=total.dynamic,
        )  # fmt: skip
        return self._share(load, "load", leaf.name, _key(total))

    def _literal(self, number: Any, dtype: str) -> Scalar:
        return self._share(Literal(dtype=dtype, axes=frozenset(), value=number), "literal", repr(number), dtype)

    def _position(self, index: Index, dtype: str) -> Scalar:
        position = Position(
            dtype=dtype, axes=_axes_of(index), offset=index.offset, steps=dict(index.steps), dynamic=index.dynamic
        )
        return self._share(position, "position", dtype, _key(index))

    def _op(self, value: Map, args: tuple[Scalar, ...]) -> Scalar:
        if value.op == "copy" and args[0].dtype == value.dtype:
            return args[0]
        if value.op == "copy" and isinstance(args[0], Literal):
            number = bool(args[0].value) if value.dtype == "bool" else args[0].value
            return self._literal(number, value.dtype)
        axes = frozenset().union(*(arg.axes for arg in args))
        op = Op(dtype=value.dtype, axes=axes, op=value.op, args=args, origin=value.origin)
        return self._share(op, value.op, value.dtype, *(id(arg) for arg in args))

    def _reduce(self, value: Reduce, moved: dict[Axis, Index]) -> Scalar:
        if any(index != Index(steps=((axis, 1),)) for axis, index in moved.items()):
            raise Unfusible("a reduction whose result is sliced")
        over = frozenset(axis for dim in value.dims for axis in self.axes.of(value.arg, dim))
        arg = self._at(value.arg, {})
        if not over:
            return arg
        red = Red(dtype=value.dtype, axes=arg.axes - over, op=value.op, arg=arg, over=over, origin=value.origin)
        return self._share(red, "reduce", value.op, id(arg), tuple(sorted(axis.number for axis in over)))

    def _pick(self, value: Cat, moved: dict[Axis, Index]) -> Scalar:
        index = self._index(value, value.dim, moved)
        if not index.steps and not index.dynamic:  # one known element
            raise Unfusible("one element of a concatenation")
        if len(index.steps) != 1 or index.dynamic or index.steps[0][1] != 1:
            raise Unfusible("a concatenation that is sliced with steps or looked up")
        axis, start = index.steps[0][0], 0
        pieces: list[tuple[int, int, Scalar]] = []
        for arg in value.args:
            length = arg.shape[value.dim]
            inside = self._place(arg, value.dim, index.scaled(1, -start), moved)
            low, high = start - index.offset, start + length - index.offset
            if low < axis.size and high > 0:
                pieces.append((max(low, 0), min(high, axis.size), self._at(arg, inside)))
            start += length
        axes = frozenset({axis}).union(*(piece.axes for _, _, piece in pieces))
        pick = Pick(dtype=value.dtype, axes=axes, axis=axis, pieces=tuple(pieces), origin=value.origin)
        return self._share(pick, "pick", axis.number, *((low, id(piece)) for low, _, piece in pieces))

    def _share(self, scalar: Scalar, *key: Any) -> Scalar:
        return self._known.setdefault(key, scalar)


def _plus(left: Index, right: Index) -> Index:
    steps = dict(left.steps)
    for axis, step in right.steps:
        steps[axis] = steps.get(axis, 0) + step
    return Index(left.offset + right.offset, tuple(steps.items()), left.dynamic + right.dynamic)


def _axes_of(index: Index) -> frozenset[Axis]:
    moving = frozenset(axis for axis, step in index.steps if step)
    return moving.union(*(scalar.axes for scalar, _, _ in index.dynamic))


def _key(index: Index) -> tuple[Any, ...]:
    steps = tuple(sorted((axis.number, step) for axis, step in index.steps))
    return (index.offset, steps, tuple((id(scalar), step, size) for scalar, step, size in index.dynamic))
