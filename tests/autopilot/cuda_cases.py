"""More cases for CUDA: sizes that allow vectors, 16-bit numbers, long rows and columns; and forms to force on them."""

from cuda_tui.autopilot.cuda_shape import CudaTuning, Form
from tests.autopilot.cases import Case as Case
from tests.autopilot.cases import F, _sprinkled, cases, normal
from tests.autopilot.tracing import torch

FORMS = {
    "rules": CudaTuning(),
    "walked": CudaTuning(form=Form.WALKED, threads=64, items=2),
    "split": CudaTuning(form=Form.SPLIT, threads=32, items=1, chunks=3),
    "columns": CudaTuning(form=Form.COLUMNS),
    "cluster": CudaTuning(form=Form.CLUSTER),
    "resident": CudaTuning(form=Form.FLAT, resident=True, items=2, threads=32),
}


def cuda_cases() -> dict[str, Case]:
    """All cases of the CPU, and more."""
    return {**cases(), **_wide(), **_half(), **_hard()}


def _wide() -> dict[str, Case]:
    return {
        "wide_softmax": (lambda x, w: (x * w).softmax(-1), (normal(9, 520), normal(520))),
        "wide_columns": (lambda x: (x * x).sum(0), (normal(515, 256),)),
        "wide_channels": (lambda x: x.softmax(1), (normal(3, 19, 32, 8),)),
        "held_channels": (lambda x: x.softmax(1) * 2, (normal(2, 19, 64, 48),)),
        "held_odd_channels": (lambda x, w: (x.log_softmax(1) * w).sum(1), (normal(2, 7, 67, 67), normal(7, 1, 1))),
        "wide_losses": (
            lambda x, t: F.cross_entropy(x, t, reduction="none"),
            (normal(3, 19, 16, 8), torch.randint(0, 19, (3, 16, 8))),
        ),
        "wide_mean": (lambda x: (x * x).mean(), (normal(77, 1024),)),
        "two_totals": (lambda x, y: ((x * y).abs().sum(), (x - y).abs().amax()), (normal(33, 1024), normal(33, 1024))),
        "wide_embedding": (lambda w, i: F.embedding(i, w) * 2, (normal(50, 64), torch.randint(0, 50, (3, 4)))),
        "wide_rotary": (
            lambda x, c, s: x * c + torch.cat([-x[..., 32:], x[..., :32]], -1) * s,
            (normal(2, 3, 5, 64), normal(5, 64), normal(5, 64)),
        ),
        "uneven_cat": (lambda x, y: torch.cat([x, y], -1) * 2, (normal(5, 30), normal(5, 34))),
        "wide_batch_norm": (
            lambda x, m, v: F.silu(F.batch_norm(x, m, v)),
            (normal(2, 6, 32, 32), normal(6), normal(6).abs() + 0.1),
        ),
        "broadcast_mask": (
            lambda x, keep: (x * 0.3).masked_fill(~keep, -1e9).softmax(-1),
            (normal(2, 3, 16, 64), torch.rand(2, 1, 16, 64) > 0.3),
        ),
        "wide_group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), (normal(2, 8, 32, 16), normal(8), normal(8))),
        "outer_and_inner_sum": (lambda x: x.sum((0, 2)), (normal(17, 5, 64),)),
        "softmax_down": (lambda x: x.softmax(0), (normal(70, 130),)),
        "wide_double": (lambda x: x.sum(-1), (normal(3, 2048).double(),)),
        "integers": (lambda x: x.sum(-1), (torch.randint(-5, 5, (3, 2048)),)),
    }


def _half() -> dict[str, Case]:
    def mixed_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x.to(weight.dtype), (1024,), weight).to(torch.bfloat16)

    return {
        "bf16_softmax": (lambda x: (x * 2).softmax(-1), (normal(13, 2056).bfloat16(),)),
        "bf16_odd_softmax": (lambda x: (x * 2).softmax(-1), (normal(5, 1001).bfloat16(),)),
        "fp16_silu_mul": (lambda x, y: F.silu(x) * y, (normal(11, 1000).half(), normal(11, 1000).half())),
        "bf16_odd_silu_mul": (lambda x, y: F.silu(x) * y, (normal(11, 37).bfloat16(), normal(11, 37).bfloat16())),
        "fp16_layer_norm": (
            lambda x, w, b: F.layer_norm(x, (1024,), w, b),
            (normal(7, 1024).half(), normal(1024).half(), normal(1024).half()),
        ),
        "mixed_layer_norm": (mixed_norm, (normal(7, 1024).bfloat16(), normal(1024))),
        "bf16_columns": (lambda x: x.sum(0), (normal(300, 128).bfloat16(),)),
        "bf16_longest_norm": (lambda x: F.layer_norm(x, (150_000,)), (normal(2, 150_000).bfloat16(),)),
        "bf16_long_norm": (lambda x: F.layer_norm(x, (40_960,)), (normal(2, 40_960).bfloat16(),)),
    }


def _hard() -> dict[str, Case]:
    """Infinities and NaN in rows that are walked online."""
    rows = normal(9, 1040)
    rows[1], rows[2, 3], rows[3, 5] = float("-inf"), float("inf"), float("nan")
    rows[4, :7], rows[0, :100] = float("-inf"), float("-inf")
    return {
        "hard_log_softmax": (lambda x: x.log_softmax(-1), (rows,)),
        "hard_logsumexp": (lambda x: torch.logsumexp(x, -1), (rows,)),
        "hard_both": (lambda x: torch.logsumexp(x * 0.5, -1) + (x * 0.5).softmax(-1).amax(-1), (rows,)),
        "hard_range": (lambda x: x.amax(-1) - x.amin(-1), (_sprinkled(normal(7, 512)),)),
    }
