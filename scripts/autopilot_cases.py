"""What scripts.autopilot_bandwidth measures: functions of large tensors, each of which becomes one kernel."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from cuda_tui.autopilot.cuda_shape import Shape
from cuda_tui.autopilot.graph import Graph
from cuda_tui.autopilot.plan import Plan

F = torch.nn.functional
Function = Callable[..., Any]
f32, bf16 = torch.float32, torch.bfloat16


class Wrapped(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(*tensors)


@dataclass
class Case:
    """A function, the shapes and dtypes of its tensors, and one kernel for each launch that is tried."""

    name: str
    function: Function
    tensors: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    high: int = 0  # integers are drawn below this
    compiled: bool = False
    graph: Graph | None = None
    plan: Plan | None = None
    launches: dict[str, tuple[str, Shape, int]] = field(default_factory=dict)  # title: file, shape, partial bytes


def cases() -> list[Case]:
    """Large ones: at least 0.5 GB each, but for two."""
    found = [
        Case("silu_mul f32 2^28", lambda x, y: F.silu(x) * y, (((1 << 28,), f32),) * 2, compiled=True),
        Case("silu_mul bf16 2^28", lambda x, y: F.silu(x) * y, (((1 << 28,), bf16),) * 2, compiled=True),
        Case("bn_silu f32", lambda x, m, v: F.silu(F.batch_norm(x, m, v)),
             (((64, 64, 160, 160), f32), ((64,), f32), ((64,), f32))),
        Case("rope f32", lambda x, c, s: x * c + torch.cat([-x[..., 64:], x[..., :64]], -1) * s,
             (((4, 32, 4096, 128), f32), ((4096, 128), f32), ((4096, 128), f32)), compiled=True),
    ]  # fmt: skip
    for width in (1024, 4096, 16384, 65536):
        rows = (1 << 27) // width
        found.append(Case(f"rms_norm f32 {width}", rms_norm, (((rows, width), f32), ((width,), f32)),
                          compiled=width in (4096, 65536)))  # fmt: skip
        found.append(Case(f"layer_norm bf16 {width}", layer_norm,
                          (((rows, width), bf16), ((width,), bf16), ((width,), bf16)),
                          compiled=width == 4096))  # fmt: skip
    for width in (1024, 32768, 262144):
        found.append(Case(f"softmax f32 {width}", lambda x: x.softmax(-1), ((((1 << 27) // width, width), f32),),
                          compiled=width > 1024))  # fmt: skip
    for dtype, rows, words in ((f32, 8192, 32768), (f32, 2048, 131072), (bf16, 4096, 131072)):
        short = "f32" if dtype is f32 else "bf16"
        found.append(Case(f"cross_entropy {short} {words}", cross_entropy,
                          (((rows, words), dtype), ((rows,), torch.int64)), high=words,
                          compiled=words > 40000))  # fmt: skip
    found += [
        Case("squared_error f32 2^27", lambda x, y: (x - y).pow(2).sum(), (((1 << 27,), f32),) * 2, compiled=True),
        Case("column_sum f32", lambda x: x.sum(0), (((65536, 4096), f32),), compiled=True),
        Case("column_sum bf16", lambda x: x.sum(0), (((65536, 4096), bf16),)),
        Case("channel_softmax f32", lambda x: x.softmax(1), (((16, 19, 512, 512), f32),), compiled=True),
    ]
    return found


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (x.shape[-1],), weight, bias)


def cross_entropy(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, target, reduction="none")
