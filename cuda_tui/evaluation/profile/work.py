"""What a trace says must be done: bytes and FLOP by operator, and the bytes that any version has to move."""

from collections.abc import Mapping
from typing import Any, NamedTuple

# An operator of the trace, and the names under which torch launches its kernels or a profiler lists it.
SAME_WORK = {
    "linear": ("mm", "addmm", "bmm"),
    "matmul": ("mm", "bmm"),
    "conv2d": ("convolution", "cudnn_convolution"),
    "convolution": ("cudnn_convolution",),
    "softmax": ("_softmax",),
    "layer_norm": ("native_layer_norm",),
}


class Work(NamedTuple):
    """Of one operator, all its nodes together."""

    bytes_moved: int
    flop: int
    flop_by_dtype: dict[str, int]


def by_operator(trace: dict[str, Any], times: Mapping[str, float]) -> dict[str, Work]:
    """Work by the name that a profile lists it under; `times` are the profile's, by name without the namespace.

    Of the names that one operator can have, the one with the most time did the work; the others only called it.
    """
    found: dict[str, Work] = {}
    for node in trace["nodes"]:
        name = _short(node["op"])
        dtype = node["outputs"][0].get("dtype", "float32") if node["outputs"] else "float32"
        listed = max((name, *SAME_WORK.get(name, ())), key=lambda alias: times.get(alias, 0.0))
        before = found.get(listed, Work(0, 0, {}))
        found[listed] = Work(
            before.bytes_moved + node["bytes_read"] + node["bytes_written"],
            before.flop + node["flop"],
            before.flop_by_dtype | {dtype: before.flop_by_dtype.get(dtype, 0) + node["flop"]},
        )
    return found


def _short(op: str) -> str:
    """`softmax` of "aten.softmax.int"; what has no namespace, such as "getitem", as it is."""
    return op.split(".")[1] if "." in op else op


def flop_by_dtype(trace: dict[str, Any]) -> dict[str, int]:
    """All FLOP of a call by the type of their results."""
    found: dict[str, int] = {}
    for node in trace["nodes"]:
        dtype = node["outputs"][0].get("dtype", "float32") if node["outputs"] else "float32"
        found[dtype] = found.get(dtype, 0) + node["flop"]
    return found


def outer_bytes(trace: dict[str, Any]) -> int:
    """Bytes of inputs, parameters and results: what any version has to move."""
    produced = {node["name"]: node["outputs"][0]["bytes"] for node in trace["nodes"] if node["outputs"]}
    given: int = sum(item.get("bytes", 0) for key in ("inputs", "parameters") for item in trace[key])
    return int(given + sum(produced.get(name, 0) for name in _references(trace["outputs"])))


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["ref"]] if isinstance(value.get("ref"), str) else []
        return own + [name for item in value.values() for name in _references(item)]
    if isinstance(value, list):
        return [name for item in value for name in _references(item)]
    return []
