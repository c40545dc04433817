"""Images for a judge: rows of a story's frames, or of characters' reference pictures.

F frames, H height, W width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...data.captions.pictures import evenly

if TYPE_CHECKING:
    from PIL import Image

Picture = NDArray[np.uint8]  # (H, W, 3) RGB
FRAMES = 5  # for each scene (supplement, section 4)
LONGEST_SIDE = 1536  # px of an image
_GAP, _PAPER = 8, "#ffffff"


def story_image(clips_FHWC: Sequence[NDArray[np.uint8]]) -> Image.Image:
    """An image with one row per scene: 5 evenly spaced frames of its clip, from the first to the last."""
    rows = [[clip[index] for index in evenly(len(clip), FRAMES)] for clip in clips_FHWC]
    height, width = rows[0][0].shape[:2]
    return tiled(rows, (width, height))


def reference_image(pictures: Sequence[Sequence[Picture]]) -> Image.Image:
    """An image with one row per character: its pictures side by side, 240 px high, with their own aspect."""
    return tiled(pictures, (0, 240))


def tiled(rows: Sequence[Sequence[Picture]], size: tuple[int, int]) -> Image.Image:
    """Rows of pictures on white, each resized to `size` (width, height); width 0 keeps the aspect.

    The image is shrunk to LONGEST_SIDE if it is larger.
    """
    from PIL import Image

    width, height = size
    scaled = [[_scaled(picture, width, height) for picture in row] for row in rows]
    widest = max(sum(picture.width + _GAP for picture in row) for row in scaled) - _GAP
    image = Image.new("RGB", (widest, len(scaled) * (height + _GAP) - _GAP), _PAPER)
    for number, row in enumerate(scaled):
        x = 0
        for picture in row:
            image.paste(picture, (x, number * (height + _GAP)))
            x += picture.width + _GAP
    image.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    return image


def _scaled(picture: Picture, width: int, height: int) -> Image.Image:
    from PIL import Image

    image = Image.fromarray(picture)
    size = (width or max(1, round(image.width * height / image.height)), height)
    return image if image.size == size else image.resize(size, Image.Resampling.LANCZOS)
