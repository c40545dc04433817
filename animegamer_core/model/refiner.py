"""Convolutions after the transformer of a small world, which draw what is finer than its patches.

A patch of 4 x 4 latents is 16 x 16 pixels: a transformer with few of them puts things in the right place, but leaves
outlines soft. Convolutions share what they learn among all positions. B batch, T latent frames, C channels.
"""

from __future__ import annotations

import torch
from diffusers import CogVideoXTransformer3DModel
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F

BLOCKS = 4
FEATURES = 2  # the transformer predicts this many features for each latent channel, besides the latent itself
GROUPS = 8  # of the norms


class RefinedTransformer(CogVideoXTransformer3DModel):
    """CogVideoX's transformer, whose prediction convolutions refine. refiner: it, or None in most worlds."""

    refiner: Refiner | None

    def forward(self, hidden_states: Tensor, *args: object, **options: object) -> tuple[Tensor]:
        """As CogVideoX's, with the prediction (B, T, C, h, w), which the refiner has refined."""
        found = super().forward(hidden_states, *args, **options)[0]
        return (self.refiner(hidden_states, found) if self.refiner else found,)


class Refiner(nn.Module):
    """Adds details to a predicted latent. width: channels of its convolutions."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.channels = channels
        self.read = nn.Conv2d(channels * (2 + FEATURES), width, 3, padding=1)
        self.blocks = nn.ModuleList(_Block(width) for _ in range(BLOCKS))
        self.write = nn.Conv2d(width, channels, 3, padding=1)
        nn.init.zeros_(self.write.weight)  # at first, it changes nothing
        nn.init.zeros_(self.write.bias)

    def forward(self, noisy_BTCHW: Tensor, found_BTCHW: Tensor) -> Tensor:
        """(B, T, C, h, w) the refined prediction. found: the transformer's prediction, then its features."""
        batch, read = len(found_BTCHW), torch.cat([noisy_BTCHW, found_BTCHW], dim=2)
        x = rearrange(read, "b t c h w -> (b t) c h w").contiguous(memory_format=torch.channels_last)
        x = self.read(x)
        for block in self.blocks:
            x = block(x, batch)
        details = rearrange(self.write(F.silu(x)), "(b t) c h w -> b t c h w", b=batch)
        return found_BTCHW[:, :, : self.channels] + details


class _Block(nn.Module):
    """A residual block that also reads the latent frames before and after."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(GROUPS, width), nn.GroupNorm(GROUPS, width)
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.around = nn.Conv2d(width, 2 * width, 1, bias=False)

    def forward(self, x: Tensor, batch: int) -> Tensor:
        read = F.silu(self.norm1(x))
        before, after = self.around(read).unflatten(0, (batch, -1)).chunk(2, dim=2)
        read = self.conv1(read)
        frames = read.unflatten(0, (batch, -1))  # a view of `read`
        frames[:, 1:] += before[:, :-1]
        frames[:, :-1] += after[:, 1:]
        return x + self.conv2(F.silu(self.norm2(read)))
