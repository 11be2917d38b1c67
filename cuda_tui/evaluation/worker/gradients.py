"""Gradients of every parameter, and of every input where asked, through one random projection of the outputs."""

from collections.abc import Callable
from typing import Any

import torch

from . import trees

Call = Callable[["list[torch.Tensor]"], Any]


def targets(
    model: torch.nn.Module, given: "list[torch.Tensor]", *, inputs: bool
) -> "tuple[dict[str, torch.Tensor], list[torch.Tensor]]":
    """What gradients are asked of, by name, and the inputs to call with."""
    placed = [
        tensor.detach().requires_grad_(inputs and (tensor.is_floating_point() or tensor.is_complex()))
        for tensor in given
    ]
    named: dict[str, torch.Tensor] = {name: value for name, value in model.named_parameters() if value.requires_grad}
    named |= {f"input {number}": tensor for number, tensor in enumerate(placed) if tensor.requires_grad}
    return named, placed


def gradients(
    model: torch.nn.Module, call: Call, given: "list[torch.Tensor]", *, inputs: bool, seed: int
) -> "dict[str, torch.Tensor | None]":
    """The gradient of each target; None where none arrives. Raises what the call or its backward raises."""
    named, placed = targets(model, given, inputs=inputs)
    if not named:
        return {}
    with torch.enable_grad():
        leaves = trees.flatten(call(placed))
        outputs = [(i, tensor) for i, tensor in enumerate(leaves.tensors) if tensor.requires_grad]
        if not outputs:
            return dict.fromkeys(named)
        weights = [_weight(tensor, seed + index) for index, tensor in outputs]
        found = torch.autograd.grad(
            [tensor for _, tensor in outputs], list(named.values()), grad_outputs=weights, allow_unused=True
        )
    return {name: None if grad is None else grad.detach() for name, grad in zip(named, found, strict=True)}


def _weight(like: torch.Tensor, seed: int) -> torch.Tensor:
    """Random weights that both sides make alike: eighths from -1 to 1, which every type holds exactly."""
    generator = torch.Generator().manual_seed(seed % (1 << 63))
    drawn = torch.randint(-8, 9, like.shape, generator=generator)
    return (drawn.to(device=like.device, dtype=like.dtype) / 8).to(like.dtype)
