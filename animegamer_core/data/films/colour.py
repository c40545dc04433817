"""Converts a film's frames to RGB for display: colour matrix, range, rotation, mirroring, pixel aspect, HDR.

H height, W width of the displayed frame. PyAV is only imported when a frame is converted.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ...media.video import one_thread

if TYPE_CHECKING:
    from fractions import Fraction

    from av import VideoFrame
    from av.video.stream import VideoStream
    from numpy.typing import NDArray

HDR = {16: "pq", 18: "hlg"}  # transfer characteristics of ITU-T H.273 for HDR screens
_MATRIX = {1: 1, 4: 4, 5: 5, 6: 5, 7: 7, 9: 9, 10: 9}  # H.273 matrix coefficients -> libswscale's tables
_BT601, _BT709 = 5, 1
_LIMITED, _FULL = 1, 2

# BT.2087: light in BT.2020 primaries -> BT.709 primaries.
_TO_709 = np.array(
    [[1.6605, -0.5876, -0.0728], [-0.1246, 1.1329, -0.0083], [-0.0182, -0.1006, 1.1187]], dtype=np.float32
)
_WHITE = 203.0  # cd/m2 of paper white in HDR (BT.2408), which becomes the brightest value of the result
_PEAK = 1000.0  # cd/m2: peak brightness that most HDR films are graded for; headers often omit it
_SHADES = 4096  # entries of the lookup tables (12 bits)


class Display:
    """Converts the frames of one film to displayed RGB in the size of the first frame."""

    def __init__(self, frame: VideoFrame, stream: VideoStream) -> None:
        """frame: the film's first decoded frame."""
        from av.video.reformatter import VideoReformatter

        self._reformatter = VideoReformatter()  # one for all frames, since creating one is slow
        self.mirrored, self.turns = _position(frame)  # left to right, and then quarter turns to the left
        self.hdr = HDR.get(int(stream.codec_context.color_trc), "")
        self._width, self._height = _square_pixels(frame.width, frame.height, stream.sample_aspect_ratio)

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) as displayed."""
        return (self._width, self._height) if self.turns % 2 else (self._height, self._width)

    def show(self, frame: VideoFrame) -> NDArray[np.uint8]:
        """A frame as RGB (H, W, 3); PQ and HLG are tone-mapped to standard dynamic range."""
        matrix, pixels = _matrix(frame), frame.format
        is_full = pixels.is_rgb or pixels.name.startswith("yuvj") or int(frame.color_range) == _FULL
        shown: NDArray[Any] = self._reformatter.reformat(
            frame,
            self._width,
            self._height,
            "rgb48le" if self.hdr else "rgb24",
            src_colorspace=matrix,
            # RGB has no matrix, but PyAV before 17 applies the source's matrix only if the two differ.
            dst_colorspace=_BT709 if matrix == _BT601 else _BT601,
            src_color_range=_FULL if is_full else _LIMITED,
            dst_color_range=_FULL,
            **one_thread(),
        ).to_ndarray()
        if self.hdr:
            shown = tone_map(shown, self.hdr)
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


def tone_map(rgb_HW3: NDArray[np.uint16], transfer: str) -> NDArray[np.uint8]:
    """Convert a PQ or HLG picture (H, W, 3), 16-bit BT.2020, to 8-bit BT.709. transfer: 'pq' or 'hlg'.

    The curve of Report BT.2390 (section 5.4.1) compresses highlights from 1000 cd/m2 to paper white, per channel; the
    system gamma of HLG (1.2) is per channel too. Darker tones are unchanged.
    """
    light = _light_table(transfer)[rgb_HW3 >> 4].reshape(-1, 3) @ _TO_709.T
    codes = (np.clip(light, 0.0, 1.0) * (_SHADES - 1) + 0.5).astype(np.uint16)
    return _screen_table()[codes].reshape(rgb_HW3.shape)


@lru_cache(maxsize=2)
def _light_table(transfer: str) -> NDArray[np.float32]:
    """Code value (12 bit) -> linear light after the roll-off, 0..1; 1 is paper white."""
    code = np.linspace(0.0, 1.0, _SHADES)
    pq = code if transfer == "pq" else _pq_code(_PEAK * _hlg_scene(code) ** 1.2)
    peak, white = _pq_code(np.array([_PEAK, _WHITE]))
    return (_pq_light(_roll_off(np.minimum(pq / peak, 1.0), white / peak) * peak) / _WHITE).astype(np.float32)


@lru_cache(maxsize=1)
def _screen_table() -> NDArray[np.uint8]:
    """Linear light (12 bit) -> 8-bit code for a display gamma of 2.4 (BT.1886)."""
    return np.rint(255 * np.linspace(0.0, 1.0, _SHADES) ** (1 / 2.4)).astype(np.uint8)


def _pq_light(code: NDArray[np.floating]) -> NDArray[np.floating]:
    """SMPTE ST 2084: code 0..1 -> cd/m2."""
    power = code ** (1 / 78.84375)
    return 10000 * (np.maximum(power - 0.8359375, 0) / (18.8515625 - 18.6875 * power)) ** (1 / 0.1593017578125)


def _pq_code(light: NDArray[np.floating]) -> NDArray[np.floating]:
    power = (light / 10000) ** 0.1593017578125
    return ((0.8359375 + 18.8515625 * power) / (1 + 18.6875 * power)) ** 78.84375


def _hlg_scene(code: NDArray[np.floating]) -> NDArray[np.floating]:
    """ARIB STD-B67: code 0..1 -> scene light 0..1."""
    a, b, c = 0.17883277, 0.28466892, 0.55991073
    return np.where(code <= 0.5, code**2 / 3, (np.exp((code - c) / a) + b) / 12)


def _roll_off(code: NDArray[np.floating], highest: float) -> NDArray[np.floating]:
    """BT.2390's Hermite knee: identity below it, and 1 becomes `highest`."""
    knee = 1.5 * highest - 0.5
    t = np.maximum(code - knee, 0) / (1 - knee)
    curve = (2 * t**3 - 3 * t**2 + 1) * knee + (t**3 - 2 * t**2 + t) * (1 - knee) + (3 * t**2 - 2 * t**3) * highest
    return np.where(code < knee, code, curve)
