"""What an evaluation says while it runs. Plain records below `events`, which turns them into transient events."""

from collections.abc import Callable
from typing import TypeAlias

from cuda_tui.records import Record


class Line(Record):
    """A line of a running build or worker."""

    source: str
    text: str


class StageBegan(Record):
    """A stage began: "policy", "build", "reference", "baselines", "verify", "measure", "attribute"."""

    stage: str
    detail: str = ""


class StageDone(Record):
    """A stage ended."""

    stage: str
    seconds: float
    summary: str = ""


class TrialDone(Record):
    """One trial of a verification."""

    name: str
    passed: bool
    detail: str = ""


class SliceDone(Record):
    """One process of one side was timed once more."""

    side: str
    process: int
    processes: int
    median_us: float


Progress: TypeAlias = Line | StageBegan | StageDone | TrialDone | SliceDone
Emit: TypeAlias = Callable[[Progress], None]
