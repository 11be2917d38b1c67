"""Run a model in fp64, also where it names a lower precision itself (`x.float()`, `dtype=torch.float32`)."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import tensors

LOW = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64}
LOW |= {torch.complex64: torch.complex128, torch.complex32: torch.complex128}


class InDouble(TorchDispatchMode):
    """Every cast to, and every tensor made in, a lower floating type becomes fp64."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") in LOW:
            kwargs["dtype"] = LOW[kwargs["dtype"]]
        args = tuple(LOW.get(item, item) if isinstance(item, torch.dtype) else item for item in args)
        return func(*args, **kwargs)


def as_double(tensor: torch.Tensor) -> torch.Tensor:
    """A floating or complex tensor in double precision, with its strides kept; others as they are. Always a copy."""
    if tensor.is_complex():
        return clone_strided(tensor, torch.complex128)
    return clone_strided(tensor, torch.float64 if tensor.is_floating_point() else None)


def clone_strided(tensor: torch.Tensor, dtype: "torch.dtype | None" = None) -> torch.Tensor:
    """A private copy with the same strides and no gradient; overlapping ones (expanded) become dense."""
    result = torch.empty_strided(tensor.shape, _dense(tensor), dtype=dtype or tensor.dtype, device=tensor.device)
    memory = tensors.memory_of(result)
    if memory.numel() != result.numel():
        memory.zero_()  # gaps of a slice: they travel with it, and must be the same on both sides
    return result.copy_(tensor.detach())


def _dense(tensor: torch.Tensor) -> "tuple[int, ...]":
    if any(step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True)):
        return tuple(torch.empty(tensor.shape, device="meta").stride())
    return tuple(tensor.stride())


def model_in_double(model: torch.nn.Module) -> torch.nn.Module:
    """Make a freshly built model fp64 throughout: parameters, buffers and plain tensor attributes."""
    model.double()
    for part in model.modules():
        for name, value in list(vars(part).items()):
            if type(value) is torch.Tensor and (value.is_floating_point() or value.is_complex()):
                setattr(part, name, as_double(value))
        for name, value in part._buffers.items():
            if value is not None and value.is_complex():
                part._buffers[name] = as_double(value)
    return model


@contextlib.contextmanager
def in_double() -> "Iterator[None]":
    """Inside, everything that is made or cast is fp64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with InDouble():
            yield
    finally:
        torch.set_default_dtype(before)


def call_in_double(model: torch.nn.Module, args: Any, kwargs: Any) -> Any:
    """One call without gradients, everything in fp64."""
    with torch.no_grad(), in_double():
        return model(*args, **kwargs)
