"""Verification: fresh draws at the timed shapes, redrawn state, special values; every output compared."""

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from cuda_tui.errors import Cancelled
from cuda_tui.evaluation import training
from cuda_tui.evaluation.candidate import Candidate, CandidateProcess, Rejected
from cuda_tui.evaluation.forms import FormDraws, FormTrials
from cuda_tui.evaluation.progress import Emit, TrialDone
from cuda_tui.evaluation.reference import Draw, Reference
from cuda_tui.evaluation.report import Flag, Trial, VerifyReport


class TrialPlan:
    """What one trial draws."""

    def __init__(
        self, label: str, *, redraw_state: bool = False, special: bool = False, elsewhere: bool = False
    ) -> None:
        self.label = label
        self.redraw_state = redraw_state
        self.special = special
        self.elsewhere = elsewhere


ELSEWHERE = TrialPlan("another GPU is the current one", elsewhere=True)


def plan_trials(draws: int) -> list[TrialPlan]:
    """`draws` fresh draws, two of them with redrawn state, and one with NaN and infinities among the inputs.

    State is redrawn before the first call: a candidate that copies parameters when constructed is then found out.
    """
    trials = [TrialPlan("draw 1, state redrawn", redraw_state=True)]
    for number in range(2, draws + 1):
        redrawn = number == draws and draws > 1
        label = f"draw {number}, state redrawn" if redrawn else f"draw {number}"
        trials.append(TrialPlan(label, redraw_state=redrawn))
    return [*trials, TrialPlan("NaN and infinities", special=True)]


@dataclass
class Drawn:
    """All that one verification is made on."""

    trials: list[tuple[TrialPlan, Draw]]
    forms: FormDraws

    @property
    def draws(self) -> list[Draw]:
        """Every draw, a base after the ones that are like it."""
        return [*(draw for _, draw in self.trials), *self.forms.draws, self.forms.base]


class DrawPool:
    """Draws made ahead, with their references ready, each shown to one candidate and then dropped."""

    def __init__(self, reference: Reference, draws: int) -> None:
        self._reference = reference
        self._plans = plan_trials(draws)
        self._ready: list[tuple[TrialPlan, Draw]] = []
        self._forms: FormDraws | None = None
        self._lock = threading.Lock()

    def fill(self, cancel: threading.Event | None = None) -> FormDraws | None:
        """Make what is missing for one verification. Returns the forms of it; None where it was cancelled."""
        with self._lock:
            self._reference.start(cancel)
            # The answers of a draw live in the oracle that made it.
            made = [draw for _, draw in self._ready] + ([self._forms.base] if self._forms else [])
            if any(draw.generation != self._reference.generation for draw in made):
                self._ready, self._forms = [], None
            plans = [*self._plans, *([ELSEWHERE] if self._reference.facts["gpus"] > 1 else [])]
            for plan in plans[len(self._ready) :]:
                if cancel is not None and cancel.is_set():
                    return None
                seed = secrets.randbits(48) if plan.redraw_state else None
                draw = self._reference.draw(state_seed=seed, special=plan.special, cancel=cancel)
                self._ready.append((plan, draw))
            if self._forms is None:
                self._forms = FormDraws.make(self._reference, cancel)
            return self._forms

    def take(self, cancel: threading.Event | None = None) -> Drawn:
        """A whole set; made now where it is not ready. Raises Cancelled."""
        forms = self.fill(cancel)
        if forms is None:
            raise Cancelled("the draws were cancelled")
        with self._lock:
            ready, self._ready, self._forms = self._ready, [], None
        return Drawn(ready, forms)


@dataclass
class Verified:
    """What one verification found."""

    report: VerifyReport
    failed: Trial | None
    flags: tuple[Flag, ...]
    seeds: tuple[int, ...]  # that were spent


def verify(
    candidate: Candidate,
    reference: Reference,
    pool: DrawPool,
    *,
    emit: Emit,
    cancel: threading.Event | None,
    name_fault: Callable[[Candidate, Draw, Rejected], Rejected],
) -> Verified:
    """Run all trials, stopping at the first that fails.

    `name_fault` adds where a fault happened to what is said of it. Raises Rejected where the candidate fails other
    than on a trial.
    """
    began = time.monotonic()
    drawn = pool.take(cancel)
    reference.forget_stacks()
    made: list[Draw] = []
    flags: dict[str, Flag] = {}
    trials: list[Trial] = []
    try:
        with candidate.process(cancel=cancel) as running:
            naming = partial(name_fault, candidate)
            for plan, draw in drawn.trials:
                if refused := draw.written.get("refused"):
                    # The reference itself cannot take these inputs, so nothing can be asked of the candidate.
                    text = f'the trial "{plan.label}" was not made: the reference raises {refused}'
                    flags[f"SKIPPED {plan.label}"] = Flag(code="SKIPPED_TRIAL", message=text)
                    continue
                try:
                    trial = _one(running, reference, plan, draw, flags=flags, cancel=cancel)
                except Rejected as rejected:
                    found = naming(draw, rejected)
                    trial = Trial(name=plan.label, checks=(), passed=False, code=found.code, reason=found.reason)
                trials.append(trial)
                emit(TrialDone(name=plan.label, passed=trial.passed, detail=trial.reason or _detail(trial)))
                if not trial.passed:
                    break
            forms = FormTrials(running, reference, emit, naming, cancel, made=made)
            if all(trial.passed for trial in trials):
                forms.run(drawn.forms)
            trials += forms.trials
            if all(trial.passed for trial in trials):
                found_gradients = _gradients(running, reference, drawn.forms.base, naming)
                trials += [found_gradients] if isinstance(found_gradients, Trial) else []
                flags |= {found_gradients.code: found_gradients} if isinstance(found_gradients, Flag) else {}
        stacked = reference.check_stacks()
        if stacked is not None and all(trial.passed for trial in trials):
            trials.append(stacked)
            emit(TrialDone(name=stacked.name, passed=stacked.passed, detail=stacked.reason))
    finally:
        for draw in [*made, *drawn.draws]:
            reference.spend(draw)
    failed = next((trial for trial in trials if not trial.passed), None)
    report = _report(trials, forms, reference, seconds=time.monotonic() - began)
    flags |= _weak_flags(reference)
    return Verified(report, failed, (*flags.values(), *forms.flags), tuple(draw.seed for _, draw in drawn.trials))


def _gradients(
    running: CandidateProcess, reference: Reference, draw: Draw, naming: Callable[[Draw, Rejected], Rejected]
) -> Trial | Flag | None:
    try:
        return training.check(running, reference, draw)
    except Rejected as rejected:
        found = naming(draw, rejected)
        return Trial(name="gradients", checks=(), passed=False, code=found.code, reason=found.reason)


def _report(trials: list[Trial], forms: FormTrials, reference: Reference, *, seconds: float) -> VerifyReport:
    compared = sum(len(trial.checks) for trial in trials)
    return VerifyReport(
        passed=all(trial.passed for trial in trials) and compared > 0,
        trials=tuple(trials),
        tensors_compared=compared,
        seconds=seconds,
        not_compared=tuple(reference.facts.get("not_compared", ())),
        reference_dtype=str(reference.facts.get("reference_dtype", "float64")),
        forms=tuple(forms.checks),
    )


def _weak_flags(reference: Reference) -> dict[str, Flag]:
    """Outputs that prove nothing."""
    if not reference.weak:
        return {}
    whole = set(reference.facts["outputs"]) <= reference.weak
    text = f"{', '.join(sorted(reference.weak))}: no variation from draw to draw beyond rounding"
    code = "DEGENERATE_TASK" if whole else "CONSTANT_OUTPUT"
    return {code: Flag(code=code, message=text)}


def _one(
    running: CandidateProcess,
    reference: Reference,
    plan: TrialPlan,
    draw: Draw,
    *,
    flags: dict[str, Flag],
    cancel: threading.Event | None,
) -> Trial:
    running.set_state(draw)
    outputs, answer = running.run(draw, elsewhere=plan.elsewhere)
    for path, owner in answer["alias"].items():
        flags[f"ALIAS {path}"] = Flag(code="ALIAS", message=f"{path} shares memory with {owner}")
    return reference.compare(draw, outputs, answer, label=plan.label, cancel=cancel)


def _detail(trial: Trial) -> str:
    """The tightest comparison of a trial, in words."""
    tight = max(trial.checks, key=lambda check: float(check.error) / check.limit if check.limit else 0.0, default=None)
    if tight is None:
        return ""
    return f"{tight.output} error {float(tight.error):.1e}, limit {tight.limit:.1e}"
