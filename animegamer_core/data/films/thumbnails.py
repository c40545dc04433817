"""Thumbnails of a film's frames, and how much two of them differ apart from small motion.

Finding scenes compares many frames. Pictures of 48 x 27 pixels are enough for that, and they are what TransNetV2 reads.
H height, W width, C channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

SIZE = (48, 27)  # of a thumbnail, (W, H)
REACH = 2  # pixels of a thumbnail by which motion may move a patch: 36 pixels at 480 px height
PATCH = 5  # side of the patches that move as one
DARK, BRIGHT = 20.0, 235.0  # mean grey levels of a black and a white picture
FLAT, PLAIN = 6.0, 30.0  # largest standard deviation and range of a blank picture; letters exceed both
_MEAN = np.full((1, 3), 1 / 3)  # of the channels


def reduced(picture_HWC: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A frame (H, W, C) of any size as (27, 48, C)."""
    import cv2

    return cv2.resize(picture_HWC, SIZE, interpolation=cv2.INTER_AREA)


@dataclass(frozen=True, eq=False)  # hashed by identity, so that the change between two can be cached
class Thumbnail:
    """A frame's number in the film and its reduced picture (27, 48, C), 0..255."""

    number: int
    small_HWC: NDArray[np.float32]

    @classmethod
    def of(cls, number: int, picture_HWC: NDArray[np.uint8]) -> Thumbnail:
        """The thumbnail of a frame (H, W, C) of any size."""
        return cls(number, reduced(picture_HWC).astype(np.float32))

    @cached_property
    def contrast(self) -> float:
        """Local contrast: the mean distance of pixels from their neighbourhood, in grey levels."""
        import cv2

        return float(np.abs(self.small_HWC - cv2.blur(self.small_HWC, (9, 9))).mean())

    @cached_property
    def std(self) -> float:
        """The standard deviation of the picture's middle, where there are no borders or subtitles."""
        return float(self._middle().std())

    @cached_property
    def blank(self) -> str:
        """'black', 'white' or 'flat' (another tone) if the middle of the picture is blank, else ''."""
        middle = self._middle()
        if self.std > FLAT or np.ptp(middle) > PLAIN:
            return ""
        mean = float(middle.mean())
        return "black" if mean <= DARK else "white" if mean >= BRIGHT else "flat"

    def _middle(self) -> NDArray[np.float32]:
        height, width = self.small_HWC.shape[:2]
        return self.small_HWC[height // 4 : -(height // 4), width // 4 : -(width // 4)].mean(axis=-1)


def difference(first: Thumbnail, second: Thumbnail) -> float:
    """The mean difference of two thumbnails in grey levels; quick, and rarely less than their `change`."""
    return float(np.abs(first.small_HWC - second.small_HWC).mean())


def change(first: Thumbnail, second: Thumbnail) -> float:
    """The mean difference of two thumbnails in grey levels, where each patch may have moved by up to REACH pixels.

    It is small if only the camera or figures move from one frame to the next, and large for another picture.
    """
    return float(_changes(first, second).mean())


def changed_part(first: Thumbnail, second: Thumbnail) -> float:
    """The fraction of the picture where two thumbnails differ by at least half of their `change`.

    It is small if one quick thing appears or disappears, and large if the whole picture changes.
    """
    changes_HW = _changes(first, second)
    return float((changes_HW >= changes_HW.mean() / 2).mean())


def _changes(first: Thumbnail, second: Thumbnail) -> NDArray[np.float32]:
    """Each pixel's difference (H, W) in grey levels after the best motion of its patch."""
    import cv2

    height, width = first.small_HWC.shape[:2]
    padded = cv2.copyMakeBorder(first.small_HWC, REACH, REACH, REACH, REACH, cv2.BORDER_REPLICATE)
    least: NDArray[np.float32] | None = None
    for down in range(2 * REACH + 1):
        for right in range(2 * REACH + 1):
            shifted = padded[down : down + height, right : right + width]
            difference = cv2.blur(cv2.transform(cv2.absdiff(second.small_HWC, shifted), _MEAN), (PATCH, PATCH))
            least = difference if least is None else cv2.min(least, difference)
    assert least is not None
    return least
