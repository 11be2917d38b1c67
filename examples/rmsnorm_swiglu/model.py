"""RMSNorm followed by a SwiGLU feed-forward and its residual: the second half of a Llama-style layer."""

import torch
from torch import nn
from torch.nn import functional as F

# CPU: the width of the alignment track in structure models (64, expanded 4x), where such blocks see many tokens.
TOKENS, HIDDEN, INTERMEDIATE = 2048, 64, 256
# GPU: one layer of an 8B language model.
GPU_TOKENS, GPU_HIDDEN, GPU_INTERMEDIATE = 4096, 2048, 8192


class RMSNorm(nn.Module):
    """Scales each row by its root mean square, computed in float32."""

    def __init__(self, hidden: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dtype = x.dtype
        x = x.to(torch.promote_types(dtype, torch.float32))
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + self.eps)
        return self.weight * x.to(dtype)


class Model(nn.Module):
    """x + down(silu(gate(norm(x))) * up(norm(x))) for x of shape (batch, tokens, hidden)."""

    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.norm = RMSNorm(hidden)
        self.gate_proj = nn.Linear(hidden, intermediate, bias=False)
        self.up_proj = nn.Linear(hidden, intermediate, bias=False)
        self.down_proj = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        return x + self.down_proj(F.silu(self.gate_proj(normed)) * self.up_proj(normed))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(1, TOKENS, HIDDEN)]


def get_init_inputs() -> list[int]:
    return [HIDDEN, INTERMEDIATE]


def get_inputs_gpu() -> list[torch.Tensor]:
    return [torch.randn(1, GPU_TOKENS, GPU_HIDDEN)]


def get_init_inputs_gpu() -> list[int]:
    return [GPU_HIDDEN, GPU_INTERMEDIATE]
