"""policy → build → verify → measure → attribute; stops at the first failure."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from cuda_tui.evaluation.report import BuildReport, Profile, Report
from cuda_tui.workspace.task import Task

OnProgress: TypeAlias = Callable[[Any], None]


class Evaluator:
    """Evaluates the candidate in one workspace; keeps the oracle warm between calls. Blocking; use one thread.

    `on_progress` receives records of `evaluation.progress`. `cancel` may be called from another thread: the call
    under way then ends within two seconds with a report UNVERIFIED(CANCELLED), or raises Cancelled where there is
    no report to return.
    """

    task: Task

    def trace(self) -> dict[str, Any]:
        """The reference's operators. Raises ReferenceFault."""
        raise NotImplementedError

    def build(self) -> BuildReport:
        raise NotImplementedError

    def evaluate(self, *, stop_after: Literal["build", "verify", "measure"] = "measure") -> Report:
        raise NotImplementedError

    def profile(self, subject: Literal["reference", "candidate"]) -> Profile:
        raise NotImplementedError

    def cancel(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError
