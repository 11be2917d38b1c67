"""Brings a graph into the form that groups are made of: one result a node, one kind of reduction a node."""

from dataclasses import replace

from cuda_tui.autopilot.graph import Graph, Node, TensorType

MEAN, SUM = 1, 2


def normalise(graph: Graph) -> Graph:
    """The same computation with simpler nodes.

    Cross-entropy with reduction="mean" or "sum" becomes the loss of each sample, then its sum over the count. A
    BatchNorm in eval mode, which returns three tensors of which two are empty, becomes one that returns one.
    """
    nodes: dict[str, Node] = {}
    norms = {name: node for name, node in graph.nodes.items() if node.op == "_native_batch_norm_legit_no_training"}
    for node in graph.nodes.values():
        parts: tuple[Node, ...] = (node,)
        if node.op == "cross_entropy_loss":
            parts = _cross_entropy(node, graph)
        elif node.name in norms:
            parts = ()
        elif node.op == "getitem" and node.references[0] in norms:
            parts = (_batch_norm(node, norms[node.references[0]]),)
        nodes.update((part.name, part) for part in parts)
    return replace(graph, nodes=nodes)


def _batch_norm(getitem: Node, norm: Node) -> Node:
    *tensors, momentum, eps = norm.args
    return replace(
        norm, name=getitem.name, op="batch_norm", args=(*tensors, False, momentum, eps, False), outputs=getitem.outputs
    )


def _cross_entropy(node: Node, graph: Graph) -> tuple[Node, ...]:
    args = list(node.args) + [None, 1, -100, 0.0][len(node.args) - 2 :]
    reduction, ignored = args[3], args[4]
    target = graph.type_of(args[1]["ref"])
    if reduction not in (MEAN, SUM) or args[2] is not None or args[5] or target.dtype != "int64":
        return (node,)
    rows = replace(node.output, shape=target.shape, strides=target.strides)
    each = replace(
        node, name=f"{node.name}_each", args=(*args[:3], 0, ignored, 0.0), outputs=(rows,), bytes_written=rows.bytes
    )
    scalar = node.output
    total = _small(node, "sum", f"{node.name}_total", (_ref(each),), scalar)
    if reduction == SUM:
        return (each, replace(total, name=node.name))
    flags = TensorType(shape=target.shape, strides=target.strides, dtype="bool")
    count_type = TensorType(shape=(), strides=(), dtype="int64")
    valid = _small(node, "ne", f"{node.name}_valid", (args[1], ignored), flags, overload="Scalar")
    count = _small(node, "sum", f"{node.name}_count", (_ref(valid),), count_type)
    mean = _small(node, "div", node.name, (_ref(total), _ref(count)), scalar, overload="Tensor")
    return (each, total, valid, count, mean)


def _ref(node: Node) -> dict[str, str]:
    return {"ref": node.name}


def _small(
    node: Node, op: str, name: str, args: tuple[object, ...], output: TensorType, *, overload: str = "default"
) -> Node:
    return replace(
        node, op=op, name=name, overload=overload, args=args, kwargs={}, outputs=(output,), bytes_read=output.bytes,
        bytes_written=output.bytes, flop=output.numel,
    )  # fmt: skip
