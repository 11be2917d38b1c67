"""Scalar operators as C++ text, the same for the CPU and for CUDA but for the names of functions."""

import math
from dataclasses import dataclass
from typing import Any

from cuda_tui.autopilot.scalar import Op

C_TYPES = {
    "float32": "float", "float64": "double", "float16": "float", "bfloat16": "float",
    "int64": "int64_t", "int32": "int32_t", "uint8": "uint8_t", "bool": "bool",
}  # fmt: skip

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """Where functions come from. `vector` functions are ours; `library` ones are the platform's."""

    vector: str = "vec::"
    library: str = "std::"

    def call(self, name: str, *args: str) -> str:
        prefix = self.library if name in _LIBRARY else self.vector
        return f"{prefix}{name}({', '.join(args)})"


_LIBRARY = frozenset(["sqrt", "fabs", "sin", "cos", "pow", "floor", "ceil", "trunc", "nearbyint", "exp2", "log2"])
_RENAMED = {"abs": "fabs", "round": "nearbyint"}


def literal(value: Any, dtype: str) -> str:
    """A number in the given dtype."""
    if dtype == "bool":
        return "true" if value else "false"
    kind = C_TYPES[dtype]
    if dtype.startswith(("int", "uint")):
        return f"int64_t({int(value)})" if dtype == "int64" else str(int(value))
    number = float(value)
    if math.isnan(number):
        return "NAN" if kind == "float" else "double(NAN)"
    if math.isinf(number):
        sign = "-" if number < 0 else ""
        return f"{sign}INFINITY" if kind == "float" else f"double({sign}INFINITY)"
    text = repr(number)
    text = text if any(mark in text for mark in ".en") else f"{text}.0"
    return f"{text}f" if kind == "float" else text


def expression(op: Op, args: list[str], dialect: Dialect) -> str:
    """The operator applied to operand texts that are names or literals."""
    kind = C_TYPES[op.dtype]
    name = op.op
    if name in INFIX:
        return f"{args[0]} {INFIX[name]} {args[1]}"
    match name:
        case "copy" if op.args[0].dtype == "bool" and op.dtype != "bool":
            return f"{args[0]} ? {literal(1, op.dtype)} : {literal(0, op.dtype)}"  # a cast would not vectorise
        case "copy":
            return f"static_cast<{kind}>({args[0]})" if op.dtype != "bool" else f"{args[0]} != 0"
        case "where":
            return f"{args[0]} ? {args[1]} : {args[2]}"
        case "neg":
            return f"-{args[0]}"
        case "not":
            return f"!{args[0]}"
        case "and" | "or":
            return f"{args[0]} {'&' if name == 'and' else '|'} {args[1]}"
        case "reciprocal":
            return f"{kind}(1) / {args[0]}"
        case "rsqrt":
            return f"{kind}(1) / {dialect.call('sqrt', args[0])}"
        case _:
            return dialect.call(_RENAMED.get(name, name), *args)
