"""Errors of the forms that the skill numerics-and-precision compares, against float64, for scripts/skills_bench.py."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

FORMS: dict[str, tuple[int, Callable[[torch.Tensor], torch.Tensor], float, float]] = {
    "expf, |x| < 1": (0, torch.exp, -1.0, 1.0),
    "__expf, |x| < 1": (1, torch.exp, -1.0, 1.0),
    "expf, |x| < 80": (0, torch.exp, -80.0, 80.0),
    "__expf, |x| < 80": (1, torch.exp, -80.0, 80.0),
    "tanhf, |x| < 4": (2, torch.tanh, -4.0, 4.0),
    "tanh.approx, |x| < 4": (3, torch.tanh, -4.0, 4.0),
    "1 - 2 / (__expf(2x) + 1), |x| < 4": (4, torch.tanh, -4.0, 4.0),
    "1 - 2 / (__expf(2x) + 1), |x| < 1e-3": (4, torch.tanh, -1e-3, 1e-3),
    "rsqrtf": (5, torch.rsqrt, 1e-3, 1e3),
    "1 / sqrtf": (6, torch.rsqrt, 1e-3, 1e3),
    "logf, 0.5 to 2": (7, torch.log, 0.5, 2.0),
    "__logf, 0.5 to 2": (8, torch.log, 0.5, 2.0),
    "silu by expf, |x| < 20": (9, torch.nn.functional.silu, -20.0, 20.0),
    "silu by __expf and __fdividef, |x| < 20": (10, torch.nn.functional.silu, -20.0, 20.0),
    "gelu by erff, |x| < 1e-3": (11, torch.nn.functional.gelu, -1e-3, 1e-3),
    "gelu by erff, |x| < 4": (11, torch.nn.functional.gelu, -4.0, 4.0),
}


def errors(found: torch.Tensor, exact: torch.Tensor) -> str:
    """The evaluator's error, and the largest single one in ulp of the exact value."""
    difference = (found.double() - exact).abs()
    ulp = exact.abs().clamp_min(torch.finfo(torch.float32).tiny).log2().floor().exp2() * torch.finfo(torch.float32).eps
    relative = difference.norm() / (exact - exact.mean()).norm()
    return f"relative {float(relative):.1e}, worst {float((difference / ulp).max()):.1f} ulp"


def exact_forms(ours: Any) -> dict[str, str]:
    """One function of 2^24 values, uniform in each form's range."""
    results = {}
    for name, (which, reference, low, high) in FORMS.items():
        x = torch.rand(1 << 24, device="cuda") * (high - low) + low
        results[name] = errors(ours.variant_form(x, which), reference(x.double()))
    return results


def variance_forms(ours: Any) -> dict[str, str]:
    """Relative error of a row's variance, by form and by the mean in units of the deviation; worst of 512 rows."""
    results = {}
    for ratio in (0.0, 10.0, 1e3, 1e4):
        x = torch.randn(512, 8192, device="cuda") + ratio
        exact = x.double().var(-1, correction=0)
        for which, name in enumerate(("E[x^2] - mean^2", "centred second pass", "Welford and Chan")):
            worst = ((ours.variant_variance(x, which).double() - exact) / exact).abs().max()
            results[f"variance, mean {ratio:g} deviations: {name}"] = f"relative {float(worst):.1e}"
    tall = torch.rand(1 << 20, device="cuda") + 0.5
    exact = tall.double().sum()
    for name, found in (
        ("float32, torch", tall.sum()),
        ("bfloat16 input, float32 sum", tall.bfloat16().sum(dtype=torch.float32)),
        ("one float32 accumulator", np.cumsum(tall.cpu().numpy(), dtype=np.float32)[-1]),
    ):
        results[f"sum of 2^20: {name}"] = f"relative {abs(float(found) / float(exact) - 1):.1e}"
    a, b = torch.randn(4096, 4096, device="cuda"), torch.randn(4096, 4096, device="cuda")
    exact = a.double() @ b.double()
    before = torch.backends.cuda.matmul.allow_tf32
    for name, found in (("float32", a @ b), ("bfloat16", (a.bfloat16() @ b.bfloat16()).double())):
        results[f"product 4096^3: {name}"] = errors(found, exact)
    torch.backends.cuda.matmul.allow_tf32 = True
    results["product 4096^3: TF32"] = errors(a @ b, exact)
    torch.backends.cuda.matmul.allow_tf32 = before
    return results
