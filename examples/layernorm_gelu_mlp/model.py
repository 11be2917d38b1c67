"""LayerNorm, linear, GELU in its tanh form, linear, residual: the MLP half of a GPT-2 or ViT layer."""

import math

import torch
from torch import nn

# CPU: one image of ViT-Tiny (196 patches and a class token; width 192, expanded 4x).
BATCH, TOKENS, WIDTH = 1, 197, 192
# GPU: eight sequences of GPT-2 medium.
GPU_BATCH, GPU_TOKENS, GPU_WIDTH = 8, 1024, 1024


class NewGELU(nn.Module):
    """The tanh approximation of GELU, written out as in GPT-2's code."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Model(nn.Module):
    """x + proj(gelu(fc(norm(x)))) for x of shape (batch, tokens, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, 4 * width)
        self.act = NewGELU()
        self.proj = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.proj(self.act(self.fc(self.norm(x))))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, TOKENS, WIDTH)]


def get_init_inputs() -> list[int]:
    return [WIDTH]


def get_inputs_gpu() -> list[torch.Tensor]:
    return [torch.randn(GPU_BATCH, GPU_TOKENS, GPU_WIDTH)]


def get_init_inputs_gpu() -> list[int]:
    return [GPU_WIDTH]
