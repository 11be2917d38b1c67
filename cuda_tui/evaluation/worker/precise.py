"""Run a model in fp64, also where it names a lower precision itself (`x.float()`, `dtype=torch.float32`)."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

LOW = (torch.float16, torch.bfloat16, torch.float32)


class InDouble(TorchDispatchMode):
    """Every cast to, and every tensor made in, a lower floating type becomes fp64."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") in LOW:
            kwargs["dtype"] = torch.float64
        args = tuple(torch.float64 if isinstance(item, torch.dtype) and item in LOW else item for item in args)
        return func(*args, **kwargs)


def as_double(tensor: torch.Tensor) -> torch.Tensor:
    """A floating tensor as fp64, with its strides kept; others as they are. Always a copy."""
    if not tensor.is_floating_point():
        return clone_strided(tensor)
    result = torch.empty_strided(tensor.shape, _dense(tensor), dtype=torch.float64, device=tensor.device)
    return result.copy_(tensor)


def clone_strided(tensor: torch.Tensor) -> torch.Tensor:
    """A private copy with the same strides; overlapping ones (expanded) become dense."""
    result = torch.empty_strided(tensor.shape, _dense(tensor), dtype=tensor.dtype, device=tensor.device)
    return result.copy_(tensor)


def _dense(tensor: torch.Tensor) -> "tuple[int, ...]":
    if any(step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True)):
        return tuple(torch.empty(tensor.shape, device="meta").stride())
    return tuple(tensor.stride())


def model_in_double(model: torch.nn.Module) -> torch.nn.Module:
    """Make a freshly built model fp64 throughout: parameters, buffers and plain tensor attributes."""
    model.double()
    for part in model.modules():
        for name, value in list(vars(part).items()):
            if type(value) is torch.Tensor and value.is_floating_point():
                setattr(part, name, value.double())
    return model


def call_in_double(model: torch.nn.Module, args: Any, kwargs: Any) -> Any:
    """One call without gradients, everything in fp64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad(), InDouble():
            return model(*args, **kwargs)
    finally:
        torch.set_default_dtype(before)
