"""Next-token loss over a large vocabulary, with capped logits, ignored positions and a z-loss."""

import torch
from torch import nn

# CPU: a short chunk of tokens over a vocabulary of 32 000.
TOKENS, VOCABULARY = 64, 32_000
# GPU: one micro-batch over a vocabulary of 256 000.
GPU_TOKENS, GPU_VOCABULARY = 1024, 128_256

IGNORED = -100


class Model(nn.Module):
    """Mean loss (a scalar) and log-probability of each target, for logits (tokens, vocabulary), targets (tokens,).

    Logits are capped as cap * tanh(logits / cap). A target of IGNORED contributes nothing and gets 0.
    """

    def __init__(self, softcap: float, z_weight: float) -> None:
        super().__init__()
        self.softcap = softcap
        self.z_weight = z_weight

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = torch.tanh(logits / self.softcap) * self.softcap
        valid = targets != IGNORED
        index = torch.where(valid, targets, 0)
        log_probs = torch.log_softmax(logits, dim=-1)
        picked = log_probs.gather(-1, index.unsqueeze(-1)).squeeze(-1)
        log_z = torch.logsumexp(logits, dim=-1)
        per_token = torch.where(valid, -picked + self.z_weight * log_z * log_z, 0.0)
        loss = per_token.sum() / valid.sum().clamp(min=1)
        return loss, torch.where(valid, picked, 0.0)


def _inputs(tokens: int, vocabulary: int) -> list[torch.Tensor]:
    logits = torch.randn(tokens, vocabulary) * (1.0 + 3.0 * torch.rand(tokens, 1))  # rows differ in confidence
    targets = torch.randint(0, vocabulary, (tokens,))
    return [logits, torch.where(torch.rand(tokens) < 0.1, IGNORED, targets)]


def get_inputs() -> list[torch.Tensor]:
    return _inputs(TOKENS, VOCABULARY)


def get_init_inputs() -> list[float]:
    return [30.0, 1e-4]


def get_inputs_gpu() -> list[torch.Tensor]:
    return _inputs(GPU_TOKENS, GPU_VOCABULARY)


def get_init_inputs_gpu() -> list[float]:
    return get_init_inputs()
