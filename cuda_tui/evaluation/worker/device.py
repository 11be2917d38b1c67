"""What a worker on a GPU does that one on the CPU does not: its device, its streams, its faults."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import driver, tensors
from .loading import Fault

BEHIND_MS = 2.0  # how long a producer keeps a call's inputs from being there


def use(name: str) -> torch.device:
    """Make this process's device the current one, and wait until it can be used. "cpu" needs nothing."""
    device = torch.device(name)
    if device.type == "cuda":
        device = torch.device("cuda", device.index or 0)
        torch.cuda.set_device(device)
        torch.zeros(1, device=device)
    return device


def is_gpu(device: "torch.device | str") -> bool:
    """Whether it is a CUDA device."""
    return torch.device(device).type == "cuda"


def synchronize(device: torch.device) -> None:
    """Wait for all work on a GPU; nothing to do elsewhere."""
    if is_gpu(device):
        torch.cuda.synchronize(device)


@contextlib.contextmanager
def another_current(device: torch.device) -> "Iterator[None]":
    """Inside, another GPU is the current one, as for whoever puts tensors on several. Needs two."""
    with torch.cuda.device(((device.index or 0) + 1) % torch.cuda.device_count()):
        yield


def spin(microseconds: float) -> None:
    """Keep the current stream busy. Cycles at 2 GHz: a slower clock spins longer, which does no harm."""
    torch.cuda._sleep(max(1, int(microseconds * 2000)))


def placed(given: "list[torch.Tensor]", device: torch.device) -> "list[torch.Tensor]":
    """The tensors on a device, with their strides."""
    return [tensor if tensor.device == device else tensor.to(device) for tensor in given]


@contextlib.contextmanager
def poisoned_memory() -> "Iterator[None]":
    """Inside, memory that torch hands out is NaN or the largest integer until it is written, also to C++ callers."""
    before, warn_only = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before, warn_only=warn_only)


def call_behind_a_producer(
    call: "Callable[[list[torch.Tensor]], Any]", given: "list[torch.Tensor]", device: torch.device
) -> Any:
    """Call on a side stream whose earlier work is still writing the inputs, and wait for that stream alone.

    `given` holds the values afterwards. Work that a candidate puts on another stream, the default one for instance,
    reads what was there before, or has not written its result when it is looked at.
    """
    memory = [tensors.memory_of(tensor) for tensor in given]  # an expanded tensor cannot be written to
    values = [part.clone() for part in memory]
    for part in memory:
        blank(part)
    stream = torch.cuda.Stream(device)
    torch.cuda.synchronize(device)
    with torch.cuda.stream(stream):
        spin(BEHIND_MS * 1000)
        for part, value in zip(memory, values, strict=True):
            part.copy_(value)
        result = checked(lambda: call(given))
        stream.synchronize()
    return result


def blank(tensor: torch.Tensor) -> None:
    """NaN where the type has one; zeros elsewhere, since a wrong index must not be ours."""
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.fill_(float("nan"))
    else:
        tensor.zero_()


def checked(call: "Callable[[], Any]") -> Any:
    """Call, and raise Fault where a launch was refused: it leaves an error that nothing else reports."""
    driver.launch_error()
    result = call()
    if text := driver.launch_error():
        raise Fault("LAUNCH_ERROR", text)
    return result
