"""Whether gradients pass through a candidate, and in mode "train" whether they are the reference's."""

import secrets

from cuda_tui.evaluation.candidate import CandidateProcess, Rejected
from cuda_tui.evaluation.reference import Draw, Reference
from cuda_tui.evaluation.report import Flag, Trial

INFERENCE_ONLY = "INFERENCE_ONLY"


def check(running: CandidateProcess, reference: Reference, draw: Draw) -> Trial | Flag | None:
    """A trial in mode "train"; in mode "eval" a flag where gradients stop. None where the reference has none either.

    The candidate's state must be the draw's. Nothing may be asked of the process afterwards. Raises Rejected where
    the candidate fails in mode "train".
    """
    wanted: list[str] = reference.facts["gradients"]
    if not wanted:
        return None
    seed, training = secrets.randbits(48), reference.task.mode == "train"
    try:
        path, answer = running.gradients(draw, wrt_inputs=training, seed=seed)
    except Rejected as rejected:
        if training:
            raise
        return _flag(f"a call with gradients fails: {rejected.reason}")
    if training:
        return reference.compare_gradients(draw, path, answer, seed=seed)
    missing = [name for name in wanted if name not in answer["names"]]
    if not missing:
        return None
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    return _flag(f"outputs carry no grad for {', '.join(missing[:3])}{more}")


def _flag(why: str) -> Flag:
    return Flag(code=INFERENCE_ONLY, message=f"gradients stop at this candidate: {why}")
