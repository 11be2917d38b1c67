"""PyTorch calls in the generated forward, for operators that stay with PyTorch."""

from typing import Any

from cuda_tui.autopilot.graph import Graph, Node

# How people write them; everything else is called as torch.ops.aten.NAME, which is always exact.
READABLE = {
    "linear": "F.linear", "conv1d": "F.conv1d", "conv2d": "F.conv2d", "conv3d": "F.conv3d",
    "scaled_dot_product_attention": "F.scaled_dot_product_attention", "matmul": "torch.matmul", "mm": "torch.mm",
    "bmm": "torch.bmm", "addmm": "torch.addmm", "add": "torch.add", "sub": "torch.sub", "mul": "torch.mul",
    "div": "torch.div", "exp": "torch.exp", "tanh": "torch.tanh", "sigmoid": "torch.sigmoid", "relu": "torch.relu",
    "silu": "F.silu", "where": "torch.where", "cat": "torch.cat", "stack": "torch.stack", "permute": "torch.permute",
    "transpose": "torch.transpose", "embedding": "F.embedding", "unsqueeze": "torch.unsqueeze",
}  # fmt: skip


def call_text(node: Node, graph: Graph, names: dict[str, str]) -> str:
    """The call as Python text."""
    if node.op == "getitem":
        return f"{_text(node.args[0], names)}[{node.args[1]}]"
    args = [_text(item, names) for item in node.args]
    kwargs = [f"{key}={_keyword(key, item, graph, names)}" for key, item in node.kwargs.items() if key != "pin_memory"]
    if node.op in ("view", "expand", "permute") and len(args) == 2 and not kwargs:
        return f"{args[0]}.{node.op}({args[1].strip('[]')})"
    if node.op == "transpose" and len(args) == 3:
        return f"{args[0]}.transpose({args[1]}, {args[2]})"
    function = READABLE.get(node.op, f"torch.ops.aten.{node.op}.{node.overload}")
    return f"{function}({', '.join([*args, *kwargs])})"


def _keyword(key: str, raw: Any, graph: Graph, names: dict[str, str]) -> str:
    if key == "device":
        first = next((source.name for source in graph.sources.values() if source.kind == "input"), None)
        return f"{names[first]}.device" if first else _text(raw, names)
    return _text(raw, names)


def _text(raw: Any, names: dict[str, str]) -> str:
    if isinstance(raw, dict):
        if "ref" in raw:
            return names[raw["ref"]]
        if "float" in raw:
            return f'float("{raw["float"]}")'
        if "dtype" in raw:
            return f"torch.{raw['dtype']}"
        if "torch" in raw:
            return str(raw["torch"])
        return repr(next(iter(raw.values())))
    if isinstance(raw, (list, tuple)):
        return f"[{', '.join(_text(item, names) for item in raw)}]"
    return repr(raw)
