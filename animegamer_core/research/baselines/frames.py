"""Converts a drawn clip to a shot.

F frames, H height, W width.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps


def frame_indices(drawn: int, wanted: int, take: str) -> list[int]:
    """Which frames of a clip of `drawn` frames make a shot of `wanted` frames; all if the clip has no more.

    take "even": frame i is round(i (drawn - 1) / (wanted - 1)), so 17 of 49 frames are 0, 3, 6 .. 48. "first": frames
    0 .. wanted - 1.
    """
    if drawn <= wanted:
        return list(range(drawn))
    if take == "first":
        return list(range(wanted))
    return [round(index * (drawn - 1) / (wanted - 1)) for index in range(wanted)]


def speed(drawn: int, wanted: int, take: str) -> float:
    """How many times as fast the shot moves as the drawn clip, if both have the same frame rate."""
    return (drawn - 1) / (wanted - 1) if take == "even" and drawn > wanted else 1.0


def to_frames(clip_FHW3: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Convert a clip in [0, 1] to uint8 (F, H, W, 3)."""
    return (np.clip(clip_FHW3, 0, 1) * 255).round().astype(np.uint8)


def fitted(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    """A picture, centre-cropped and resized to `size` (height, width)."""
    return ImageOps.fit(picture, size[::-1], method=Image.Resampling.BICUBIC)
