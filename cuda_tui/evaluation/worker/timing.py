"""Time single calls in this process. The clock and the collector are bound before any user code is loaded.

One element of every floating input is rewritten before each call, outside the timed span, so that no two calls of a
slice see the same content and a result kept from an earlier call is a wrong result.
"""

import contextlib
import ctypes
import gc
import os
import time
from collections.abc import Callable
from typing import Any

import torch

_clock = time.perf_counter_ns
_collector_off, _collector_on = gc.disable, gc.enable


def settle(threads: int, cpu: "int | None") -> None:
    """Use this many threads, on one core if named. Before the candidate's library is loaded: OpenMP reads it then."""
    _keep_freed_memory()
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)
    torch.set_num_threads(threads)


def _keep_freed_memory() -> None:
    """Let glibc keep what is freed, instead of giving it back and faulting it in again.

    With its defaults identical code runs in one of two modes, chosen by a process's history: 0.85 or 4.5 ms for one
    pointwise chain over 2 MiB. Kept memory is the faster and the steadier one, on all sides alike. It is the
    conservative choice: fusing away temporaries gains more where they are faulted in each time.
    """
    mmap_threshold, trim_threshold, top_pad = -3, -1, -2
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_threshold, 1 << 30)
        libc.mallopt(trim_threshold, (1 << 31) - 1)
        libc.mallopt(top_pad, 64 << 20)


class Timer:
    """Calls a model over one set of inputs, again and again."""

    def __init__(self, call: "Callable[..., Any]", args: "tuple[Any, ...]", kwargs: "dict[str, Any]") -> None:
        self._call, self._args, self._kwargs = call, args, kwargs
        self._cells: list[tuple[torch.Tensor, float]] = []
        self.last: Any = None

    def watch(self, tensors: "list[torch.Tensor]", positions: "list[int]") -> None:
        """Which element of each floating input changes from call to call. What exists now is collected and frozen."""
        gc.collect()
        gc.freeze()
        self._cells = []
        for tensor, position in zip(tensors, positions, strict=True):
            if tensor.is_floating_point() and tensor.numel():
                cell = tensor.data[unravel(position, tensor.shape)]
                self._cells.append((cell, float(cell)))

    def slice(self, calls: int, salt: int) -> "dict[str, Any]":
        """Nanoseconds of each call, and of the whole slice with the rewriting between calls."""
        spans: list[int] = []
        call, args, kwargs, cells = self._call, self._args, self._kwargs, self._cells
        _collector_off()
        try:
            with torch.no_grad():
                began = _clock()
                for number in range(calls):
                    for cell, base in cells:
                        cell.fill_(perturbed(base, salt + number))
                    start = _clock()
                    last = call(*args, **kwargs)
                    spans.append(_clock() - start)
                total = _clock() - began
        finally:
            _collector_on()
        self.last = last
        return {"spans_ns": spans, "total_ns": total}


def perturbed(base: float, number: int) -> float:
    """The value of call `number`: near the original, never the same twice in a thousand calls."""
    step = 1.0 + (number % 1021 + 1) / 4096.0
    return base * step if base == base and abs(base) > 1e-3 and abs(base) < 1e30 else step / 16.0


def unravel(position: int, shape: "torch.Size") -> "tuple[int, ...]":
    """A flat position as an index."""
    index: list[int] = []
    for size in reversed(shape):
        index.insert(0, position % size)
        position //= size
    return tuple(index)
