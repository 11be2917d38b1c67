"""Time single calls in this process. The clock and the collector are bound before any user code is loaded.

One element of every floating input, at another place each time, is rewritten before each call, outside the timed
span, so that no two calls see the same content and a result kept from an earlier call is a wrong result. Where no
input is floating, two elements change places instead.
"""

import contextlib
import ctypes
import gc
import os
import time
from collections.abc import Callable
from typing import Any

import torch

from . import precise

_clock, _cpu_clock = time.perf_counter_ns, time.process_time_ns
_collector_off, _collector_on = gc.disable, gc.enable
_Tensor = torch._C.TensorBase  # its methods cannot be replaced by the candidate, those of torch.Tensor can
_fill, _item, _at = _Tensor.fill_, _Tensor.item, _Tensor.__getitem__


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


def poison_new_memory(on: bool) -> None:
    """Let glibc fill what it hands out, where untimed: memory that was never written must not pass for zeros."""
    perturb = -6
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(perturb, 0x2B if on else 0)  # every byte is then 0xD4, -7.3e12 as a float


class Change:
    """How one input differs from call to call: which call it is decides the place and the value."""

    def __init__(self, tensor: torch.Tensor, share: float) -> None:
        self._tensor = tensor.data  # written to without a change of its version
        self._first = int(share * tensor.numel())
        self._floating = tensor.is_floating_point()
        # In a type of few bits a small change of one element drowns in what the comparison has to allow.
        self._factor = 1.0 if tensor.dtype in (torch.float32, torch.float64) else 3.0
        self._undo: list[tuple[torch.Tensor, Any]] = []

    def apply(self, number: int) -> None:
        """Bring the input to the state that call `number` sees; what the last call changed is put back first."""
        for cell, value in self._undo:
            _fill(cell, value)
        size, shape = self._tensor.numel(), self._tensor.shape
        place = (self._first + number * 2654435761) % size
        cell = _at(self._tensor, unravel(place, shape))
        value = _item(cell)
        self._undo = [(cell, value)]
        if self._floating:
            _fill(cell, perturbed(value, number) * self._factor)
        else:
            other = _at(self._tensor, unravel((place + 1 + number % (size - 1)) % size, shape))
            self._undo.append((other, _item(other)))
            _fill(cell, self._undo[1][1])
            _fill(other, value)


def changes(tensors: "list[torch.Tensor]", shares: "list[float | None]") -> "list[Change]":
    """A change for each input that has a share: where, as a part of its length, the first call's element lies."""
    return [Change(tensor, share) for tensor, share in zip(tensors, shares, strict=True) if share is not None]


def pad() -> torch.Tensor:
    """A block of random size, 64 bytes to 64 KiB, to be kept between the tensors of a timed process.

    Processes of one side do the same things in the same order and would otherwise all have the same addresses: how
    operands lie to each other (4 KiB aliasing, cache sets) is then a bias of the side and not of the process, and
    identical code "differs" by 2-5% with a narrow interval.
    """
    blocks = 1 + int.from_bytes(os.urandom(2), "little") % 1024
    return torch.empty(64 * blocks, dtype=torch.uint8)


class Timer:
    """Calls a model over one set of inputs, again and again, at new addresses for each slice."""

    def __init__(
        self,
        call: "Callable[..., Any]",
        arguments: "Callable[[list[torch.Tensor]], tuple[tuple[Any, ...], dict[str, Any]]]",
        given: "list[torch.Tensor]",
        shares: "list[float | None]",
    ) -> None:
        self._call, self._arguments, self._given, self._shares = call, arguments, given, shares
        self._pads: list[torch.Tensor] = []
        self.inputs: list[torch.Tensor] = []
        self.last: Any = None
        self.renew()
        gc.collect()
        gc.freeze()

    def renew(self) -> None:
        """Copy the inputs to other places, with their first content."""
        self.inputs, self.last, pads = [], None, [pad()]
        for tensor in self._given:
            self.inputs.append(precise.clone_strided(tensor))
            pads.append(pad())
        self._pads = pads  # the old ones are freed only now, so that the new inputs do not fall into their places
        self._args, self._kwargs = self._arguments(self.inputs)
        self._changes = changes(self.inputs, self._shares)

    def slice(self, calls: int, salt: int) -> "dict[str, Any]":
        """Nanoseconds of each call by wall and by processor time, and of the slice with the rewriting between calls."""
        spans: list[int] = []
        busy: list[int] = []
        call, args, kwargs, changing = self._call, self._args, self._kwargs, self._changes
        _collector_off()
        try:
            with torch.no_grad():
                began = _clock()
                for number in range(calls):
                    for change in changing:
                        change.apply(salt + number)
                    cpu_start = _cpu_clock()
                    start = _clock()
                    last = call(*args, **kwargs)
                    spans.append(_clock() - start)
                    busy.append(_cpu_clock() - cpu_start)
                total = _clock() - began
        finally:
            _collector_on()
        self.last = last
        return {"spans_ns": spans, "busy_ns": busy, "total_ns": total}


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
