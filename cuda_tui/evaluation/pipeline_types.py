"""Types shared by the stages."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from cuda_tui.evaluation.progress import Progress

Emit: TypeAlias = Callable[[Progress], None]


@dataclass(frozen=True)
class Timed:
    """A process that is ready for timing: give its inputs new addresses, and time (calls, salt)."""

    renew: Callable[[], object]
    time_slice: Callable[[int, int], dict[str, Any]]
