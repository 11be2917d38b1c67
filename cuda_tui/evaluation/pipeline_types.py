"""Types shared by the stages."""

from collections.abc import Callable
from typing import TypeAlias

from cuda_tui.evaluation.progress import Progress

Emit: TypeAlias = Callable[[Progress], None]
