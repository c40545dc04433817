"""The training loop and the image augmentations that probes and scoring models share."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

OnLoss = Callable[[int, int, float], None]  # (steps done, steps in all, loss)


def train_network(
    net: nn.Module,
    batch_loss: Callable[[], Tensor],
    steps: int,
    learning_rate: float,
    weight_decay: float,
    on_loss: OnLoss | None = None,
) -> None:
    """Train with AdamW and a one-cycle learning rate; `batch_loss` draws a batch and returns its loss."""
    optimizer = torch.optim.AdamW(net.parameters(), learning_rate, weight_decay=weight_decay)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=max(2, steps), pct_start=0.15)
    for step in range(steps):
        loss = batch_loss()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        rates.step()
        if on_loss is not None and (step % 20 == 0 or step == steps - 1):
            on_loss(step + 1, steps, loss.item())


def blurred(pictures_BCHW: Tensor, factor: int) -> Tensor:
    """Blur pictures: shrink them by `factor`, and enlarge them again."""
    small = F.avg_pool2d(pictures_BCHW, factor)
    return F.interpolate(small, pictures_BCHW.shape[-2:], mode="bilinear", align_corners=False)


def relit(pictures: Tensor, light: Tensor, contrast: Tensor) -> Tensor:
    """Change brightness and contrast of pictures in [0, 1] a little. light, contrast: random numbers in [0, 1]."""
    return (pictures - 0.5) * (0.9 + 0.2 * contrast) + 0.5 + 0.1 * (light - 0.5)
