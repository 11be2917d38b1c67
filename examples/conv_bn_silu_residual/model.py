"""A detector's bottleneck: 1x1 and 3x3 convolutions, each with BatchNorm and SiLU, and a residual."""

import torch
from torch import nn

# CPU: the first bottleneck of a nano detector on one 640-pixel image (16 channels at a quarter of the resolution).
BATCH, CHANNELS, SIZE = 1, 16, 160
# GPU: the same place in the large variant, sixteen images.
GPU_BATCH, GPU_CHANNELS, GPU_SIZE = 16, 64, 160


class ConvBNSiLU(nn.Module):
    """Convolution without bias, BatchNorm, SiLU; keeps height and width."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel, padding=kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(channels, eps=1e-3, momentum=0.03)
        self.act = nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.bn(self.conv(x)))


class Model(nn.Module):
    """x + block3x3(block1x1(x)) for x of shape (batch, channels, height, width); meant for eval mode."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.cv1 = ConvBNSiLU(channels, 1)
        self.cv2 = ConvBNSiLU(channels, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.cv2(self.cv1(x))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs() -> list[int]:
    return [CHANNELS]


def get_inputs_gpu() -> list[torch.Tensor]:
    return [torch.randn(GPU_BATCH, GPU_CHANNELS, GPU_SIZE, GPU_SIZE)]


def get_init_inputs_gpu() -> list[int]:
    return [GPU_CHANNELS]
