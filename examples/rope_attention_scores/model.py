"""Rotary embedding of queries and keys, then scaled, masked scores and their softmax."""

import math

import torch
from torch import nn

# CPU: one sequence of 256 tokens in a small language model (9 heads of 64).
BATCH, HEADS, TOKENS, HEAD_DIM = 1, 9, 256, 64
# GPU: two sequences of 2 048 tokens, 32 heads of 128.
GPU_BATCH, GPU_HEADS, GPU_TOKENS, GPU_HEAD_DIM = 2, 32, 1024, 128


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    """(a, b) to (-b, a), where a and b are the two halves of the last dimension."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


class Model(nn.Module):
    """Attention weights (batch, heads, tokens, tokens) for queries and keys (batch, heads, tokens, head_dim).

    `allowed` (batch, 1, tokens, tokens) is True where a query may look at a key.
    """

    def __init__(self, head_dim: int, max_tokens: int) -> None:
        super().__init__()
        inverse = 1.0 / (10_000.0 ** (torch.arange(0, head_dim, 2).float() / head_dim))
        angles = torch.outer(torch.arange(max_tokens).float(), inverse)
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.scale = 1.0 / math.sqrt(head_dim)

    def forward(self, query: torch.Tensor, key: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
        tokens = query.shape[-2]
        cos, sin = self.cos[:tokens], self.sin[:tokens]
        query = query * cos + rotate_half(query) * sin
        key = key * cos + rotate_half(key) * sin
        scores = torch.matmul(query, key.transpose(-2, -1)) * self.scale
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
        return torch.softmax(scores, dim=-1)


def _inputs(batch: int, heads: int, tokens: int, head_dim: int) -> list[torch.Tensor]:
    position = torch.arange(tokens)
    causal = position[None, :] <= position[:, None]
    length = torch.randint(tokens // 2, tokens + 1, (batch, 1, 1, 1))  # the rest of a sequence is padding
    allowed = causal & (position < length)
    shape = (batch, heads, tokens, head_dim)
    return [torch.randn(shape), torch.randn(shape), allowed]


def get_inputs() -> list[torch.Tensor]:
    return _inputs(BATCH, HEADS, TOKENS, HEAD_DIM)


def get_init_inputs() -> list[int]:
    return [HEAD_DIM, TOKENS]


def get_inputs_gpu() -> list[torch.Tensor]:
    return _inputs(GPU_BATCH, GPU_HEADS, GPU_TOKENS, GPU_HEAD_DIM)


def get_init_inputs_gpu() -> list[int]:
    return [GPU_HEAD_DIM, GPU_TOKENS]
