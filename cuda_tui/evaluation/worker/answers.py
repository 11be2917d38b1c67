"""What a candidate's answer must share with the reference's before any number is compared, and small helpers."""

from typing import Any

import torch

from . import tensors, timing, trees
from .referring import Draw


def layout_problem(draw: Draw, answer: "dict[str, Any]") -> str:
    """What differs in structure, type, shape or plain values; empty where nothing does."""
    if answer["problems"]:
        return str(answer["problems"][0])
    if trees.shape_of(draw.eager.plan) != trees.shape_of(answer["plan"]):
        return f"output structure differs: {_outline(answer['plan'])}, not {_outline(draw.eager.plan)}"
    if answer["values"] != draw.eager.values:
        differing = [path for path, value in draw.eager.values.items() if answer["values"].get(path) != value]
        return f"plain values differ at {', '.join(differing) or 'another place'}"
    for path, mine, theirs in zip(draw.eager.paths, draw.eager.tensors, answer["rows"], strict=True):
        if tensors.dtype_name(mine.dtype) != theirs["dtype"]:
            return f"{path} is {theirs['dtype']}, not {tensors.dtype_name(mine.dtype)}"
        if str(mine.device) != theirs["device"]:
            return f"{path} is on {theirs['device']}, not on {mine.device}"
        if list(mine.shape) != theirs["shape"]:
            return f"{path} has shape {tuple(theirs['shape'])}, not {tuple(mine.shape)}"
    return ""


def alias_problem(draw: Draw, answer: "dict[str, Any]") -> str:
    """Outputs that share memory with an input, the state or an earlier output where the reference's do not."""
    for path, owner in answer["alias"].items():
        if path not in draw.aliases:
            return f"{path} shares memory with {owner}, where the reference returns memory of its own"
    return ""


def _outline(plan: trees.Plan) -> str:
    if "items" not in plan:
        return str(plan.get("type", plan["kind"]))
    return f"{plan['kind']} of {len(plan['items'])}"


def same(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Equal bit for bit, NaN included."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    return bool(
        torch.equal(first.contiguous().reshape(-1).view(torch.uint8), second.contiguous().reshape(-1).view(torch.uint8))
    )


def sprinkle(inputs: "list[torch.Tensor]", seed: int) -> None:
    """NaN, +Inf and -Inf at a few random places of each floating input."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in inputs:
        if tensor.is_floating_point() and tensor.numel() >= 16:
            for value in (float("nan"), float("inf"), float("-inf")):
                position = int(torch.randint(tensor.numel(), (1,), generator=generator))
                tensor[timing.unravel(position, tensor.shape)] = value


def words(value: Any) -> Any:
    """Non-finite floats as words, since JSON has none."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "nan" if value != value else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {key: words(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [words(item) for item in value]
    return value
