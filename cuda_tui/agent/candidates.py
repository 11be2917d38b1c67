"""The durable events behind a tool's details: builds, candidates with their numbers, profiles."""

from collections.abc import Iterable
from dataclasses import dataclass

from cuda_tui.evaluation.report import NotMeasured
from cuda_tui.events import Built, CandidateEvaluated, Durable, Event, Profiled
from cuda_tui.messages import BuildDetails, ProfileDetails, ReportDetails, ToolCall, ToolResult
from cuda_tui.session.best import best_candidate


@dataclass
class Candidates:
    """The session's candidates so far. Measuring a candidate that was only verified keeps its number."""

    evaluated: list[CandidateEvaluated]

    @classmethod
    def of(cls, events: Iterable[Event]) -> "Candidates":
        """Those that a log holds."""
        return cls([event for event in events if isinstance(event, CandidateEvaluated)])

    @property
    def best(self) -> CandidateEvaluated | None:
        """The best faster one."""
        return best_candidate(self.evaluated)

    def events_of(self, call: ToolCall, result: ToolResult, *, commit: str | None) -> tuple[Durable, ...]:
        """The events that `result` stands for."""
        match result.details:
            case BuildDetails(build=build):
                return (Built(build=build),)
            case ReportDetails(report=report):
                label = str(call.arguments.get("label", ""))
                event = CandidateEvaluated(number=self._number(commit), report=report, commit=commit, label=label)
                self.evaluated.append(event)
                return (event,)
            case ProfileDetails(profile=profile):
                return (Profiled(profile=profile),)
            case _:
                return ()

    def _number(self, commit: str | None) -> int:
        if not self.evaluated:
            return 1
        last = self.evaluated[-1]
        same = commit is not None and last.commit == commit and isinstance(last.report.performance, NotMeasured)
        return last.number if same else max(event.number for event in self.evaluated) + 1
