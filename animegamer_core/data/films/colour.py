"""Converts a film's frames to RGB for display: colours, rotation, mirroring, pixel aspect.

H height, W width of the displayed frame.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ...media.video import ColourConverter

if TYPE_CHECKING:
    from fractions import Fraction

    from av import VideoFrame
    from numpy.typing import NDArray


class Display:
    """Converts the frames of one film that have the shape of the first one to displayed RGB."""

    def __init__(self, frame: VideoFrame, pixels: Fraction | None) -> None:
        """frame: the first decoded one. pixels: the width of a stored pixel as a multiple of its height."""
        self._converter = ColourConverter()
        self.mirrored, self.turns = _position(frame)  # left to right, and then quarter turns to the left
        self._width, self._height = _square_pixels(frame.width, frame.height, pixels)

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) as displayed."""
        return (self._width, self._height) if self.turns % 2 else (self._height, self._width)

    def show(self, frame: VideoFrame) -> NDArray[np.uint8]:
        """A frame as RGB (H, W, 3)."""
        shown = self._converter.to_rgb(frame, self._width, self._height)
        return np.ascontiguousarray(np.rot90(shown[:, ::-1] if self.mirrored else shown, self.turns))


def _position(frame: VideoFrame) -> tuple[bool, int]:
    """(whether the stored picture is mirrored left to right, quarter turns to the left after that) to display it.

    PyAV's `rotation` alone would show a mirrored picture upside down.
    """
    try:
        held = bytes(frame.side_data.get("DISPLAYMATRIX", b""))
    except ValueError:  # data of a kind that this PyAV does not know
        held = b""
    if len(held) == 36:
        (a, b, _), (c, d, _), _ = np.frombuffer(held, np.int32).reshape(3, 3).tolist()  # x' = ax + cy, y' = bx + dy
        if a * d < b * c:
            return True, round(math.degrees(math.atan2(b, -a)) / 90) % 4
    return False, round(frame.rotation / 90) % 4


def _square_pixels(width: int, height: int, aspect: Fraction | None) -> tuple[int, int]:
    """The size in square pixels. aspect: of a stored pixel (width : height). Only stretches, so no detail is lost."""
    if not aspect or aspect == 1:
        return width, height
    return (round(width * aspect), height) if aspect > 1 else (width, round(height / aspect))
