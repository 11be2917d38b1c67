"""The trace as typed records: nodes, the tensors between them, and who uses what."""

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

ELEMENT_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
FLOATS = ("float64", "float32", "bfloat16", "float16")


@dataclass(frozen=True, kw_only=True)
class TensorType:
    """Shape, strides in elements, and dtype of one tensor."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.numel * ELEMENT_BYTES.get(self.dtype, 8)

    @property
    def memory_order(self) -> tuple[int, ...] | None:
        """Dimensions from the largest stride to the smallest, where the tensor fills its memory without gaps.

        (0, 1, 2) is contiguous, (0, 2, 3, 1) channels-last; None where elements overlap or leave gaps.
        """
        rank = len(self.shape)
        order = sorted(range(rank), key=lambda dim: (-self.strides[dim] if self.shape[dim] > 1 else 0, dim))
        small = [dim for dim in range(rank) if self.shape[dim] == 1]
        if len(small) == rank or self._fills(tuple(range(rank))):
            return tuple(range(rank))
        return tuple(order) if self._fills(tuple(order)) else None

    def _fills(self, order: tuple[int, ...]) -> bool:
        wanted = contiguous_strides(tuple(self.shape[dim] for dim in order))
        return all(
            self.shape[dim] == 1 or self.strides[dim] == stride for dim, stride in zip(order, wanted, strict=True)
        )


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


@dataclass(frozen=True, kw_only=True)
class Node:
    """One operator. `op` is its ATen name without overload: "mul", "softmax"."""

    name: str
    op: str
    overload: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[TensorType, ...]
    view: bool
    bytes_read: int
    bytes_written: int
    flop: int
    module: str
    source: str
    code: str

    @property
    def output(self) -> TensorType:
        return self.outputs[0]

    @cached_property
    def references(self) -> tuple[str, ...]:
        """Names of the values it reads, in order, each once."""
        return tuple(dict.fromkeys([*references(list(self.args)), *references(self.kwargs)]))


@dataclass(frozen=True, kw_only=True)
class Source:
    """A tensor that exists before forward runs: an input, or something the module holds.

    `path` is how forward reaches an input; `target` is the qualified name of a held tensor; `value` is the content of
    a small constant that forward makes itself.
    """

    name: str
    kind: str  # "input", "parameter", "buffer", "attribute", "constant"
    type: TensorType
    path: tuple[Any, ...] = ()
    target: str = ""
    value: Any = None


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A traced forward."""

    sources: dict[str, Source]
    nodes: dict[str, Node]
    outputs: dict[str, Any]
    fixed_inputs: tuple[dict[str, Any], ...] = ()
    mutations: tuple[str, ...] = ()
    device: str = "cpu"
    mode: str = "eval"
    totals: dict[str, int] = field(default_factory=dict)

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(references(self.outputs)))

    @cached_property
    def users(self) -> dict[str, tuple[str, ...]]:
        """For every value, the nodes that read it."""
        found: dict[str, list[str]] = {name: [] for name in (*self.sources, *self.nodes)}
        for node in self.nodes.values():
            for name in node.references:
                found[name].append(node.name)
        return {name: tuple(users) for name, users in found.items()}

    def type_of(self, name: str) -> TensorType:
        return self.sources[name].type if name in self.sources else self.nodes[name].output


def references(value: Any) -> list[str]:
    """Names referred to anywhere inside an argument."""
    if isinstance(value, dict):
        if "ref" in value:
            return [value["ref"]]
        return [name for item in value.values() for name in references(item)]
    if isinstance(value, (list, tuple)):
        return [name for item in value for name in references(item)]
    return []


def load(trace: dict[str, Any]) -> Graph:
    """The graph of a trace as `evaluation.worker.trace` writes it."""
    sources = [
        Source(name=item["name"], kind="input", type=_type(item), path=tuple(item["path"])) for item in trace["inputs"]
    ]
    sources += [
        Source(name=item["name"], kind=item["kind"], type=_type(item), target=item["target"], value=item.get("value"))
        for item in trace["parameters"]
    ]
    return Graph(
        sources={source.name: source for source in sources},
        nodes={item["name"]: _node(item) for item in trace["nodes"] if item["outputs"]},  # without torch's own asserts
        outputs=trace["outputs"],
        fixed_inputs=tuple(trace["fixed_inputs"]),
        mutations=tuple(trace["mutations"]),
        device=trace["device"],
        mode=trace["mode"],
        totals=trace["totals"],
    )


def _type(item: dict[str, Any]) -> TensorType:
    return TensorType(shape=tuple(item["shape"]), strides=tuple(item["strides"]), dtype=item["dtype"])


def _node(item: dict[str, Any]) -> Node:
    op, _, overload = item["op"].removeprefix("aten.").partition(".")
    return Node(
        name=item["name"], op=op, overload=overload, args=tuple(item["args"]), kwargs=item["kwargs"],
        outputs=tuple(_type(output) for output in item["outputs"]), view=item["view"],
        bytes_read=item["bytes_read"], bytes_written=item["bytes_written"], flop=item["flop"],
        module=item["module"], source=item["source"], code=item["code"],
    )  # fmt: skip
