"""Array expressions: what a group of operators computes, before anyone decides how to loop.

Values have concrete shapes. `Map` operands broadcast as in PyTorch. Reductions keep their dimensions with size one.
Values are compared by identity, so that sharing is visible.
"""

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

from cuda_tui.autopilot.graph import FLOATS


class Unfusible(Exception):
    """The operators cannot be one kernel of ours; the reason is one sentence."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Value:
    shape: tuple[int, ...]
    dtype: str
    origin: str = ""  # the source line that asked for it


@dataclass(frozen=True, eq=False, kw_only=True)
class Leaf(Value):
    """A tensor in memory, with strides in elements."""

    name: str
    strides: tuple[int, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Constant(Value):
    """A Python number, in every element."""

    value: Any


@dataclass(frozen=True, eq=False, kw_only=True)
class Iota(Value):
    """start + step * i along the only dimension."""

    start: int
    step: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Map(Value):
    """An elementwise operator of `scalar_ops`."""

    op: str
    args: tuple[Value, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Reduce(Value):
    """sum, max, min or nan-ignoring "softmax_max" over `dims`, which stay with size one."""

    op: str
    arg: Value
    dims: tuple[int, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Reshape(Value):
    arg: Value


@dataclass(frozen=True, eq=False, kw_only=True)
class Permute(Value):
    arg: Value
    order: tuple[int, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Slice(Value):
    """Elements start, start + step, ... of one dimension."""

    arg: Value
    dim: int
    start: int
    step: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Cat(Value):
    args: tuple[Value, ...]
    dim: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Gather(Value):
    """torch.gather: along `dim` the element that `index` (same rank) names."""

    arg: Value
    index: Value
    dim: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Take(Value):
    """Rows of a matrix named by `index`: shape of index, then the columns (embedding)."""

    arg: Value
    index: Value


AnyValue: TypeAlias = Leaf | Constant | Iota | Map | Reduce | Reshape | Permute | Slice | Cat | Gather | Take

RANK = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")


def promote(*values: Value) -> str:
    """The dtype that PyTorch computes in: Python numbers only lift the kind (bool, integer, float)."""
    tensors = [value.dtype for value in values if not isinstance(value, Constant)]
    numbers = [value.value for value in values if isinstance(value, Constant)]
    best = max(tensors, key=RANK.index) if tensors else "bool"
    if {"float16", "bfloat16"} <= set(tensors):
        best = "float32"
    if any(isinstance(number, float) for number in numbers) and best not in FLOATS:
        return "float32"
    if any(isinstance(number, int) and not isinstance(number, bool) for number in numbers) and best == "bool":
        return "int64"
    return best


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape, by PyTorch's rule."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for index, size in enumerate(shape, start=rank - len(shape)):
            if size != 1:
                result[index] = size
    return tuple(result)


def constant(value: Any) -> Constant:
    dtype = "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"
    return Constant(shape=(), dtype=dtype, value=value)


def elementwise(op: str, *args: Value, dtype: str | None = None, origin: str = "") -> Map:
    """A Map over the broadcast shape; dtype defaults to the promotion of its operands."""
    shape = broadcast(*(arg.shape for arg in args))
    return Map(shape=shape, dtype=dtype or promote(*args), op=op, args=args, origin=origin)


def reduce(op: str, arg: Value, dims: tuple[int, ...], *, origin: str = "") -> Reduce:
    shape = tuple(1 if index in dims else size for index, size in enumerate(arg.shape))
    return Reduce(shape=shape, dtype=arg.dtype, op=op, arg=arg, dims=dims, origin=origin)


def reshape(arg: Value, shape: tuple[int, ...]) -> Value:
    if math.prod(shape) != math.prod(arg.shape):
        raise Unfusible(f"a reshape from {arg.shape} to {shape} changes the number of elements")
    return arg if arg.shape == shape else Reshape(shape=shape, dtype=arg.dtype, arg=arg, origin=arg.origin)


def expand(arg: Value, shape: tuple[int, ...]) -> Value:
    """Broadcast to `shape`."""
    if arg.shape == shape:
        return arg
    return Map(shape=shape, dtype=arg.dtype, op="copy", args=(arg,), origin=arg.origin)


def operands(value: Value) -> tuple[Value, ...]:
    """What a value is computed from."""
    match value:
        case Map(args=args) | Cat(args=args):
            return args
        case Gather(arg=arg, index=index) | Take(arg=arg, index=index):
            return (arg, index)
        case Reduce(arg=arg) | Reshape(arg=arg) | Permute(arg=arg) | Slice(arg=arg):
            return (arg,)
        case _:
            return ()


def post_order(roots: list[Value]) -> list[Value]:
    """Every value below the roots once, operands first."""
    found: dict[Value, None] = {}
    stack: list[tuple[Value, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        value, ready = stack.pop()
        if ready:
            found.setdefault(value)
        elif value not in found:
            stack.append((value, True))
            stack.extend((item, False) for item in reversed(operands(value)))
    return list(found)
