"""From operators to array expressions. An operator without a handler here stays with PyTorch."""

from collections.abc import Callable
from typing import Any, TypeAlias

from cuda_tui.autopilot.graph import Graph, Node, TensorType
from cuda_tui.autopilot.ir import Leaf, Unfusible, Value, broadcast, constant, elementwise, expand

Lowered: TypeAlias = Value | tuple[Value, ...]
Handler: TypeAlias = Callable[["Call"], Lowered]

HANDLERS: dict[str, Handler] = {}


def handles(*ops: str) -> Callable[[Handler], Handler]:
    """Register a handler for ATen operators by name, without overload."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(ops, handler))
        return handler

    return register


class Call:
    """One node with its operands as values."""

    def __init__(self, node: Node, resolve: Callable[[Any], Any], *, device: str = "cpu") -> None:
        self.node = node
        self.device = device
        self._resolve = resolve

    @property
    def out(self) -> TensorType:
        return self.node.output

    @property
    def origin(self) -> str:
        return self.node.code or self.node.op

    def get(self, index: int, name: str, default: Any = None) -> Any:
        """An argument as it stands in the trace: a number, a list, None; tensors become values."""
        raw = self.node.args[index] if index < len(self.node.args) else self.node.kwargs.get(name, default)
        return self._resolve(raw)

    def value(self, index: int, name: str = "self") -> Value:
        """A tensor or number as a value; Unfusible where it is absent."""
        found = self.get(index, name)
        if isinstance(found, Value):
            return found
        if isinstance(found, (bool, int, float)):
            return constant(found)
        raise Unfusible(f"{self.node.op}: operand {name} is not a tensor or number")

    def map(self, op: str, *args: Value) -> Value:
        """The node's own result: its dtype and its source line."""
        return elementwise(op, *args, dtype=self.out.dtype, origin=self.origin)

    def dim(self, raw: int, rank: int) -> int:
        return raw % rank if rank else 0

    def dims(self, raw: Any, rank: int) -> tuple[int, ...]:
        """Reduced dimensions; None and an empty list mean all."""
        if raw is None or raw == []:
            return tuple(range(rank))
        listed = raw if isinstance(raw, (list, tuple)) else [raw]
        return tuple(sorted(self.dim(item, rank) for item in listed))


class Lowering:
    """Lowers the nodes of one group; every value from outside becomes a leaf."""

    def __init__(self, graph: Graph, members: frozenset[str]) -> None:
        self._graph = graph
        self._members = members
        self._done: dict[str, Lowered] = {}

    def value(self, name: str) -> Value:
        """The single result of a node or source. Raises Unfusible."""
        found = self.result(name)
        if isinstance(found, tuple):
            raise Unfusible(f"{name} is a list of tensors")
        return found

    def result(self, name: str) -> Lowered:
        if name not in self._done:
            self._done[name] = self._lower(self._graph.nodes[name]) if name in self._members else self._leaf(name)
        return self._done[name]

    def _leaf(self, name: str) -> Value:
        source = self._graph.sources.get(name)
        if source is not None and source.value is not None and source.type.numel == 1:
            return expand(constant(_only(source.value)), source.type.shape)
        kind = self._graph.type_of(name)
        if name in self._graph.nodes and len(self._graph.nodes[name].outputs) > 1:
            raise Unfusible(f"{name} is a list of tensors")
        return Leaf(shape=kind.shape, dtype=kind.dtype, name=name, strides=kind.strides)

    def _lower(self, node: Node) -> Lowered:
        handler = HANDLERS.get(node.op)
        if handler is None:
            raise Unfusible(f"no rule for {node.op}")
        result = handler(Call(node, self._resolve, device=self._graph.device))
        return self._as_traced(node, result) if isinstance(result, Value) else result

    def _as_traced(self, node: Node, value: Value) -> Value:
        """The value with the shape and dtype that PyTorch gave; a rule that disagrees about these does not apply."""
        if value.dtype != node.output.dtype:
            raise Unfusible(f"{node.op} turns {value.dtype} into {node.output.dtype}")
        if value.shape == node.output.shape:
            return value
        if broadcast(value.shape, node.output.shape) != node.output.shape:
            raise Unfusible(f"{node.op} gives {node.output.shape}, and the rule {value.shape}")
        return expand(value, node.output.shape)

    def _resolve(self, raw: Any) -> Any:
        if isinstance(raw, dict):
            if "ref" in raw:
                return self.result(raw["ref"])
            if "float" in raw:
                return float(raw["float"])
            return next(iter(raw.values()))
        if isinstance(raw, (list, tuple)):
            return [self._resolve(item) for item in raw]
        return raw


def _only(value: Any) -> Any:
    while isinstance(value, list):
        value = value[0]
    return float(value["float"]) if isinstance(value, dict) else value
