"""A maximum and a sum of exponentials below it, found in one walk instead of two (online softmax).

Where a row does not stay on chip, each walk over it is paid in memory traffic. A running pair (largest value so far,
sum of exponentials below it) needs one walk: when the maximum grows, the sum is scaled down once.
"""

import math
from dataclasses import dataclass, replace

from cuda_tui.autopilot.plan import Plan
from cuda_tui.autopilot.scalar import Literal, Op, Red, Scalar, children

MAXIMA = ("max", "softmax_max")


@dataclass(frozen=True, eq=False)
class Pair:
    """One running pair over `arg`: the maxima it replaces, sums of exp(arg - max), and sums of exp(arg - finite max),
    where the maximum counts as 0 if it is infinite (logsumexp)."""

    arg: Scalar
    maxima: tuple[Red, ...]
    sums: tuple[Red, ...]
    finite_sums: tuple[Red, ...]

    @property
    def reds(self) -> tuple[Red, ...]:
        return (*self.maxima, *self.sums, *self.finite_sums)


def joined_walks(plan: Plan) -> tuple[Plan, tuple[Pair, ...]]:
    """The plan with each sum in the walk of its maximum, and the pairs that make that possible."""
    found: dict[Scalar, dict[str, list[Red]]] = {}
    for red in plan.reds:
        matched = _below_maximum(red)
        if matched is not None:
            top, kind = matched
            groups = found.setdefault(top.arg, {"sum": [], "finite": []})
            groups[kind].append(red)
    pairs = tuple(
        Pair(arg, tuple(red for red in plan.reds if red.op in MAXIMA and red.arg is arg), tuple(groups["sum"]),
             tuple(groups["finite"]))
        for arg, groups in found.items()
    )  # fmt: skip
    if not pairs:
        return plan, ()
    return replace(plan, levels=_levels(plan, pairs)), pairs


def _below_maximum(red: Red) -> tuple[Red, str] | None:
    """The maximum of a sum of exp(x - max(x)), and whether the maximum is made finite first."""
    arg = red.arg
    if red.op != "sum" or not (isinstance(arg, Op) and arg.op == "exp"):
        return None
    distance = arg.args[0]
    if not (isinstance(distance, Op) and distance.op == "sub" and len(distance.args) == 2):
        return None
    x, shift = distance.args
    if isinstance(shift, Red) and shift.op in MAXIMA and shift.arg is x and shift.over == red.over:
        return shift, "sum"
    top = _made_finite(shift)
    return (top, "finite") if top is not None and top.arg is x and top.over == red.over else None


def _made_finite(shift: Scalar) -> Red | None:
    """The maximum in where(abs(max) == inf, 0, max)."""
    if not (isinstance(shift, Op) and shift.op == "where"):
        return None
    test, zero, top = shift.args
    if not (isinstance(top, Red) and top.op == "max" and isinstance(zero, Literal) and zero.value == 0):
        return None
    if not (isinstance(test, Op) and test.op == "eq"):
        return None
    size, bound = test.args
    infinite = isinstance(bound, Literal) and bound.value == math.inf
    return top if infinite and isinstance(size, Op) and size.op == "abs" and size.args[0] is top else None


def _levels(plan: Plan, pairs: tuple[Pair, ...]) -> dict[Scalar, int]:
    early = {red: pair.arg for pair in pairs for red in pair.reds}
    levels: dict[Scalar, int] = {}
    for scalar in plan.levels:  # operands come first
        below = (early[scalar],) if isinstance(scalar, Red) and scalar in early else children(scalar)
        level = max((levels[child] for child in below), default=0)
        levels[scalar] = level + 1 if isinstance(scalar, Red) else level
    return levels
