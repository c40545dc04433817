"""Two-sample test: a small network learns to tell two kinds of clips, uint8 RGB (M, F, H, W, 3), apart."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from ...train.training_data import pictures

WIDTHS = (3, 32, 64, 96, 128)
BATCH = 32  # frames of each kind


def scores_of_unseen(
    ours: NDArray[np.uint8], theirs: NDArray[np.uint8], steps: int, device: torch.device | str, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """How much the second half of each kind's clips looks like `ours`, to a network that learned from the first half.

    It reads single frames; a clip's score is the mean over its frames but the first.
    """
    torch.manual_seed(seed)
    draw, half, frames = np.random.default_rng(seed), max(1, len(ours) // 2), ours.shape[1]
    blocks = [
        nn.Sequential(nn.Conv2d(source, target, 3, 2, 1), nn.GroupNorm(8, target), nn.SiLU())
        for source, target in pairwise(WIDTHS)
    ]
    net = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTHS[-1], 1)).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)

    def read(clips_FHWC: NDArray[np.uint8]) -> Tensor:
        return net(pictures(torch.from_numpy(clips_FHWC).to(device)))[:, 0]

    for _ in range(steps):
        rows, numbers = draw.integers(half, size=BATCH), draw.integers(1, frames, size=BATCH)
        loss = F.softplus(-read(ours[rows, numbers])).mean() + F.softplus(read(theirs[rows, numbers])).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.inference_mode():
        one, other = (np.array([read(clip[1:]).mean().item() for clip in kind[half:]]) for kind in (ours, theirs))
    return one, other
