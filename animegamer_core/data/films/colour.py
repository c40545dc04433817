"""Converts a film's frames to RGB for display: colour matrix, range, rotation, mirroring, pixel aspect.

H height, W width of the displayed frame. PyAV is only imported when a frame is converted.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ...media.video import one_thread

if TYPE_CHECKING:
    from fractions import Fraction

    from av import VideoFrame
    from av.video.stream import VideoStream
    from numpy.typing import NDArray

_MATRIX = {1: 1, 4: 4, 5: 5, 6: 5, 7: 7, 9: 9, 10: 9}  # H.273 matrix coefficients -> libswscale's tables
_BT601, _BT709 = 5, 1
_LIMITED, _FULL = 1, 2


class Display:
    """Converts the frames of one film to displayed RGB in the size of the first frame."""

    def __init__(self, frame: VideoFrame, stream: VideoStream) -> None:
        """frame: the film's first decoded frame."""
        from av.video.reformatter import VideoReformatter

        self._reformatter = VideoReformatter()  # one for all frames, since creating one is slow
        self.mirrored, self.turns = _position(frame)  # left to right, and then quarter turns to the left
        self._width, self._height = _square_pixels(frame.width, frame.height, stream.sample_aspect_ratio)

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) as displayed."""
        return (self._width, self._height) if self.turns % 2 else (self._height, self._width)

    def show(self, frame: VideoFrame) -> NDArray[np.uint8]:
        """A frame as RGB (H, W, 3)."""
        matrix, pixels = _matrix(frame), frame.format
        is_full = pixels.is_rgb or pixels.name.startswith("yuvj") or int(frame.color_range) == _FULL
        shown = self._reformatter.reformat(
            frame,
            self._width,
            self._height,
            "rgb24",
            src_colorspace=matrix,
            # RGB has no matrix, but PyAV before 17 applies the source's matrix only if the two differ.
            dst_colorspace=_BT709 if matrix == _BT601 else _BT601,
            src_color_range=_FULL if is_full else _LIMITED,
            dst_color_range=_FULL,
            **one_thread(),
        ).to_ndarray()
        return np.ascontiguousarray(np.rot90(shown[:, ::-1] if self.mirrored else shown, self.turns))


def _position(frame: VideoFrame) -> tuple[bool, int]:
    """(whether the stored picture is mirrored left to right, quarter turns to the left after that) to display it.

    PyAV's `rotation` alone would show a mirrored picture upside down.
    """
    try:
        held = [bytes(data) for data in frame.side_data if data.type.name == "DISPLAYMATRIX"]
    except ValueError:  # data of a kind that this PyAV does not know
        held = []
    if held and len(held[0]) == 36:
        (a, b, _), (c, d, _), _ = np.frombuffer(held[0], np.int32).reshape(3, 3).tolist()  # x' = ax + cy, y' = bx + dy
        if a * d < b * c:
            return True, round(math.degrees(math.atan2(b, -a)) / 90) % 4
    return False, round(frame.rotation / 90) % 4


def _square_pixels(width: int, height: int, aspect: Fraction | None) -> tuple[int, int]:
    """The size in square pixels. aspect: of a stored pixel (width : height). Only stretches, so no detail is lost."""
    if not aspect or aspect == 1:
        return width, height
    return (round(width * aspect), height) if aspect > 1 else (width, round(height / aspect))


def _matrix(frame: VideoFrame) -> int | None:
    """libswscale's YUV table for a frame. Like players, takes untagged frames for BT.709 if they are HD."""
    if frame.format.is_rgb:
        return None
    untagged = _BT709 if frame.width >= 1280 or frame.height > 576 else _BT601
    return _MATRIX.get(int(frame.colorspace), untagged)
