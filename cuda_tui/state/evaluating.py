"""How builds, stages, verdicts and profiles change the state."""

from msgspec.structs import replace

from cuda_tui.evaluation.report import Profile
from cuda_tui.events import CandidateEvaluated, SliceMeasured, StageEnded, TrialChecked
from cuda_tui.state.model import (
    LOG_LINES,
    Candidate,
    LogLine,
    SliceProgress,
    Stage,
    State,
    TrialProgress,
    VerdictBlock,
)
from cuda_tui.state.talking import added


def candidate_evaluated(state: State, event: CandidateEvaluated) -> State:
    """A verdict: the candidate joins the list, and its build and profile become the latest."""
    report = event.report
    candidate = Candidate(number=event.number, report=report, at=state.now, label=event.label, commit=event.commit)
    state = replace(state, candidates=(*state.candidates, candidate), stages=(), trials=(), slices=())
    if report.build is not None and report.build != state.build:
        state = replace(state, build=report.build, builds=(*state.builds, report.build))
    if report.profile is not None:
        state = profiled(state, report.profile)
    return added(state, VerdictBlock(number=event.number))


def profiled(state: State, profile: Profile) -> State:
    """The latest profile of each subject is kept."""
    others = tuple(item for item in state.profiles if item.subject != profile.subject)
    return replace(state, profiles=(*others, profile))


def line_logged(state: State, source: str, text: str) -> State:
    """One more line; the oldest give way."""
    log = (*state.log, LogLine(source=source, text=text))
    excess = max(0, len(log) - LOG_LINES)
    return replace(state, log=log[excess:], log_dropped=state.log_dropped + excess)


def stage_started(state: State, name: str, detail: str) -> State:
    """A stage began. The stage of that name that ran before gives way, and so does the progress shown for it."""
    stages = tuple(stage for stage in state.stages if stage.name != name)
    state = replace(state, stages=(*stages, Stage(name=name, started_at=state.now, detail=detail)))
    if name == "verify":
        return replace(state, trials=())
    if name == "measure":
        return replace(state, slices=())
    return state


def stage_ended(state: State, event: StageEnded) -> State:
    """A stage ended; one that was never announced is shown as ended all the same."""
    ended = Stage(name=event.stage, started_at=state.now - event.seconds, seconds=event.seconds, summary=event.summary)
    stages = tuple(
        replace(stage, seconds=event.seconds, summary=event.summary) if stage.name == event.stage else stage
        for stage in state.stages
    )
    known = any(stage.name == event.stage for stage in stages)
    return replace(state, stages=stages if known else (*stages, ended))


def trial_checked(state: State, event: TrialChecked) -> State:
    """One trial of the running verification."""
    trial = TrialProgress(name=event.name, passed=event.passed, detail=event.detail)
    return replace(state, trials=(*state.trials, trial))


def slice_measured(state: State, event: SliceMeasured) -> State:
    """The latest progress of each side."""
    progress = SliceProgress(
        side=event.side, process=event.process, processes=event.processes, median_us=event.median_us
    )
    others = tuple(item for item in state.slices if item.side != event.side)
    return replace(state, slices=(*others, progress))
