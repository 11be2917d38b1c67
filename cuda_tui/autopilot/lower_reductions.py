"""Reductions, normalisations and losses, written out as sums, maxima and elementwise operators."""

import math

from cuda_tui.autopilot.ir import Gather, Unfusible, Value, constant, elementwise, reduce, reshape
from cuda_tui.autopilot.lower import Call, Lowered, handles
from cuda_tui.autopilot.lower_pointwise import cast, mean_of, product

MEAN, SUM = 1, 2  # aten's numbers for a loss's reduction


@handles("sum", "mean", "amax", "amin")
def _plain(call: Call) -> Value:
    x = cast(call.value(0), call.out.dtype)
    dims = call.dims(call.get(1, "dim"), len(x.shape))
    op = {"amax": "max", "amin": "min"}.get(call.node.op, "sum")
    total: Value = reduce(op, x, dims, origin=call.origin)
    if call.node.op == "mean":
        total = mean_of(product(x.shape, dims), total)
    return reshape(total, call.out.shape)


@handles("max", "min")
def _extreme(call: Call) -> Value:
    if len(call.node.args) > 1:
        raise Unfusible(f"{call.node.op} with positions")
    x = call.value(0)
    return reshape(reduce(call.node.op, x, tuple(range(len(x.shape))), origin=call.origin), call.out.shape)


@handles("var", "std")
def _variance(call: Call) -> Value:
    x = call.value(0)
    unbiased = call.node.kwargs.get("correction", 1)
    raw = call.get(1, "dim")
    if isinstance(raw, bool):
        raise Unfusible("the old form of var")
    if call.node.overload == "dim" and len(call.node.args) > 2:
        unbiased = int(bool(call.node.args[2]))
    dims = call.dims(raw, len(x.shape))
    value = variance(x, dims, correction=1 if unbiased is None else unbiased)
    value = elementwise("sqrt", value) if call.node.op == "std" else value
    return reshape(value, call.out.shape)


def variance(x: Value, dims: tuple[int, ...], *, correction: float = 0) -> Value:
    """Two passes: the mean first, then the squared distances; stable where E[x²]-E[x]² is not."""
    count = product(x.shape, dims)
    centred = elementwise("sub", x, mean_of(count, reduce("sum", x, dims, origin=x.origin)))
    total = reduce("sum", elementwise("mul", centred, centred), dims, origin=x.origin)
    return elementwise("div", total, constant(float(count - correction)))


@handles("softmax", "_softmax", "log_softmax", "_log_softmax")
def _softmax(call: Call) -> Value:
    x = cast(call.value(0), call.out.dtype)
    dim = (call.dim(call.get(1, "dim"), len(x.shape)),)
    shifted, total = _shifted_exponentials(call, x, dim)
    if call.node.op.endswith("log_softmax"):
        return call.map("sub", shifted, elementwise("log", total))
    return call.map("div", elementwise("exp", shifted), total)


def _shifted_exponentials(call: Call, x: Value, dims: tuple[int, ...]) -> tuple[Value, Value]:
    """x - max and the sum of its exponentials. A NaN need not survive the maximum: the sum carries it."""
    shifted = elementwise("sub", x, reduce("softmax_max", x, dims, origin=call.origin), origin=call.origin)
    return shifted, reduce("sum", elementwise("exp", shifted), dims, origin=call.origin)


@handles("logsumexp")
def _logsumexp(call: Call) -> Value:
    x = call.value(0)
    dims = call.dims(call.get(1, "dim"), len(x.shape))
    top: Value = reduce("max", x, dims, origin=call.origin)
    infinite = elementwise("eq", elementwise("abs", top), constant(math.inf), dtype="bool")
    top = elementwise("where", infinite, constant(0.0), top, dtype=x.dtype)
    total = reduce("sum", elementwise("exp", elementwise("sub", x, top)), dims, origin=call.origin)
    return reshape(elementwise("add", elementwise("log", total), top), call.out.shape)


@handles("layer_norm", "native_layer_norm")
def _layer_norm(call: Call) -> Lowered:
    x, trailing = call.value(0), len(call.get(1, "normalized_shape"))
    dims = tuple(range(len(x.shape) - trailing, len(x.shape)))
    mean = mean_of(product(x.shape, dims), reduce("sum", x, dims, origin=call.origin))
    spread = variance(x, dims)
    eps = constant(float(call.get(4, "eps", 1e-5)))
    scale = elementwise("rsqrt", elementwise("add", spread, eps))
    normal = elementwise("mul", elementwise("sub", x, mean), scale, origin=call.origin)
    result = _affine(normal, call.get(2, "weight"), call.get(3, "bias"))
    return (result,) if call.node.op.startswith("native") else result


@handles("rms_norm")
def _rms_norm(call: Call) -> Value:
    x, trailing = call.value(0), len(call.get(1, "normalized_shape"))
    dims = tuple(range(len(x.shape) - trailing, len(x.shape)))
    eps = call.get(3, "eps")
    eps = eps if eps is not None else (2.220446049250313e-16 if x.dtype == "float64" else 1.1920929e-07)
    square = mean_of(product(x.shape, dims), reduce("sum", elementwise("mul", x, x), dims, origin=call.origin))
    scale = elementwise("rsqrt", elementwise("add", square, constant(float(eps))))
    return _affine(elementwise("mul", x, scale, origin=call.origin), call.get(2, "weight"), None)


@handles("group_norm", "instance_norm")
def _group_norm(call: Call) -> Value:
    if call.node.op == "instance_norm":
        raise Unfusible("instance_norm with running statistics")
    x, groups = call.value(0), int(call.get(1, "num_groups"))
    batch, channels, *_ = x.shape
    split = reshape(x, (batch, groups, channels // groups, math.prod(x.shape[2:])))
    dims = (2, 3)
    mean = mean_of(product(split.shape, dims), reduce("sum", split, dims, origin=call.origin))
    eps = constant(float(call.get(4, "eps", 1e-5)))
    scale = elementwise("rsqrt", elementwise("add", variance(split, dims), eps))
    normal = elementwise("mul", elementwise("sub", split, mean), scale, origin=call.origin)
    return _affine(reshape(normal, x.shape), *(_channelwise(call.get(index, ""), len(x.shape)) for index in (2, 3)))


@handles("batch_norm")
def _batch_norm(call: Call) -> Value:
    if call.get(5, "training", False):
        raise Unfusible("BatchNorm in training mode updates its statistics")
    x = call.value(0)
    rank = len(x.shape)
    weight, bias, mean, var = (_channelwise(call.get(index, ""), rank) for index in (1, 2, 3, 4))
    if mean is None or var is None:
        raise Unfusible("BatchNorm without running statistics")
    eps = constant(float(call.get(7, "eps", 1e-5)))
    scale: Value = elementwise("rsqrt", elementwise("add", var, eps), origin=call.origin)
    scale = elementwise("mul", scale, weight) if weight is not None else scale
    shift: Value = elementwise("mul", mean, scale)
    shift = elementwise("sub", bias, shift) if bias is not None else elementwise("neg", shift)
    return elementwise("add", elementwise("mul", x, scale), shift, origin=call.origin)


def _channelwise(value: Value | None, rank: int) -> Value | None:
    """A vector over dimension 1 of a tensor of the given rank."""
    return None if value is None else reshape(value, (value.shape[0], *(1,) * (rank - 2)))


def _affine(x: Value, weight: Value | None, bias: Value | None) -> Value:
    x = elementwise("mul", x, weight, origin=x.origin) if weight is not None else x
    return elementwise("add", x, bias, origin=x.origin) if bias is not None else x


@handles("linalg_vector_norm", "norm")
def _norm(call: Call) -> Value:
    x, order = call.value(0), call.get(1, "ord", 2)
    dims = call.dims(call.get(2, "dim"), len(x.shape))
    return reshape(vector_norm(x, dims, float(2 if order is None else order)), call.out.shape)


def vector_norm(x: Value, dims: tuple[int, ...], order: float) -> Value:
    match order:
        case 2.0:
            return elementwise("sqrt", reduce("sum", elementwise("mul", x, x), dims))
        case 1.0:
            return reduce("sum", elementwise("abs", x), dims)
        case math.inf:
            return reduce("max", elementwise("abs", x), dims)
        case _:
            raise Unfusible(f"a norm of order {order}")


@handles("cosine_similarity")
def _cosine(call: Call) -> Value:
    left, right = call.value(0), call.value(1)
    eps = constant(float(call.get(3, "eps", 1e-8)))
    dims = (call.dim(call.get(2, "dim", 1), len(left.shape)),)
    unit = [elementwise("div", x, elementwise("maximum", vector_norm(x, dims, 2.0), eps)) for x in (left, right)]
    return reshape(reduce("sum", elementwise("mul", *unit), dims, origin=call.origin), call.out.shape)


@handles("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "binary_cross_entropy_with_logits")
def _loss(call: Call) -> Value:
    prediction, target = call.value(0), call.value(1, "target")
    place = {"binary_cross_entropy_with_logits": 4}.get(call.node.op, 2)
    reduction = call.get(place, "reduction", MEAN)
    distance = elementwise("sub", prediction, target, origin=call.origin)
    match call.node.op:
        case "mse_loss":
            loss: Value = elementwise("mul", distance, distance)
        case "l1_loss":
            loss = elementwise("abs", distance)
        case "smooth_l1_loss" | "huber_loss":
            loss = _smooth(call, elementwise("abs", distance))
        case "kl_div":
            loss = _kl(call, prediction, target)
        case _:
            loss = _bce(call, prediction, target)
    if reduction not in (MEAN, SUM):
        return loss
    total: Value = reduce("sum", loss, tuple(range(len(loss.shape))), origin=call.origin)
    total = mean_of(math.prod(loss.shape), total) if reduction == MEAN else total
    return reshape(total, ())


def _smooth(call: Call, distance: Value) -> Value:
    edge = float(call.get(3, "beta" if call.node.op == "smooth_l1_loss" else "delta", 1.0))
    if edge == 0:
        return distance
    near = elementwise("mul", elementwise("mul", distance, distance), constant(0.5))
    far = elementwise("sub", distance, constant(0.5 * edge))
    if call.node.op == "smooth_l1_loss":
        near = elementwise("div", near, constant(edge))
    else:
        far = elementwise("mul", far, constant(edge))
    inside = elementwise("lt", distance, constant(edge), dtype="bool")
    return elementwise("where", inside, near, far, dtype=distance.dtype)


def _kl(call: Call, prediction: Value, target: Value) -> Value:
    if call.get(3, "log_target", False):
        return elementwise("mul", elementwise("exp", target), elementwise("sub", target, prediction))
    entropy = elementwise("mul", target, elementwise("log", target))
    entropy = elementwise(
        "where", elementwise("gt", target, constant(0.0), dtype="bool"), entropy, constant(0.0), dtype=target.dtype
    )
    keep = elementwise("ne", target, target, dtype="bool")
    entropy = elementwise("where", keep, target, entropy, dtype=target.dtype)
    return elementwise("sub", entropy, elementwise("mul", target, prediction))


def _bce(call: Call, prediction: Value, target: Value) -> Value:
    if call.get(2, "weight") is not None or call.get(3, "pos_weight") is not None:
        raise Unfusible("binary cross-entropy with weights")
    left = elementwise("mul", elementwise("sub", constant(1.0), target), prediction)
    return elementwise("add", left, elementwise("softplus", elementwise("neg", prediction)))


@handles("cross_entropy_loss")
def _cross_entropy(call: Call) -> Value:
    x, target = call.value(0), call.value(1, "target")
    if call.get(2, "weight") is not None or call.get(5, "label_smoothing", 0.0) or target.dtype != "int64":
        raise Unfusible("cross-entropy with weights, smoothing or soft targets")
    if call.get(3, "reduction", MEAN) != 0:
        raise Unfusible("cross-entropy that is reduced twice")
    dim = min(1, len(x.shape) - 1)
    shifted, total = _shifted_exponentials(call, x, (dim,))
    log_probability = elementwise("sub", shifted, elementwise("log", total))
    valid = elementwise("ne", target, constant(int(call.get(4, "ignore_index", -100))), dtype="bool")
    safe = elementwise("where", valid, target, constant(0), dtype="int64")
    index = reshape(safe, (*target.shape[:dim], 1, *target.shape[dim:]))
    picked = Gather(shape=index.shape, dtype=x.dtype, arg=log_probability, index=index, dim=dim, origin=call.origin)
    loss = elementwise("neg", reshape(picked, target.shape))
    return call.map("where", valid, loss, constant(0.0))
