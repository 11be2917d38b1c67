"""Time of a call on a GPU in queued batches, launches and Python included; also where no graph can be made."""

import time
from collections.abc import Callable
from typing import Any

import torch

from .graphs import MIN_SETS, Arguments, Sets, rewritten

_clock = time.perf_counter_ns


class BatchTimer:
    """Queued batches of calls between two events, for what cannot be captured; and wall time as called."""

    def __init__(
        self, call: "Callable[..., Any]", arguments: Arguments, given: "list[torch.Tensor]", changing: "list[bool]"
    ) -> None:
        self._call = call
        self._device = given[0].device if given else torch.device("cuda", torch.cuda.current_device())
        self._sets = Sets(given, MIN_SETS, changing)
        self._arguments = [arguments(self._sets.tensors(number)) for number in range(MIN_SETS)]
        self.calls = MIN_SETS
        self.last_output: Any = None
        self._last_seed = 0
        self.run(0)
        once_us = max(self.run(0)["wall_us"], 1.0)
        if self._unchanged(given, changing):  # else one call a set: a second one begins from what the first one left
            self.calls = int(max(MIN_SETS, min(200, 5000 / once_us)))

    def _unchanged(self, given: "list[torch.Tensor]", changing: "list[bool]") -> bool:
        """Whether the batch just run left the inputs of its first set as they were written."""
        meant = rewritten(given, changing, sets=MIN_SETS, number=0, seed=0, replay=0)
        return all(map(torch.equal, meant, self._sets.tensors(0)))

    def run(self, seed: int) -> "dict[str, Any]":
        """Microseconds a call by events and by the wall clock, of one batch on rewritten inputs."""
        self._sets.rewrite(seed, 0)
        torch.cuda.synchronize(self._device)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.no_grad():
            start.record()
            began = _clock()
            for number in range(self.calls):
                args, kwargs = self._arguments[number % MIN_SETS]
                result = self._call(*args, **kwargs)
            end.record()
            torch.cuda.synchronize(self._device)
            wall_ns = _clock() - began
        self.last_output, self._last_seed = result, seed
        event_us = float(start.elapsed_time(end)) * 1000
        return {"event_us": event_us / self.calls, "wall_us": wall_ns / 1000 / self.calls, "total_ns": wall_ns}

    def last(self) -> "tuple[Any, list[torch.Tensor], dict[str, int]]":
        """Output and inputs of the last call, and what they were made from."""
        number = (self.calls - 1) % MIN_SETS
        made_from = {"sets": MIN_SETS, "number": number, "seed": self._last_seed, "replay": 0}
        return self.last_output, self._sets.tensors(number), made_from
