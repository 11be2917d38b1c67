"""Trials on inputs in other forms: verified, not taken by the candidate, or wrong, which rejects it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from cuda_tui.evaluation.candidate import CandidateProcess, Rejected
from cuda_tui.evaluation.progress import Emit, TrialDone
from cuda_tui.evaluation.reference import Draw, Reference
from cuda_tui.evaluation.report import FORM_WORDS, Code, Flag, FormCheck, Trial


@dataclass
class FormDraws:
    """One draw in the usual form and its likes in others, made ahead. `inputs` says which inputs have each form."""

    base: Draw
    draws: tuple[Draw, ...]
    excluded: tuple[str, ...] = ()

    @classmethod
    def make(cls, reference: Reference, cancel: threading.Event | None = None) -> "FormDraws":
        """Draws for each form that the task wants and any input has."""
        there: dict[str, list[int]] = reference.facts["forms"]
        wanted = [form for form in reference.task.forms if form in there]
        base = reference.draw(cancel=cancel)
        draws = tuple(reference.draw_form(base, form, cancel=cancel) for form in wanted)
        return cls(base, draws, tuple(form for form in there if form not in wanted))


@dataclass
class FormTrials:
    """The trials of one candidate process. The first that is wrong is the last."""

    running: CandidateProcess
    reference: Reference
    emit: Emit
    name_fault: Callable[[Draw, Rejected], Rejected]
    cancel: threading.Event | None = None
    checks: list[FormCheck] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    flags: list[Flag] = field(default_factory=list)
    made: list[Draw] = field(default_factory=list)  # single inputs in a form, to find the one that matters

    def run(self, drawn: FormDraws) -> None:
        """All forms, in order."""
        self.checks += [
            FormCheck(form=form, outcome="not tried", inputs=(), message="excluded by task.toml")
            for form in drawn.excluded
        ]
        if drawn.draws:
            self.running.set_state(drawn.base)
        for draw in drawn.draws:
            if not self._form(drawn.base, draw):
                return

    def _form(self, base: Draw, draw: Draw) -> bool:
        """One form; False where it is wrong."""
        if refused := draw.written.get("refused"):
            words = FORM_WORDS[draw.form]
            text = f'inputs in the form "{words}" were not tried: the reference raises {refused}'
            self.flags.append(Flag(code="SKIPPED_FORM", message=text))
            self._check(draw, "not tried", "the reference refuses it")
            return True
        found = self._one(draw)
        if isinstance(found, Trial) and found.passed:
            self._done(found)
            self._check(draw, "verified")
            return True
        if isinstance(found, str) and len(_inputs(draw)) == 1:
            self._check(draw, "refused", found)
            return True
        if isinstance(found, str):
            return self._singly(base, draw)
        return self._failed(found, draw if found.code in _ENDED else self._culprit(base, draw))

    def _singly(self, base: Draw, draw: Draw) -> bool:
        """After a refusal: each input alone, so that the others are tried all the same."""
        verified: list[int] = []
        for number in _inputs(draw):
            single = self._alone(base, draw, number)
            found = self._one(single)
            if isinstance(found, str):
                self._check(single, "refused", found)
            elif found.passed:
                self._done(found)
                verified.append(number)
            else:
                return self._failed(found, single)
        if verified:
            self.checks.append(FormCheck(form=draw.form, outcome="verified", inputs=tuple(verified)))
        return True

    def _culprit(self, base: Draw, draw: Draw) -> Draw:
        """After a wrong result: the first input that makes it wrong alone, else all of them."""
        if len(_inputs(draw)) == 1:
            return draw
        for number in _inputs(draw):
            single = self._alone(base, draw, number)
            found = self._one(single)
            if isinstance(found, Trial) and not found.passed:
                return single
        return draw

    def _alone(self, base: Draw, draw: Draw, number: int) -> Draw:
        single = self.reference.draw_form(base, draw.form, only=number, cancel=self.cancel)
        self.made.append(single)
        return single

    def _one(self, draw: Draw) -> Trial | str:
        """One call, compared; or the candidate's words where it refuses."""
        label = _label(draw)
        try:
            outputs, answer = self.running.run(draw)
        except Rejected as rejected:
            if rejected.refusal:
                return rejected.refusal
            found = self.name_fault(draw, rejected)
            return Trial(name=label, checks=(), passed=False, code=found.code, reason=found.reason)
        return self.reference.compare(draw, outputs, answer, label=label, cancel=self.cancel)

    def _failed(self, trial: Trial, draw: Draw) -> bool:
        self._done(msgspec.structs.replace(trial, name=f"fails on {_label(draw)}"))
        return False

    def _done(self, trial: Trial) -> None:
        self.trials.append(trial)
        self.emit(TrialDone(name=trial.name, passed=trial.passed, detail=trial.reason))

    def _check(self, draw: Draw, outcome: Literal["verified", "refused", "not tried"], message: str = "") -> None:
        self.checks.append(FormCheck(form=draw.form, outcome=outcome, inputs=_inputs(draw), message=message))


_ENDED = frozenset({Code.MEM_FAULT, Code.HANG, Code.FORGED_RESULT})  # there is no process to ask any more


def _inputs(draw: Draw) -> tuple[int, ...]:
    return tuple(draw.written.get("inputs", ()))


def _label(draw: Draw) -> str:
    """ "offset views of inputs 0, 1"."""
    return FormCheck(form=draw.form, outcome="verified", inputs=_inputs(draw)).text
