"""The numeric rule: errors against fp64, normalised by the reference's spread, relative to eager's own error.

Error is ‖c−r‖/‖r−mean(r)‖ for a whole output and for each slice of its first dimension, and the largest element's
error over the RMS of r. A candidate may err eight times as much as eager did against the same reference (eager's
error pooled over the draws), never has to be better than four epsilons of the output's type, and never passes above
the task's cap. Outputs of under 64 elements are stacked over the draws, since one draw of a scalar has no spread.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import torch

EAGER_FACTOR = 8.0
EPSILONS = 4.0
ROUNDING_EPSILONS = 64.0  # instead of both, where there is no fp64 result and eager itself is the reference
DIFFUSE = 30.0  # rounding errs everywhere: its largest error is at most so many times the mean one
SMALL = 64
SMALL_ULPS = 8.0
SLICES = 4096  # more slices than this are not looked at one by one
WORST = 5
MAP_ROWS, MAP_COLUMNS = 12, 32


@dataclass
class Pool:
    """Eager's squared errors over the draws so far, by output: overall, worst slice, worst element."""

    whole: "list[float]" = field(default_factory=list)
    slices: "list[float]" = field(default_factory=list)
    peak: "list[float]" = field(default_factory=list)

    def add(self, errors: "Errors") -> None:
        self.whole.append(errors.whole)
        self.slices.append(errors.slices)
        self.peak.append(errors.peak)

    @staticmethod
    def rms(values: "list[float]") -> float:
        finite = [value for value in values if math.isfinite(value)]
        return math.sqrt(sum(value * value for value in finite) / len(finite)) if finite else 0.0


@dataclass
class Errors:
    """The three readings of one tensor against the reference."""

    whole: float
    slices: float
    peak: float


def measure(actual: torch.Tensor, reference: torch.Tensor, use: torch.Tensor) -> Errors:
    """Errors over the positions in `use` (finite on all sides). Integers and bools: 0 when equal, else infinite."""
    if not reference.is_floating_point():
        equal = bool(torch.equal(actual.to(reference.dtype), reference))
        return Errors(0.0, 0.0, 0.0) if equal else Errors(math.inf, math.inf, math.inf)
    c = torch.where(use, actual.double(), 0.0)
    r = torch.where(use, reference, 0.0)
    count = max(int(use.sum()), 1)
    difference = c - r
    mean = r.sum() / count
    spread = torch.where(use, r - mean, 0.0)
    scale = float(spread.norm())
    rms = float(r.norm()) / math.sqrt(count)
    whole = _over(float(difference.norm()), scale)
    peak = _over(float(difference.abs().max()) if difference.numel() else 0.0, rms)
    return Errors(whole, _slices(difference, spread, r.shape), peak)


def _slices(difference: torch.Tensor, spread: torch.Tensor, shape: torch.Size) -> float:
    """The worst slice along the first dimension. A slice far flatter than the whole is scaled by a tenth of it."""
    if len(shape) < 2 or not 1 < shape[0] <= SLICES or difference.numel() == 0:
        return 0.0
    error = difference.reshape(shape[0], -1).norm(dim=1)
    own = spread.reshape(shape[0], -1).norm(dim=1)
    floor = 0.1 * float(spread.norm()) / math.sqrt(shape[0])
    own = torch.clamp(own, min=floor)
    return float((error / own).max()) if floor > 0 else 0.0


def _over(error: float, scale: float) -> float:
    if error == 0.0:
        return 0.0
    return error / scale if scale > 0 else math.inf


def classes(tensor: torch.Tensor) -> torch.Tensor:
    """0 finite, 1 NaN, 2 +Inf, 3 -Inf, by position."""
    kinds = torch.zeros(tensor.shape, dtype=torch.int8, device=tensor.device)
    if tensor.is_floating_point():
        kinds[torch.isnan(tensor)] = 1
        kinds[torch.isposinf(tensor)] = 2
        kinds[torch.isneginf(tensor)] = 3
    return kinds


def check_output(
    candidate: torch.Tensor, reference: torch.Tensor, eager: torch.Tensor, pool: Pool, *, cap: float, exact: bool = True
) -> "dict[str, Any]":
    """Compare one tensor. Returns the fields of an OutputCheck, and `code` where it does not pass.

    `exact` says that the reference is an fp64 result and not eager's own.
    """
    kinds_r, kinds_e, kinds_c = classes(reference), classes(eager), classes(candidate)
    # Where eager and fp64 disagree on NaN or Inf (overflow of the narrower type) the position proves nothing.
    telling = kinds_r == kinds_e
    nonfinite = telling & (kinds_r != kinds_c)
    use = telling & (kinds_r == 0) & (kinds_c == 0)
    errors = measure(candidate, reference, use)
    eager_errors = measure(eager, reference, telling & (kinds_r == 0))
    small = reference.numel() < SMALL and reference.is_floating_point()
    epsilon = torch.finfo(eager.dtype).eps if eager.is_floating_point() else 0.0
    if not exact:
        epsilon *= ROUNDING_EPSILONS / EPSILONS
    usual = Pool.rms([*pool.whole, eager_errors.whole])
    # Where eager itself is beyond the cap the output is rounding error: it is held to eager's own and proves nothing.
    rounding_level = reference.is_floating_point() and usual > cap
    limit = max(EAGER_FACTOR * usual, EPSILONS * epsilon)
    limit = limit if rounding_level else min(limit, cap)
    result = {
        "dtype": str(eager.dtype).removeprefix("torch."),
        "shape": list(eager.shape),
        "error": errors.whole,
        "limit": limit,
        "eager_error": eager_errors.whole,
        "max_abs_error": _max_abs(candidate, reference, use),
        "nonfinite_mismatches": int(nonfinite.sum()),
        "worst": worst_elements(candidate, reference, nonfinite),
        "reason": "",
        "code": None,
        "passed": True,
        "rounding_level": rounding_level,
    }
    if result["nonfinite_mismatches"]:
        return _failed(result, "NONFINITE", "NaN or Inf stand at other places than in the reference")
    if small:
        # Judged over all draws in `check_stack`; one draw of a scalar has no spread to be measured by.
        result["error"], result["eager_error"] = errors.peak, eager_errors.peak
        result["limit"] = max(SMALL_ULPS * epsilon, EAGER_FACTOR * max([*pool.peak, eager_errors.peak]))
    else:
        slices = max(EAGER_FACTOR * Pool.rms([*pool.slices, eager_errors.slices]), EPSILONS * epsilon)
        slices = slices if rounding_level else min(slices, 10 * cap)
        ratio = _peak_ratio(reference, use)
        peak = max(EAGER_FACTOR * max([*pool.peak, eager_errors.peak]), EPSILONS * epsilon * max(ratio, 1.0))
        _judge(result, errors, (limit, slices, max(peak, 8 * limit)), candidate=candidate, reference=reference)
    if not result["passed"]:
        result["error_map"] = error_map(candidate, reference)
    return result


def _judge(
    result: "dict[str, Any]",
    errors: Errors,
    limits: "tuple[float, float, float]",
    *,
    candidate: torch.Tensor,
    reference: torch.Tensor,
) -> None:
    limit, slices, peak = limits
    spread = max(1.0, _peak_ratio(reference, torch.isfinite(reference) & torch.isfinite(candidate)))
    if errors.whole > limit or math.isnan(errors.whole):
        if constant := _trivial(candidate, reference):
            _failed(result, "NUM_MISMATCH", constant)
        elif not reference.is_floating_point():
            _failed(result, "NUM_MISMATCH", "integer values differ from the reference")
        elif errors.whole < 1e-2 and errors.slices < 4e-2 and errors.peak < DIFFUSE * errors.whole * spread:
            _failed(result, "PRECISION", f"error {errors.whole:.1e} everywhere is that of a lower precision")
        else:
            _failed(result, "NUM_MISMATCH", f"error {errors.whole:.1e} is above the limit {limit:.1e}")
    elif errors.slices > slices:
        result["error"], result["limit"] = errors.slices, slices
        _failed(result, "NUM_MISMATCH", f"one slice of the first dimension errs by {errors.slices:.1e}")
    elif errors.peak > peak:
        result["error"], result["limit"] = errors.peak, peak
        _failed(result, "NUM_MISMATCH", f"single elements err by {errors.peak:.1e} of the RMS")


def _failed(result: "dict[str, Any]", code: str, reason: str) -> "dict[str, Any]":
    result.update(passed=False, code=code, reason=reason)
    return result


def _trivial(candidate: torch.Tensor, reference: torch.Tensor) -> str:
    if candidate.numel() > 1 and bool((candidate == 0).all()):
        return "output is all zeros"
    if candidate.numel() > 1 and bool((candidate == candidate.reshape(-1)[0]).all()):
        return f"output is the constant {candidate.reshape(-1)[0].item():g}"
    return ""


def _peak_ratio(reference: torch.Tensor, use: torch.Tensor) -> float:
    if not reference.is_floating_point() or not reference.numel():
        return 1.0
    r = torch.where(use, reference, 0.0).abs()
    rms = float(r.norm()) / math.sqrt(max(int(use.sum()), 1))
    return float(r.max()) / rms if rms > 0 else 1.0


def _max_abs(candidate: torch.Tensor, reference: torch.Tensor, use: torch.Tensor) -> float:
    if not reference.numel():
        return 0.0
    return float(torch.where(use, (candidate.double() - reference.double()).abs(), 0.0).max())


def worst_elements(candidate: torch.Tensor, reference: torch.Tensor, nonfinite: torch.Tensor) -> "list[dict[str, Any]]":
    """The elements that differ most, non-finite disagreements first."""
    if not reference.numel():
        return []
    difference = (candidate.double() - reference.double()).abs()
    difference = torch.where(torch.isfinite(difference), difference, 0.0)
    difference = torch.where(nonfinite, math.inf, difference).reshape(-1)
    order = torch.topk(difference, min(WORST, difference.numel())).indices.tolist()
    rows = []
    for flat in order:
        index = [int(i) for i in torch.unravel_index(torch.tensor(flat), reference.shape)] if reference.dim() else []
        expected, actual = float(reference.reshape(-1)[flat]), float(candidate.reshape(-1)[flat])
        rows.append({"index": index, "expected": expected, "actual": actual})
    return rows


def error_map(candidate: torch.Tensor, reference: torch.Tensor) -> "list[list[float]]":
    """Largest |c−r| over RMS(r) in each block of a grid, the output seen as rows by its last dimension."""
    if reference.dim() == 0 or reference.numel() == 0:
        return []
    difference = (candidate.double() - reference.double()).abs()
    difference = torch.nan_to_num(difference, nan=0.0, posinf=0.0).reshape(-1, reference.shape[-1])
    rms = float(torch.nan_to_num(reference.double(), posinf=0.0, neginf=0.0).square().mean().sqrt()) or 1.0
    pooled = torch.nn.functional.adaptive_max_pool2d(
        difference[None], (min(MAP_ROWS, difference.shape[0]), min(MAP_COLUMNS, difference.shape[1]))
    )[0]
    return [[value / rms for value in row] for row in pooled.tolist()]


def check_stack(
    candidates: "list[torch.Tensor]", references: "list[torch.Tensor]", eagers: "list[torch.Tensor]", *, cap: float
) -> "dict[str, Any]":
    """Outputs of under 64 elements, stacked over all draws and normalised by their spread across draws.

    An element within 8 ulp of the reference, or within eight times eager's own pooled error, is right.
    """
    c = torch.stack([value.double().reshape(-1) for value in candidates])
    r = torch.stack([value.double().reshape(-1) for value in references])
    e = torch.stack([value.double().reshape(-1) for value in eagers])
    use = torch.isfinite(c) & torch.isfinite(r) & torch.isfinite(e)
    c, r, e = (torch.where(use, value, 0.0) for value in (c, r, e))
    epsilon = torch.finfo(eagers[0].dtype).eps
    spread = (r - r.mean(dim=0)).norm()
    eager_rms = (e - r).square().mean().sqrt()
    allowed = torch.maximum(SMALL_ULPS * epsilon * r.abs(), EAGER_FACTOR * eager_rms)
    error = float((c - r).norm() / spread) if spread > 0 else (0.0 if bool((c == r).all()) else math.inf)
    eager_error = float((e - r).norm() / spread) if spread > 0 else 0.0
    rounding_level = eager_error > cap
    limit = max(EAGER_FACTOR * eager_error, EPSILONS * epsilon)
    limit = limit if rounding_level else min(limit, cap)
    passed = bool(((c - r).abs() <= allowed).all()) or error <= limit
    return {
        "passed": passed,
        "error": error,
        "limit": limit,
        "eager_error": eager_error,
        "weak": rounding_level or bool(spread <= SMALL_ULPS * epsilon * r.norm()),
        "reason": "" if passed else f"over all draws the error is {error:.1e}, the limit {limit:.1e}",
    }
