"""Small pictures of a film's frames, and how unlike two of them are whatever moved a little between them.

Finding cuts compares many frames; a picture of 48 x 27 says enough and costs little. H height, W width, C channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIZE = (48, 27)  # of a small picture, (W, H)
TINY = (16, 9)  # so small that motion blurs away and only fades are seen
REACH = 2  # pixels of a small picture that a shift may explain: 36 pixels at 480 height
PATCH = 5  # side of the patches that shift as one
DARK, BRIGHT = 20.0, 235.0  # mean grey levels of a black and a white picture
FLAT, PLAIN = 6.0, 30.0  # the most that its pixels may differ: standard deviation and range, so that no letters fit in
_MEAN = np.full((1, 3), 1 / 3)  # of the channels


@dataclass(frozen=True)
class Look:
    """A frame of a film in small: its number in the film, and the picture (27, 48, C) in grey levels."""

    number: int
    small_HWC: NDArray[np.float32]

    @classmethod
    def of(cls, number: int, picture_HWC: NDArray[np.uint8]) -> Look:
        """The look of a frame (H, W, C) of any size."""
        import cv2

        return cls(number, cv2.resize(picture_HWC, SIZE, interpolation=cv2.INTER_AREA).astype(np.float32))

    @cached_property
    def tiny(self) -> NDArray[np.float32]:
        """The picture blurred to 16 x 9 x C numbers."""
        import cv2

        return cv2.resize(self.small_HWC, TINY, interpolation=cv2.INTER_AREA).ravel()

    @cached_property
    def contrast(self) -> float:
        """How much there is to see: the mean distance of pixels from their neighbourhood, in grey levels."""
        import cv2

        return float(np.abs(self.small_HWC - cv2.blur(self.small_HWC, (9, 9))).mean())

    @cached_property
    def spread(self) -> float:
        """The standard deviation of the picture's middle, which borders and subtitles leave alone."""
        return float(self._middle().std())

    @cached_property
    def blank(self) -> str:
        """'black' or 'white' where the middle shows nothing but that, 'flat' for another tone, '' for a picture."""
        middle = self._middle()
        if self.spread > FLAT or np.ptp(middle) > PLAIN:
            return ""
        mean = float(middle.mean())
        return "black" if mean <= DARK else "white" if mean >= BRIGHT else "flat"

    def _middle(self) -> NDArray[np.float32]:
        height, width = self.small_HWC.shape[:2]
        return self.small_HWC[height // 4 : -(height // 4), width // 4 : -(width // 4)].mean(axis=-1)


def change(first: Look, second: Look) -> float:
    """How unlike two pictures are, in grey levels, where each patch may have moved by up to REACH pixels.

    Camera and figures that move from one frame to the next leave little; another picture leaves much.
    """
    import cv2

    height, width = first.small_HWC.shape[:2]
    framed = cv2.copyMakeBorder(first.small_HWC, REACH, REACH, REACH, REACH, cv2.BORDER_REPLICATE)
    least: NDArray[np.float32] | None = None
    for down in range(2 * REACH + 1):
        for right in range(2 * REACH + 1):
            shifted = framed[down : down + height, right : right + width]
            unlike = cv2.blur(cv2.transform(cv2.absdiff(second.small_HWC, shifted), _MEAN), (PATCH, PATCH))
            least = unlike if least is None else cv2.min(least, unlike)
    assert least is not None
    return float(least.mean())
