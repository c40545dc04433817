"""A small decoder of the VAE's latents, many times as fast as the VAE's own, in the manner of TAEHV.

Its layers have the order and names of TAEHV's decoder (https://github.com/madebyollin/taehv, MIT), so weights for
CogVideoX's VAE fit at widths (256, 128, 64, 64). B batch, C channels, T latent frames, F frames.
"""

from __future__ import annotations

import torch
from einops import rearrange, repeat
from torch import Tensor, nn

from ..spec import TIME_FACTOR

BLOCKS = 3  # at each size
LARGEST_LATENT = 3.0  # latents are bent to stay within it, since far ones would leave smears


class TinyDecoder(nn.Module):
    """Latents in the VAE's own scale to frames. widths: channels at each size, from the latents' to the frames'.

    Size doubles from one width to the next; in the last two steps the number of frames doubles too.
    """

    def __init__(self, latent_channels: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Identity(), _conv(latent_channels, widths[0]), nn.ReLU()]
        for number, (width, following) in enumerate(zip(widths, widths[1:], strict=False)):
            grows = 2 if number >= len(widths) - 3 else 1
            layers += [_Block(width) for _ in range(BLOCKS)]
            layers += [nn.Identity(), _Larger(width, grows), _conv(width, following, bias=False)]
        self.decoder = nn.Sequential(*layers, nn.ReLU(), _conv(widths[-1], 3))

    def forward(self, latents_BCTHW: Tensor) -> Tensor:
        """(B, F, 3, H, W) frames in [-1, 1], with some overshoot; F = 4 T - 3."""
        bent = LARGEST_LATENT * torch.tanh(latents_BCTHW / LARGEST_LATENT)
        batch = len(bent)
        x = rearrange(bent, "b c t h w -> (b t) c h w").contiguous(memory_format=torch.channels_last)
        for layer in self.decoder:
            x = layer(x, batch) if isinstance(layer, _Block) else layer(x)
        frames = rearrange(x, "(b f) c h w -> b f c h w", b=batch)
        return 2 * frames[:, TIME_FACTOR - 1 :] - 1  # the first latent frame is one frame, not four


class _Block(nn.Module):
    """A residual block that also reads the frame before."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            _conv(2 * width, width), nn.ReLU(), _conv(width, width), nn.ReLU(), _conv(width, width)
        )

    def forward(self, x: Tensor, batch: int) -> Tensor:
        first, *others = self.conv
        weight = rearrange(first.weight, "o (k i) h w -> (k o) i h w", k=2)  # without a copy of x and the frames before
        here, earlier = nn.functional.conv2d(x, weight, padding=1).chunk(2, dim=1)
        before = earlier.unflatten(0, (batch, -1))[:, :-1]
        read = here.contiguous(memory_format=torch.channels_last) + first.bias[:, None, None]
        read.unflatten(0, (batch, -1))[:, 1:].add_(before)
        for layer in others:
            read = layer(read)
        return nn.functional.relu(read + x)


class _Larger(nn.Module):
    """Twice the size, and `times` as many frames. TAEHV first doubles the size: the same, at four times the cost."""

    def __init__(self, width: int, times: int) -> None:
        super().__init__()
        self.times, self.conv = times, nn.Conv2d(width, times * width, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        frames = repeat(self.conv(x), "n (k c) h w -> (n k) (h a) (w b) c", k=self.times, a=2, b=2)  # in one copy
        return rearrange(frames, "n h w c -> n c h w")


def _conv(inputs: int, outputs: int, bias: bool = True) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1, bias=bias)
