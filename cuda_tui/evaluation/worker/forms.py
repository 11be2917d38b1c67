"""Inputs in other forms: the same values at other places in memory, or one row that is seen many times.

A kernel that indexes flat, or loads 16 bytes at a time from any pointer, is right on the sample and wrong on these.
"""

from collections.abc import Callable
from typing import Any

import torch

from . import precise, trees
from .loading import named_state
from .referring import Draw, Pair, aliases_of


def shaped(tensor: torch.Tensor, form: str) -> "torch.Tensor | None":
    """A copy in a form; None where the tensor has no such form, or already is in it."""
    return _FORMS[form](tensor) if tensor.numel() and _has(tensor, form) else None


def applicable(inputs: "list[torch.Tensor]") -> "dict[str, list[int]]":
    """The inputs, by number, that have each form. Forms of none are left out."""
    found = {
        form: [number for number, tensor in enumerate(inputs) if tensor.numel() and _has(tensor, form)]
        for form in _FORMS
    }
    return {form: numbers for form, numbers in found.items() if numbers}


def redraw(pair: Pair, base: Draw, form: str, only: "int | None") -> "tuple[Draw, list[int]]":
    """A draw with the values of another, its inputs (or one of them) in a form; and which inputs those are.

    The state must have been set. Raises whatever the reference raises on such inputs.
    """
    inputs: list[torch.Tensor] = []
    chosen: list[int] = []
    for number, tensor in enumerate(base.inputs):
        made = shaped(tensor, form) if only in (None, number) else None
        if made is not None:
            chosen.append(number)
        inputs.append(precise.clone_strided(tensor) if made is None else made)
    if form == "expanded":  # other values than the base's
        draw = pair.refer(base.args_plan, inputs, base.state_seed, len(chosen))
    else:
        draw = _again(pair, base, inputs)
    return draw, chosen


def _again(pair: Pair, base: Draw, inputs: "list[torch.Tensor]") -> Draw:
    """The base's fp64 result with what eager makes of the same values in this form."""
    after = [precise.clone_strided(tensor) for tensor in inputs]
    eager = trees.flatten(pair.call(base.args_plan, after), numbers=True)
    aliases = base.aliases | aliases_of(eager, after, named_state(pair.model))
    eager.tensors = [tensor.detach().clone() for tensor in eager.tensors]
    ties = {index: tie | (eager.tensors[index] != base.reference.tensors[index]) for index, tie in base.ties.items()}
    return Draw(base.args_plan, inputs, base.reference, eager, after, base.state_seed, ties, aliases)


# ---- the forms


def _offset(tensor: torch.Tensor) -> torch.Tensor:
    """One element further than where an allocation begins: contiguous, and not aligned to 16 bytes."""
    steps = precise.clone_strided(tensor).stride()
    size = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, steps, strict=True))
    return _filled([size + 1], tensor).as_strided(tensor.shape, steps, 1).copy_(tensor)


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    """The last two dimensions lie in memory the other way round."""
    return tensor.detach().mT.clone(memory_format=torch.contiguous_format).mT


def _channels_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone(memory_format=torch.channels_last)


def _expanded(tensor: torch.Tensor) -> torch.Tensor:
    """The first row in the place of all, by a stride of 0."""
    return tensor.detach()[:1].clone(memory_format=torch.contiguous_format).expand(tensor.shape)


def _sliced(tensor: torch.Tensor) -> torch.Tensor:
    """Every second column of a wider one, whose other columns are NaN (or 0)."""
    return _filled([*tensor.shape[:-1], 2 * tensor.shape[-1]], tensor)[..., ::2].copy_(tensor)


def _filled(shape: "list[int]", like: torch.Tensor) -> torch.Tensor:
    nothing: Any = float("nan") if like.is_floating_point() or like.is_complex() else 0
    return torch.full(shape, nothing, dtype=like.dtype, device=like.device)


_FORMS: "dict[str, Callable[[torch.Tensor], torch.Tensor]]" = {
    "offset": _offset,
    "transposed": _transposed,
    "channels_last": _channels_last,
    "expanded": _expanded,
    "sliced": _sliced,
}


def _has(tensor: torch.Tensor, form: str) -> bool:
    sizes = tensor.shape
    if form == "transposed":
        return tensor.dim() >= 2 and min(sizes[-2:]) > 1
    if form == "channels_last":
        return tensor.dim() == 4 and not tensor.is_contiguous(memory_format=torch.channels_last)
    if form == "expanded":
        # Integers are indices or lengths more often than not, and one-dimensional inputs seldom are rows.
        return tensor.dim() >= 2 and sizes[0] > 1 and tensor.is_floating_point()
    if form == "sliced":
        return tensor.dim() >= 1 and sizes[-1] > 1
    return True
