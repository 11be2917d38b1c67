"""Checks of the skills' kernels against float64, run inside a workspace that holds them: `python checks.py NAME...`.

Each check yields (label, found, eager, exact). Prints one JSON line a check; a fault ends the process at the check that
was announced last. Standard library and torch only, nothing of cuda-tui on the path.
"""

import importlib
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional

Comparison = tuple[str, torch.Tensor, torch.Tensor, torch.Tensor]
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SOFTMAX_CASES = (  # path, rows, columns; path 0 chooses
    *((0, 5, 37), (0, 7, 1000), (0, 3, 16384), (0, 2, 32001), (0, 2, 131072), (0, 2, 300000), (0, 200, 8192)),
    *((1, 33, 256), (1, 1, 1024), (1, 3, 8), (2, 9, 8), (2, 5, 4096), (2, 3, 16384)),
    *((3, 3, 8192), (3, 2, 128000), (3, 1, 131072), (3, 2, 64), (4, 3, 4096), (4, 5, 50264)),
)
EPSILONS = 4  # the evaluator's floor: never better than four epsilons of the dtype is asked for
EAGER = 8  # and up to eight times eager's own error is allowed


def draw(*shape: int, dtype: torch.dtype = torch.float32, shift: float = 0.0) -> torch.Tensor:
    return (torch.randn(shape, device="cuda") + shift).to(dtype)


def offset(x: torch.Tensor) -> torch.Tensor:
    """The same values, contiguous, and one element off any alignment."""
    room = torch.empty(x.numel() + 1, dtype=x.dtype, device=x.device)
    room[1:] = x.flatten()
    return room[1:].view(x.shape)


def softmax_by_path(ours: Any) -> Iterator[Comparison]:
    for dtype, (path, rows, columns) in itertools.product(DTYPES, SOFTMAX_CASES):
        x = draw(rows, columns, dtype=dtype)
        x *= 4
        exact = torch.softmax(x.double(), -1)
        yield f"{dtype} path {path} {rows}x{columns}", ours.softmax(x, path), torch.softmax(x, -1), exact


def softmax_of_odd_values(ours: Any) -> Iterator[Comparison]:
    infinity = float("inf")
    for path, columns in ((1, 512), (2, 2048), (3, 65536), (4, 2048), (4, 2047)):
        x = draw(8, columns)
        x[1] = -infinity
        x[2, : columns // 2] = -infinity
        x[3, 5] = float("nan")
        x[4, 7] = infinity
        x[5] = -infinity
        x[5, columns - 1] = -300.0  # every other part of the row is empty, and exp(300) would overflow
        x[6] = -infinity
        x[6, 3] = float("nan")
        yield f"path {path}", ours.softmax(x, path), torch.softmax(x, -1), torch.softmax(x.double(), -1)
    for label, x in (("offset", offset(draw(6, 2048))), ("transposed", draw(640, 12).t())):
        yield label, ours.softmax(x), torch.softmax(x, -1), torch.softmax(x.double(), -1)


def cross_entropy(ours: Any) -> Iterator[Comparison]:
    for dtype, (rows, classes) in itertools.product(DTYPES, [(130, 10), (64, 1000), (70, 32001), (64, 128000)]):
        logits = draw(rows, classes, dtype=dtype)
        target = torch.randint(classes, (rows,), device="cuda")
        target[3] = -100
        logits[4, : classes // 2] = -float("inf")
        target[4] = classes - 1
        exact = functional.cross_entropy(logits.double(), target, reduction="none")
        eager = functional.cross_entropy(logits.float(), target, reduction="none")
        yield f"{dtype} {rows}x{classes}", ours.cross_entropy(logits, target), eager, exact


def sums(ours: Any) -> Iterator[Comparison]:
    for dtype, n in itertools.product(DTYPES, [1, 1000, 1 << 22, (1 << 20) + 3]):
        x, y = draw(8, n, dtype=dtype), draw(8, n, dtype=dtype)
        for label, left, right in (("", x, y), ("offset ", offset(x), offset(y))):
            found = torch.stack([ours.mse_loss(a, b) for a, b in zip(left, right, strict=True)])
            eager = ((left.float() - right.float()) ** 2).mean(-1).to(dtype)
            exact = ((left.double() - right.double()) ** 2).mean(-1)
            yield f"mse {label}{dtype} {n}", found, eager, exact
    for dtype, (rows, columns) in itertools.product(DTYPES, [(1, 64), (0, 64), (100000, 8), (4096, 4096), (3000, 33)]):
        x = draw(rows, columns, dtype=dtype, shift=0.5)
        yield f"columns {dtype} {rows}x{columns}", ours.column_sum(x), x.sum(0), x.double().sum(0)
    x, y = draw(1 << 20), draw(1 << 20)
    first = ours.mse_loss(x, y)
    same = torch.stack([ours.mse_loss(x, y) == first for _ in range(20)])
    yield "mse gives the same bits", same, torch.ones_like(same), torch.ones_like(same)


def norms(ours: Any) -> Iterator[Comparison]:
    for dtype, columns, centred in itertools.product(DTYPES, [24, 33, 1024, 4096, 5120, 16384], [False, True]):
        x, residual = draw(37, columns, dtype=dtype, shift=2.0), draw(37, columns, dtype=dtype)
        weight, bias = draw(columns, dtype=dtype), draw(columns, dtype=dtype) if centred else None

        def eager(v: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
            shape = (v.shape[-1],)
            return functional.rms_norm(v, shape, w, 1e-5) if b is None else functional.layer_norm(v, shape, w, b, 1e-5)

        total = x + residual
        exact = eager(total.double(), weight.double(), None if bias is None else bias.double())
        out, ours_total = ours.add_norm(x, residual, weight, bias, 1e-5)
        label = f"{dtype} {columns} {'layer' if centred else 'rms'}"
        yield label, out, eager(total, weight, bias), exact
        yield label + " total", ours_total, total, x.double() + residual.double()
        yield label + " alone", ours.norm(total, weight, bias, 1e-5), eager(total, weight, bias), exact
        yield label + " offset", ours.norm(offset(total), weight, bias, 1e-5), eager(total, weight, bias), exact


def moments(ours: Any) -> Iterator[Comparison]:
    for shift, columns in itertools.product((0.0, 100.0), (1, 33, 100000)):
        x = draw(9, columns, shift=shift)
        for number, name in enumerate(("mean", "variance")):
            exact = (x.double().mean(-1), x.double().var(-1, correction=0))[number]
            eager = (x.mean(-1), x.var(-1, correction=0))[number]
            yield f"{name} {columns} at {shift}", ours.moments(x)[:, number], eager, exact


def pointwise(ours: Any) -> Iterator[Comparison]:
    for dtype, n in itertools.product(DTYPES, [0, 1, 7, 4096, (1 << 22) + 5]):
        gate, up = draw(n, dtype=dtype), draw(n, dtype=dtype)
        for label, a, b in (("", gate, up), ("offset ", offset(gate), offset(up))):
            exact = functional.silu(a.double()) * b.double()
            yield f"silu_mul {label}{dtype} {n}", ours.silu_mul(a, b), functional.silu(a) * b, exact
    x, bias = draw(1000, 777), draw(777)
    exact = (x.double() + bias.double()).t()
    yield "transpose_add", ours.transpose_add(x, bias), (x + bias).t().contiguous(), exact
    x, scale, shift = draw(5, 7, 33, 3), draw(7), draw(7)
    wide = (scale.double().view(-1, 1, 1), shift.double().view(-1, 1, 1))
    eager = x * scale.view(-1, 1, 1) + shift.view(-1, 1, 1)
    yield "scale_shift", ours.scale_shift(x, scale, shift), eager, x.double() * wide[0] + wide[1]


def products(ours: Any) -> Iterator[Comparison]:
    for dtype, (rows, inner, columns) in itertools.product(DTYPES, [(64, 128, 256), (7, 40, 33), (4096, 1024, 4096)]):
        x, weight, bias = (
            draw(2, rows, inner, dtype=dtype),
            draw(columns, inner, dtype=dtype),
            draw(columns, dtype=dtype),
        )
        weight *= inner**-0.5
        exact = functional.gelu(functional.linear(x.double(), weight.double(), bias.double()))
        eager = functional.gelu(functional.linear(x, weight, bias))
        label = f"{dtype} {rows}x{inner}x{columns}"
        yield f"linear_gelu {label}", ours.linear_gelu(x, weight, bias), eager, exact
        up, down = draw(columns, inner, dtype=dtype) * inner**-0.5, draw(inner, columns, dtype=dtype) * columns**-0.5
        bias = draw(inner, dtype=dtype)
        found = ours.gated_mlp(x, weight, up, down, bias)
        linear = functional.linear
        eager = linear(functional.silu(linear(x, weight)) * linear(x, up), down, bias)
        wide = [v.double() for v in (x, weight, up, down, bias)]
        exact = linear(functional.silu(linear(wide[0], wide[1])) * linear(wide[0], wide[2]), wide[3], wide[4])
        yield f"gated_mlp {label}", found, eager, exact


def tensor_cores(ours: Any) -> Iterator[Comparison]:
    shapes = [(128, 256, 64), (256, 512, 1024), (1, 8, 8), (77, 264, 72), (1000, 1048, 520), (2048, 4096, 1024)]
    for (m, n, k), name in itertools.product(shapes, ("mma_linear_gelu", "wgmma_linear_gelu")):
        x, bias = draw(m, k, dtype=torch.bfloat16), draw(n, dtype=torch.bfloat16)
        w = draw(n, k, dtype=torch.bfloat16) * k**-0.5
        exact = functional.gelu(functional.linear(x.double(), w.double(), bias.double()))
        found = getattr(ours, name)(x, w, bias)
        yield f"{name} {m}x{n}x{k}", found, functional.gelu(functional.linear(x, w, bias)), exact


CHECKS: dict[str, Callable[[Any], Iterator[Comparison]]] = {
    check.__name__: check
    for check in (
        softmax_by_path,
        softmax_of_odd_values,
        cross_entropy,
        sums,
        norms,
        moments,
        pointwise,
        products,
        tensor_cores,
    )
}


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Relative error over the positions that are finite in `exact`."""
    use = exact.isfinite()
    difference, size = (found.double() - exact)[use].norm(), exact[use].norm()
    return float(difference / size.clamp_min(1e-300)) if use.any() else 0.0


def problem(comparison: Comparison) -> str | None:
    """What is wrong with a kernel's result by the evaluator's rule, in words."""
    label, found, eager, exact = comparison
    if found.shape != exact.shape:
        return f"{label}: shape {tuple(found.shape)}, not {tuple(exact.shape)}"
    if not exact.is_floating_point():
        return None if torch.equal(found, exact) else f"{label}: differs"
    if not torch.equal(found.isnan(), eager.isnan()) or not torch.equal(found.isinf(), eager.isinf()):
        return f"{label}: NaN or infinity elsewhere than in eager"
    if exact.numel() == 0:
        return None
    ours, theirs = error(found, exact), error(eager, exact)
    limit = max(EAGER * theirs, EPSILONS * torch.finfo(found.dtype).eps)
    return None if ours <= limit else f"{label}: error {ours:.2e}, allowed {limit:.2e}, eager {theirs:.2e}"


def say(record: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


def main(names: list[str]) -> None:
    ours = importlib.import_module("cuda_extension")  # the workspace's; it is not there where this file is kept
    torch.manual_seed(0)
    with torch.no_grad():
        for name in names or CHECKS:
            say({"started": name})
            count, problems = 0, []
            for comparison in CHECKS[name](ours):
                count += 1
                problems += [text for text in [problem(comparison)] if text is not None]
            torch.cuda.synchronize()
            say({"check": name, "comparisons": count, "problems": problems})


if __name__ == "__main__":
    main(sys.argv[1:])
