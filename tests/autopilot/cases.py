"""Functions whose fused kernels are compared with PyTorch. Sizes are odd on purpose: multiples of nothing."""

import random
from collections.abc import Callable
from typing import Any

from tests.autopilot.tracing import torch  # imported there without torch's own warning

F = torch.nn.functional
Case = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def ones(size: int, like: torch.Tensor) -> torch.Tensor:
    return torch.linspace(0.5, 1.5, size, dtype=like.dtype)


def cases() -> dict[str, Case]:
    """By name: the function and its inputs. Every function becomes one kernel."""
    torch.manual_seed(0)
    return {
        "pointwise": (lambda x, y: torch.tanh(x * 2 + y).sigmoid() * x, (normal(5, 37), normal(37))),
        "softmax": (lambda x: x.softmax(-1), (normal(7, 133),)),
        "softmax_over_channels": (lambda x: x.softmax(1), (normal(3, 19, 5, 7),)),
        "log_softmax": (lambda x: x.log_softmax(-1), (normal(9, 3001),)),
        "logsumexp": (lambda x: torch.logsumexp(x, -1), (normal(7, 3001) * 3,)),
        "masked_softmax": (_masked_softmax, (normal(2, 3, 9, 9), torch.rand(9, 9) > 0.3)),
        "causal": (_causal, (normal(2, 9, 9),)),
        "layer_norm": (_layer_norm, (normal(4, 9, 65), normal(65), normal(65))),
        "rms_norm": (_rms_norm, (normal(4, 9, 65), normal(65))),
        "group_norm": (_group_norm, (normal(2, 6, 5, 7), normal(6), normal(6))),
        "batch_norm": (_batch_norm, (normal(2, 6, 9, 9), normal(6), normal(6).abs() + 0.1, normal(6), normal(6))),
        "rotary": (_rotary, (normal(2, 3, 5, 16), normal(5, 16), normal(5, 16))),
        "interleaved": (lambda a, b: torch.stack([a, b], -1).flatten(-2) * 2, (normal(4, 5), normal(4, 5))),
        "halves": (lambda x: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1], (normal(6, 10),)),
        "heads": (lambda x: (x.view(2, 5, 3, 4).transpose(1, 2) * 0.5).contiguous().exp(), (normal(2, 5, 12),)),
        "transposed_sum": (lambda x: x + x.t(), (normal(53, 53),)),
        "column_sums": (lambda x: (x * x).sum(0), (normal(1001, 77),)),
        "column_variance": (lambda x: x.var(0), (normal(51, 77),)),
        "row_range": (lambda x: x.amax(-1) - x.amin(-1), (normal(53, 777),)),
        "long_row": (lambda x: x.mean(-1), (normal(3, 100_003) + 1,)),
        "cross_entropy": (lambda x, t: F.cross_entropy(x, t, reduction="none"), (normal(53, 777), _targets(53, 777))),
        "kl_div": (_kl_div, (normal(4, 5), normal(4, 5))),
        "cosine": (lambda a, b: F.cosine_similarity(a, b), (normal(41, 53), normal(41, 53))),
        "embedding": (lambda w, i: F.embedding(i, w) * 2, (normal(50, 9), torch.randint(0, 50, (3, 4)))),
        "several_outputs": (lambda x: ((y := x.exp()), y.sum(-1), y / y.sum(-1, keepdim=True)), (normal(11, 45),)),
        "activations": (_activations, (normal(401, 5),)),
        "functions": (_functions, (normal(401, 5),)),
        "with_nan_and_infinity": (_activations, (_sprinkled(normal(37, 41)),)),
        "double": (lambda x: (x.exp() / x.exp().sum(-1, keepdim=True)), (normal(7, 31).double(),)),
        **{f"random_{seed}": _random_case(seed) for seed in range(8)},
    }  # fmt: skip


def _targets(count: int, classes: int) -> torch.Tensor:
    targets = torch.randint(0, classes, (count,))
    targets[3] = -100  # ignored
    return targets


def _sprinkled(x: torch.Tensor) -> torch.Tensor:
    flat = x.view(-1)
    flat[::13], flat[5::17], flat[7::19] = float("nan"), float("inf"), float("-inf")
    return x


def _masked_softmax(x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    return (x * 0.125).masked_fill(~keep, -1e4).softmax(-1)


def _causal(x: torch.Tensor) -> torch.Tensor:
    return x.masked_fill(torch.ones(9, 9).triu(1) > 0, float("-inf")).softmax(-1)


def _kl_div(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.kl_div(a.log_softmax(-1), b.softmax(-1), reduction="none")


def _layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.layer_norm(x, (65,), weight, bias)) + x


def _rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def _group_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.silu(F.group_norm(x, 3, weight, bias))


def _batch_norm(
    x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor, w: torch.Tensor, b: torch.Tensor
) -> torch.Tensor:
    return F.silu(F.batch_norm(x, mean, var, w, b)) + x


def _rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    return x * cos + torch.cat([-x[..., 8:], x[..., :8]], -1) * sin


def _activations(x: torch.Tensor) -> torch.Tensor:
    smooth = F.softplus(x) + F.elu(x) + F.mish(x) + F.logsigmoid(x) + F.gelu(x) + F.gelu(x, approximate="tanh")
    return smooth + F.leaky_relu(x) + F.hardswish(x) + F.relu6(x) + F.hardtanh(x)


def _functions(x: torch.Tensor) -> torch.Tensor:
    y = x.abs()
    first = y.log1p() + x.expm1() + x.sin() * x.cos() + x.erf() + (y + 1).rsqrt() + x.sign() + x.floor()
    return first + y.pow(1.7) + (y + 0.1).log() + torch.where(x > 0, x, -x) + x.clamp(-0.5, 0.5)


UNARY = (torch.tanh, torch.sigmoid, torch.exp, torch.abs, torch.neg, F.relu, F.silu, torch.square)
BINARY = (torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum)


def _random_case(seed: int) -> Case:
    """A random chain over operands that broadcast in random dimensions, with a reduction in every second one."""
    draw = random.Random(seed)
    shape = tuple(draw.randint(2, 13) for _ in range(draw.randint(1, 4)))
    operands = [normal(*(size if draw.random() < 0.7 else 1 for size in shape)) for _ in range(3)] + [normal(*shape)]
    ops = [(draw.choice(UNARY), draw.choice(BINARY)) for _ in range(6)]
    picks = [draw.randrange(len(operands)) for _ in ops]
    dim = draw.randrange(len(shape)) if seed % 2 else None

    def function(*tensors: torch.Tensor) -> torch.Tensor:
        value = tensors[-1]
        for (unary, binary), pick in zip(ops, picks, strict=True):
            value = torch.tanh(binary(unary(value), tensors[pick]))
        return value if dim is None else value - value.mean(dim, keepdim=True)

    return function, tuple(operands)
