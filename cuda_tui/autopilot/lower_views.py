"""Views, concatenations and lookups: no arithmetic, only where an element comes from."""

from cuda_tui.autopilot.ir import Cat, Gather, Permute, Slice, Take, Unfusible, Value, expand, reshape
from cuda_tui.autopilot.lower import Call, Lowered, handles


@handles("view", "reshape", "_unsafe_view", "flatten", "unflatten", "unsqueeze", "squeeze", "view_as", "reshape_as")
def _reshape(call: Call) -> Value:
    return reshape(call.value(0), call.out.shape)


@handles("expand", "expand_as", "broadcast_to")
def _expand(call: Call) -> Value:
    return expand(_lift(call.value(0), len(call.out.shape)), call.out.shape)


def _lift(value: Value, rank: int) -> Value:
    return reshape(value, (*(1,) * (rank - len(value.shape)), *value.shape))


@handles("broadcast_tensors")
def _broadcast_tensors(call: Call) -> Lowered:
    tensors = call.get(0, "tensors")
    rank = len(call.out.shape)
    return tuple(expand(_lift(tensor, rank), call.out.shape) for tensor in tensors)


@handles("transpose", "t", "permute", "movedim", "numpy_T", "mT")
def _permute(call: Call) -> Value:
    x = call.value(0)
    rank = len(x.shape)
    order = list(range(rank))
    if call.node.op == "permute":
        order = [call.dim(item, rank) for item in call.get(1, "dims")]
    elif call.node.op == "transpose":
        first, second = (call.dim(call.get(index, ""), rank) for index in (1, 2))
        order[first], order[second] = second, first
    elif call.node.op in ("t", "mT") and rank >= 2:
        order[-2:] = [rank - 1, rank - 2]
    elif call.node.op != "t":
        raise Unfusible(call.node.op)
    return Permute(shape=call.out.shape, dtype=x.dtype, arg=x, order=tuple(order), origin=call.origin)


def _slice(x: Value, *, dim: int, start: int, length: int, step: int = 1, origin: str = "") -> Value:
    if length == x.shape[dim] and step == 1:
        return x
    shape = (*x.shape[:dim], length, *x.shape[dim + 1 :])
    return Slice(shape=shape, dtype=x.dtype, arg=x, dim=dim, start=start, step=step, origin=origin)


@handles("slice", "narrow")
def _slice_node(call: Call) -> Value:
    x = call.value(0)
    dim = call.dim(call.get(1, "dim", 0), len(x.shape))
    start = call.get(2, "start", 0) or 0
    start = min(max(start + x.shape[dim] if start < 0 else start, 0), x.shape[dim])
    step = call.get(4, "step", 1) if call.node.op == "slice" else 1
    return _slice(x, dim=dim, start=start, length=call.out.shape[dim], step=step, origin=call.origin)


@handles("select")
def _select(call: Call) -> Value:
    x = call.value(0)
    dim = call.dim(call.get(1, "dim"), len(x.shape))
    start = call.get(2, "index") % x.shape[dim]
    return reshape(_slice(x, dim=dim, start=start, length=1, origin=call.origin), call.out.shape)


@handles("split", "split_with_sizes", "chunk", "unbind", "unsafe_split", "unsafe_chunk")
def _split(call: Call) -> Lowered:
    x = call.value(0)
    unbind = call.node.op == "unbind"
    dim = call.dim(call.get(1 if unbind else 2, "dim", 0), len(x.shape))
    parts: list[Value] = []
    start = 0
    for output in call.node.outputs:
        length = 1 if unbind else output.shape[dim]
        parts.append(reshape(_slice(x, dim=dim, start=start, length=length, origin=call.origin), output.shape))
        start += length
    return tuple(parts)


@handles("getitem")
def _getitem(call: Call) -> Value:
    found = call.get(0, "self")
    index = call.get(1, "index")
    if not isinstance(found, (tuple, list)) or index >= len(found):
        raise Unfusible("a part of a result that we do not compute")
    part: Value = found[index]
    return part


@handles("cat", "stack")
def _cat(call: Call) -> Value:
    tensors = [tensor for tensor in call.get(0, "tensors") if tensor.shape != (0,)]
    dim = call.dim(call.get(1, "dim", 0), len(call.out.shape))
    if call.node.op == "stack":
        tensors = [reshape(x, (*x.shape[:dim], 1, *x.shape[dim:])) for x in tensors]
    if any(tensor.dtype != call.out.dtype for tensor in tensors):
        raise Unfusible("cat of several dtypes")
    return Cat(shape=call.out.shape, dtype=call.out.dtype, args=tuple(tensors), dim=dim, origin=call.origin)


@handles("gather")
def _gather(call: Call) -> Value:
    x, index = call.value(0), call.value(2, "index")
    dim = call.dim(call.get(1, "dim"), len(x.shape))
    same = all(left == right for at, (left, right) in enumerate(zip(x.shape, index.shape, strict=True)) if at != dim)
    if not same:
        raise Unfusible("gather from a part of a tensor")
    return Gather(shape=index.shape, dtype=x.dtype, arg=x, index=index, dim=dim, origin=call.origin)


@handles("embedding")
def _embedding(call: Call) -> Value:
    weight, index = call.value(0, "weight"), call.value(1, "indices")
    return Take(shape=call.out.shape, dtype=weight.dtype, arg=weight, index=index, origin=call.origin)
