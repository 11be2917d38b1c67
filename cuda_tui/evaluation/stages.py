"""The stages of one evaluation: each is timed, and announced when it begins and ends."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cuda_tui.evaluation.progress import Emit, StageBegan, StageDone
from cuda_tui.evaluation.report import StageTiming


class Stages:
    """Wall times of the stages so far."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._timings: list[StageTiming] = []

    @contextmanager
    def stage(self, name: str) -> Iterator[Callable[[str], None]]:
        """Time a stage, also one that raises. What is yielded takes the one line that sums it up."""
        began = time.monotonic()
        summary = [""]
        self._emit(StageBegan(stage=name))
        try:
            yield lambda text: summary.__setitem__(0, text)
        finally:
            seconds = time.monotonic() - began
            self._timings.append(StageTiming(stage=name, seconds=round(seconds, 3)))
            self._emit(StageDone(stage=name, seconds=seconds, summary=summary[0]))

    @property
    def timings(self) -> tuple[StageTiming, ...]:
        """In the order in which the stages ended."""
        return tuple(self._timings)
