"""Elementwise operators, conversions and tensors that forward makes from nothing."""

import math

from cuda_tui.autopilot.graph import FLOATS
from cuda_tui.autopilot.ir import Iota, Unfusible, Value, constant, elementwise, expand, promote, reshape
from cuda_tui.autopilot.lower import Call, handles

UNARY = [
    "neg",
    "abs",
    "exp",
    "log",
    "log1p",
    "expm1",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "sin",
    "cos",
    "tanh",
    "sigmoid",
    "erf",
    "sign",
    "floor",
    "ceil",
    "round",
    "trunc",
    "exp2",
    "log2",
]


@handles(*UNARY)
def _unary(call: Call) -> Value:
    arg = cast(call.value(0), call.out.dtype)
    if call.node.op == "round" and call.get(1, "decimals", 0):
        raise Unfusible("round to decimals")
    return call.map(call.node.op, arg)


@handles("relu", "square", "silu", "log_sigmoid", "mish", "hardswish", "hardsigmoid", "relu6", "logical_not", "isnan")
def _composed(call: Call) -> Value:
    x = call.value(0)
    hard = clamp(elementwise("add", x, constant(3.0)), 0.0, 6.0) if call.node.op.startswith("hard") else x
    match call.node.op:
        case "relu":
            return call.map("maximum", x, constant(0) if x.dtype not in FLOATS else constant(0.0))
        case "square":
            return call.map("mul", x, x)
        case "silu":
            return call.map("silu", x)
        case "log_sigmoid":
            return call.map("neg", elementwise("softplus", elementwise("neg", x)))
        case "mish":
            return call.map("mul", x, elementwise("tanh", elementwise("softplus", x)))
        case "hardswish":
            return call.map("div", elementwise("mul", x, hard), constant(6.0))
        case "hardsigmoid":
            return call.map("div", hard, constant(6.0))
        case "relu6":
            return clamp(x, 0.0, 6.0)
        case "isnan":
            return elementwise("ne", x, x, dtype="bool")
        case _:
            return elementwise("eq", x, constant(0), dtype="bool")


@handles("gelu")
def _gelu(call: Call) -> Value:
    x = call.value(0)
    return call.map("gelu_tanh" if call.get(1, "approximate", "none") == "tanh" else "gelu", x)


@handles("softplus")
def _softplus(call: Call) -> Value:
    x, beta, threshold = call.value(0), call.get(1, "beta", 1), call.get(2, "threshold", 20)
    scaled = elementwise("mul", x, constant(float(beta))) if beta != 1 else x
    soft = elementwise("softplus", scaled)
    soft = elementwise("div", soft, constant(float(beta))) if beta != 1 else soft
    return call.map("where", elementwise("gt", scaled, constant(float(threshold)), dtype="bool"), x, soft)


@handles("elu")
def _elu(call: Call) -> Value:
    x, alpha, scale = call.value(0), call.get(1, "alpha", 1), call.get(2, "scale", 1)
    if call.get(3, "input_scale", 1) != 1:
        raise Unfusible("elu with an input scale")
    low = elementwise("mul", elementwise("expm1", x), constant(float(alpha)))
    chosen = elementwise("where", elementwise("gt", x, constant(0.0), dtype="bool"), x, low, dtype=x.dtype)
    return call.map("mul", chosen, constant(float(scale)))


@handles("leaky_relu")
def _leaky_relu(call: Call) -> Value:
    x = call.value(0)
    low = elementwise("mul", x, constant(float(call.get(1, "negative_slope", 0.01))))
    return call.map("where", elementwise("gt", x, constant(0.0), dtype="bool"), x, low)


@handles("add", "sub", "rsub")
def _sum(call: Call) -> Value:
    left, right = call.value(0), call.value(1, "other")
    if call.node.op == "rsub":
        left, right = right, left
    alpha = call.get(2, "alpha", 1)
    if alpha != 1:
        right = elementwise("mul", right, constant(alpha))
    return call.map("add" if call.node.op == "add" else "sub", *alike(call, left, right))


@handles("mul", "maximum", "minimum")
def _binary(call: Call) -> Value:
    return call.map(call.node.op, *alike(call, call.value(0), call.value(1, "other")))


@handles("div")
def _div(call: Call) -> Value:
    if call.get(2, "rounding_mode") is not None or call.out.dtype not in FLOATS:
        raise Unfusible("integer division")
    return call.map("div", *alike(call, call.value(0), call.value(1, "other")))


@handles("pow")
def _pow(call: Call) -> Value:
    base, exponent = call.value(0), call.get(1, "exponent")
    if call.out.dtype not in FLOATS:
        raise Unfusible("integer power")
    if isinstance(exponent, Value):
        return call.map("pow", *alike(call, base, exponent))
    return power(call, base, float(exponent))


def power(call: Call, base: Value, exponent: float) -> Value:
    """base ** exponent with the special cases that PyTorch treats specially."""
    base = cast(base, call.out.dtype)
    match exponent:
        case 1.0:
            return base
        case 2.0:
            return call.map("mul", base, base)
        case 3.0:
            return call.map("mul", elementwise("mul", base, base), base)
        case 0.5:
            return call.map("sqrt", base)
        case -0.5:
            return call.map("rsqrt", base)
        case -1.0:
            return call.map("reciprocal", base)
        case _:
            return call.map("pow", base, constant(exponent))


@handles("eq", "ne", "lt", "le", "gt", "ge")
def _compare(call: Call) -> Value:
    left, right = call.value(0), call.value(1, "other")
    common = promote(left, right)
    return elementwise(call.node.op, cast(left, common), cast(right, common), dtype="bool", origin=call.origin)


@handles("logical_and", "logical_or", "bitwise_and", "bitwise_or", "bitwise_not")
def _logic(call: Call) -> Value:
    args = [call.value(0)] if call.node.op == "bitwise_not" else [call.value(0), call.value(1, "other")]
    if any(arg.dtype != "bool" for arg in args):
        raise Unfusible(f"{call.node.op} on integers")
    if call.node.op == "bitwise_not":
        return call.map("not", *args)
    return call.map("and" if call.node.op.endswith("and") else "or", *args)


@handles("where")
def _where(call: Call) -> Value:
    chosen = alike(call, call.value(1, "self"), call.value(2, "other"))
    return call.map("where", call.value(0, "condition"), *chosen)


@handles("masked_fill")
def _masked_fill(call: Call) -> Value:
    x, fill = alike(call, call.value(0), call.value(2, "value"))
    return call.map("where", call.value(1, "mask"), fill, x)


@handles("clamp", "clamp_min", "clamp_max", "hardtanh")
def _clamp(call: Call) -> Value:
    x = call.value(0)
    low, high = call.get(1, "min"), call.get(2, "max")
    if call.node.op == "hardtanh":
        low, high = call.get(1, "min_val", -1.0), call.get(2, "max_val", 1.0)
    if call.node.op == "clamp_max":
        low, high = None, low
    for bound, op in ((low, "maximum"), (high, "minimum")):
        if bound is not None:
            other = bound if isinstance(bound, Value) else constant(bound)
            x = call.map(op, *alike(call, x, other))
    return x


def clamp(x: Value, low: float, high: float) -> Value:
    return elementwise("minimum", elementwise("maximum", x, constant(low)), constant(high))


@handles("addcmul", "addcdiv")
def _addc(call: Call) -> Value:
    op = "mul" if call.node.op == "addcmul" else "div"
    product = elementwise(op, call.value(1, "tensor1"), call.value(2, "tensor2"))
    scale = call.get(3, "value", 1)
    if scale != 1:
        product = elementwise("mul", product, constant(scale))
    return call.map("add", call.value(0), product)


@handles("lerp")
def _lerp(call: Call) -> Value:
    start, end, weight = call.value(0), call.value(1, "end"), call.value(2, "weight")
    return call.map("add", start, elementwise("mul", weight, elementwise("sub", end, start)))


@handles("to", "_to_copy", "clone", "contiguous", "detach", "alias", "lift_fresh_copy", "type_as", "copy", "float")
def _copy(call: Call) -> Value:
    if call.get(99, "device", call.device) not in (None, call.device):
        raise Unfusible("a copy to another device")
    return call.map("copy", call.value(0))


@handles("dropout", "native_dropout", "feature_dropout", "alpha_dropout")
def _dropout(call: Call) -> Value:
    if call.get(2, "train", False):
        raise Unfusible("dropout in training mode is random")
    return call.map("copy", call.value(0))


@handles("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "scalar_tensor")
def _filled(call: Call) -> Value:
    base = call.node.op.removesuffix("_like")
    value = {"zeros": 0, "ones": 1}.get(base)
    if value is None:
        value = call.get(0 if base == "scalar_tensor" else 1, "fill_value")
    return expand(cast(constant(value), call.out.dtype), call.out.shape)


@handles("arange")
def _arange(call: Call) -> Value:
    numbers = [item for item in call.node.args if isinstance(item, int) and not isinstance(item, bool)]
    if call.out.dtype not in ("int64", "int32") or len(numbers) != len(call.node.args):
        raise Unfusible("arange of floats")
    start = numbers[0] if len(numbers) > 1 else 0
    step = numbers[2] if len(numbers) > 2 else 1
    return Iota(shape=call.out.shape, dtype=call.out.dtype, start=start, step=step, origin=call.origin)


@handles("tril", "triu")
def _triangle(call: Call) -> Value:
    x, diagonal = call.value(0), call.get(1, "diagonal", 0)
    rows, columns = call.out.shape[-2:]
    row = reshape(Iota(shape=(rows,), dtype="int64", start=0, step=1), (rows, 1))
    column = Iota(shape=(columns,), dtype="int64", start=0, step=1)
    op = "le" if call.node.op == "tril" else "ge"
    edge = elementwise("add", row, constant(int(diagonal)))
    keep = elementwise(op, column, edge, dtype="bool")
    zero = cast(constant(False if x.dtype == "bool" else 0), x.dtype)
    return call.map("where", keep, x, zero)


def cast(value: Value, dtype: str) -> Value:
    """The value in another dtype; numbers are free to change."""
    if value.dtype == dtype:
        return value
    return elementwise("copy", value, dtype=dtype, origin=value.origin)


def alike(call: Call, left: Value, right: Value) -> tuple[Value, Value]:
    """Both operands in the dtype of the result."""
    return cast(left, call.out.dtype), cast(right, call.out.dtype)


def mean_of(count: int, total: Value) -> Value:
    return elementwise("div", total, constant(float(count)), origin=total.origin)


def product(shape: tuple[int, ...], dims: tuple[int, ...]) -> int:
    return math.prod(shape[dim] for dim in dims)
