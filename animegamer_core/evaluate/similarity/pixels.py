"""Preprocessing of images for CLIP and DreamSim. M images, C channels, H height, W width."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from einops import rearrange

from ...model.encoder import CLIP_MEAN, CLIP_STD

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


@dataclass(frozen=True)
class Preprocessing:
    """CLIP's preprocessing: resize the shorter side to `size` px (bicubic, antialiased), centre-crop, normalise."""

    size: int
    mean: tuple[float, ...] = CLIP_MEAN
    std: tuple[float, ...] = CLIP_STD

    def __call__(self, frames_MHWC: NDArray[np.uint8]) -> Tensor:
        """Preprocess RGB images of one size: (M, 3, size, size) fp32.

        The longer side and the crop are rounded as in the code of CLIP's authors.
        """
        height, width = frames_MHWC.shape[1:3]
        short = min(height, width)
        target = int(self.size * height / short), int(self.size * width / short)
        pixels = resized(frames_MHWC, target)
        top, left = (round((side - self.size) / 2) for side in target)
        square = pixels[..., top : top + self.size, left : left + self.size]
        mean, std = (square.new_tensor(values)[:, None, None] for values in (self.mean, self.std))
        return (square - mean) / std


def resized(frames_MHWC: NDArray[np.uint8], size: tuple[int, int]) -> Tensor:
    """Resize images to `size` (height, width): (M, 3, H, W) in [0, 1].

    Pillow resizes the bytes, as when the published models were trained; other libraries' bicubic interpolation differs
    enough to change a score.
    """
    from PIL import Image

    height, width = size
    scaled = [Image.fromarray(frame).resize((width, height), Image.Resampling.BICUBIC) for frame in frames_MHWC]
    return (
        rearrange(torch.from_numpy(np.stack([np.asarray(picture) for picture in scaled])), "m h w c -> m c h w") / 255
    )
