"""A dense-prediction loss: focal, Dice, distillation and depth terms, each reduced along its own axes."""

import torch
from torch import nn
from torch.nn import functional as F

# CPU: two crops at an eighth of 512x1024, 19 classes of street scenes.
BATCH, CLASSES, HEIGHT, WIDTH = 2, 19, 64, 128
# GPU: eight crops at a quarter of the resolution.
GPU_BATCH, GPU_CLASSES, GPU_HEIGHT, GPU_WIDTH = 8, 19, 256, 512


class Model(nn.Module):
    """Weighted total and its four terms, all scalars.

    Takes class logits and a teacher's logits (batch, classes, height, width), labels (batch, height, width) of
    int64, and predicted and true depth (batch, 1, height, width); a true depth of zero means unknown.
    """

    def __init__(self, classes: int, gamma: float, temperature: float) -> None:
        super().__init__()
        self.classes = classes
        self.gamma = gamma
        self.temperature = temperature
        self.register_buffer("class_weight", torch.ones(classes))
        self.register_buffer("term_weight", torch.tensor([1.0, 1.0, 0.5, 0.1]))

    def focal(self, logits: torch.Tensor, one_hot: torch.Tensor) -> torch.Tensor:
        """Sigmoid focal loss: weighted per class, summed over classes, averaged over pixels."""
        p = torch.sigmoid(logits)
        cross_entropy = F.softplus(-logits) * one_hot + F.softplus(logits) * (1.0 - one_hot)
        p_true = p * one_hot + (1.0 - p) * (1.0 - one_hot)
        loss = (1.0 - p_true) ** self.gamma * cross_entropy
        return (loss * self.class_weight.view(1, -1, 1, 1)).sum(dim=1).mean()

    def dice(self, logits: torch.Tensor, one_hot: torch.Tensor) -> torch.Tensor:
        """One minus the soft Dice coefficient: summed over pixels, averaged over images and classes."""
        p = torch.softmax(logits, dim=1)
        overlap = (p * one_hot).sum(dim=(2, 3))
        total = p.sum(dim=(2, 3)) + one_hot.sum(dim=(2, 3))
        return (1.0 - (2.0 * overlap + 1.0) / (total + 1.0)).mean()

    def distillation(self, logits: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        """KL(teacher || student) at a temperature: summed over classes, averaged over pixels."""
        log_student = torch.log_softmax(logits / self.temperature, dim=1)
        log_teacher = torch.log_softmax(teacher / self.temperature, dim=1)
        divergence = (log_teacher.exp() * (log_teacher - log_student)).sum(dim=1)
        return divergence.mean() * self.temperature**2

    def depth(self, predicted: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
        """Smooth L1 over the pixels whose depth is known: averaged per image, then over images."""
        known = (true > 0).to(predicted.dtype)
        distance = (predicted - true).abs()
        loss = torch.where(distance < 1.0, 0.5 * distance * distance, distance - 0.5) * known
        return (loss.sum(dim=(1, 2, 3)) / known.sum(dim=(1, 2, 3)).clamp(min=1.0)).mean()

    def forward(
        self,
        logits: torch.Tensor,
        teacher: torch.Tensor,
        labels: torch.Tensor,
        predicted_depth: torch.Tensor,
        true_depth: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        classes = torch.arange(self.classes, device=labels.device).view(1, -1, 1, 1)
        one_hot = (labels.unsqueeze(1) == classes).to(logits.dtype)
        focal = self.focal(logits, one_hot)
        dice = self.dice(logits, one_hot)
        distillation = self.distillation(logits, teacher)
        depth = self.depth(predicted_depth, true_depth)
        weight = self.term_weight
        total = weight[0] * focal + weight[1] * dice + weight[2] * distillation + weight[3] * depth
        return total, focal, dice, distillation, depth


def _inputs(batch: int, classes: int, height: int, width: int) -> list[torch.Tensor]:
    shape = (batch, classes, height, width)
    confidence = 0.5 + 2.0 * torch.rand(2)  # student and teacher differ in how sure they are, from draw to draw
    logits, teacher = torch.randn(shape) * confidence[0], torch.randn(shape) * confidence[1]
    labels = torch.randint(0, classes, (batch, height, width))
    true_depth = F.relu(torch.randn(batch, 1, height, width) * 4.0 + 3.0)
    predicted_depth = true_depth + torch.randn(batch, 1, height, width) * (0.5 + torch.rand(()))
    return [logits, teacher, labels, predicted_depth, true_depth]


def get_inputs() -> list[torch.Tensor]:
    return _inputs(BATCH, CLASSES, HEIGHT, WIDTH)


def get_init_inputs() -> list[float]:
    return [CLASSES, 2.0, 2.0]


def get_inputs_gpu() -> list[torch.Tensor]:
    return _inputs(GPU_BATCH, GPU_CLASSES, GPU_HEIGHT, GPU_WIDTH)


def get_init_inputs_gpu() -> list[float]:
    return [GPU_CLASSES, 2.0, 2.0]
