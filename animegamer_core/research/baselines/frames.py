"""Turns a drawn clip into a shot.

F frames, H height, W width.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps


def frame_indices(drawn: int, wanted: int, take: str) -> list[int]:
    """Indices of the `wanted` frames of a shot among those of a clip of `drawn`; all if there are no more.

    even: frame round(i (drawn - 1) / (wanted - 1)), halves to the even number, so 49 frames give 0, 3, 6 .. 48 for 17.
    first: 0 .. wanted - 1.
    """
    if drawn <= wanted:
        return list(range(drawn))
    if take == "first":
        return list(range(wanted))
    return [round(index * (drawn - 1) / (wanted - 1)) for index in range(wanted)]


def speed(drawn: int, wanted: int, take: str) -> float:
    """How many times faster the shot moves than the drawn clip, both at one frame rate."""
    return (drawn - 1) / (wanted - 1) if take == "even" and drawn > wanted else 1.0


def to_frames(clip_FHW3: NDArray[np.floating]) -> NDArray[np.uint8]:
    """(F, H, W, 3) uint8 of a clip in [0, 1]."""
    return (np.clip(clip_FHW3, 0, 1) * 255).round().astype(np.uint8)


def fitted(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    """A picture centre-cropped and scaled to (height, width)."""
    return ImageOps.fit(picture, size[::-1], method=Image.Resampling.BICUBIC)
