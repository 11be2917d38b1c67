"""One operator of a traced graph as plain JSON: arguments, shapes, bytes, FLOP, and the source line it came from.

Runs in the user's interpreter: standard library and torch only.
"""

from __future__ import annotations

import inspect
import math
import os
from typing import Any

import torch

VIEW_LIKE = {"_unsafe_view", "broadcast_tensors", "getitem", "reshape", "contiguous", "detach", "alias"}


def describe_node(node: Any) -> dict[str, Any]:
    """A call in a graph; a view moves no bytes and does no work."""
    op = str(node.target) if not inspect.isbuiltin(node.target) else node.target.__name__
    value = node.meta.get("val")
    outputs = [
        describe_tensor(item) for item in (value if isinstance(value, (tuple, list)) else [value]) if _is_tensor(item)
    ]
    sources = [item.meta.get("val") for item in node.all_input_nodes]
    view = _is_view(node.target, op)
    read = 0 if view else sum(_span(item) for item in sources if _is_tensor(item))
    written = 0 if view else sum(item["bytes"] for item in outputs)
    return {
        "name": node.name,
        "op": op.removeprefix("torch.ops."),
        "args": [_argument(item) for item in node.args],
        "kwargs": {name: _argument(item) for name, item in node.kwargs.items()},
        "outputs": outputs,
        "view": view,
        "bytes_read": read,
        "bytes_written": written,
        "flop": 0 if view else _flop(op, [item for item in sources if _is_tensor(item)], outputs, node.args),
        "module": _module(node),
        **_source(node),
    }


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _is_view(target: Any, op: str) -> bool:
    if op.split(".")[1 if op.startswith("aten.") else 0] in VIEW_LIKE:
        return True
    schema = getattr(target, "_schema", None)
    first = schema.arguments[0] if schema is not None and schema.arguments else None
    return first is not None and first.alias_info is not None and not first.alias_info.is_write


def describe_tensor(value: torch.Tensor) -> dict[str, Any]:
    """Shape, strides, type, and the bytes of its elements."""
    numel = math.prod(int(size) for size in value.shape)
    return {
        "shape": [int(size) for size in value.shape],
        "strides": [int(stride) for stride in value.stride()],
        "dtype": str(value.dtype).removeprefix("torch."),
        "bytes": numel * value.element_size(),
    }


def _span(value: torch.Tensor) -> int:
    """Bytes that reading the tensor once touches; a broadcast dimension costs nothing."""
    sizes = [int(size) for size, stride in zip(value.shape, value.stride(), strict=True) if int(stride) != 0]
    return math.prod(sizes) * value.element_size()


def _flop(op: str, sources: list[torch.Tensor], outputs: list[dict[str, Any]], args: Any) -> int:
    """Multiplications and additions of library calls; one FLOP an element for the rest."""
    name = op.split(".")[1] if op.startswith("aten.") else op
    out = math.prod(outputs[0]["shape"]) if outputs else 0
    if name in ("linear", "mm", "bmm", "matmul"):
        return 2 * out * int(sources[0].shape[-1])
    if name in ("addmm", "baddbmm"):
        return 2 * out * int(sources[1].shape[-1])
    if name.startswith("conv") and len(sources) > 1:
        return 2 * out * math.prod(int(size) for size in sources[1].shape[1:])
    if name == "scaled_dot_product_attention":
        return 4 * out * int(sources[min(1, len(sources) - 1)].shape[-2])
    if name == "einsum" and args and isinstance(args[0], str):
        return 2 * _einsum_size(args[0], sources)
    return sum(math.prod(item["shape"]) for item in outputs)


def _einsum_size(equation: str, sources: list[torch.Tensor]) -> int:
    labels = equation.replace(" ", "").split("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, source in zip(labels, sources, strict=False):  # a tensor used twice is one source, with the same sizes
        sizes.update({label: int(size) for label, size in zip(term, source.shape, strict=False) if label.isalpha()})
    return math.prod(sizes.values())


def _argument(value: Any) -> Any:
    if isinstance(value, torch.fx.Node):
        return {"ref": value.name}
    if isinstance(value, (list, tuple)):
        return [_argument(item) for item in value]
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, (torch.memory_format, torch.layout)):
        return {"torch": str(value)}
    return plain(value)


def plain(value: Any) -> Any:
    """A constant as JSON can hold it; non-finite floats become {"float": "inf"}."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return {"opaque": repr(value)[:200]}


def _module(node: Any) -> str:
    """`path (Class)` of the innermost module that ran the operator."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return ""
    path, kind = stack[-1]
    name = kind if isinstance(kind, str) else kind.__name__
    return f"{path.removeprefix('model').lstrip('.') or 'self'} ({name.rsplit('.', 1)[-1]})"


def _source(node: Any) -> dict[str, str]:
    """The innermost line of user code that led to the operator."""
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines() if line.strip()]
    places = [index for index, line in enumerate(lines) if line.startswith("File ")]
    own = [index for index in places if os.path.dirname(torch.__file__) not in lines[index]]
    if not own:
        return {"source": "", "code": ""}
    place = lines[own[-1]].split('"')
    number = lines[own[-1]].split("line ", 1)[1].split(",", 1)[0]
    code = lines[own[-1] + 1] if own[-1] + 1 < len(lines) else ""
    return {"source": f"{os.path.basename(place[1])}:{number}", "code": code}
