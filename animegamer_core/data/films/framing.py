"""Crops the black borders of a film, scene by scene, and what a person asks for; resizes the rest to the clip's shape.

A border is black from side to side, and the picture begins right after it. Dark pictures, a lamp at night and the
letters of credits do not look like that: such scenes show no borders and get those of a scene near them.
F frames, H height, W width, C channels.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .film import FilmFrame
from .scenes import Crop, Scene

DARK = 28  # brightest channel of a black pixel: borders have noise, and some are not quite black
ALL = 255
_CLEAR = 0.3  # least fraction of bright pixels in the brighter lines of a picture that shows its borders
_BORDER, _PICTURE = 0.35, 0.5  # relative to those lines: most in a line of a border, least in a line of the picture
_SOMETHING = 0.1  # least fraction of bright pixels in a line that shows anything
_SOFT = 4  # pixels over which a border may blend into the picture
_ALIKE = 3  # pixels: borders that differ by less are the same


@dataclass(frozen=True)
class BorderSample:
    """Measurements of a frame's rows (2, H) and columns (2, W), 0..255.

    Index 0: the fraction of the line that is not dark (255: all of it). Index 1: its mean brightness.
    """

    seconds: float
    rows: NDArray[np.uint8]
    columns: NDArray[np.uint8]

    @property
    def shape(self) -> tuple[int, int]:
        """(height, width) of the frame."""
        return self.rows.shape[1], self.columns.shape[1]


def border_sample(frame: FilmFrame) -> BorderSample:
    """Measure the rows and columns of one frame; about three frames per second are enough."""
    rgb = frame.rgb
    brightest = np.maximum(np.maximum(rgb[..., 0], rgb[..., 1]), rgb[..., 2])
    shares = (brightest > DARK).view(np.uint8) * np.uint8(ALL)
    rows, columns = (np.stack([shares.mean(axis=axis), brightest.mean(axis=axis)]).astype(np.uint8) for axis in (1, 0))
    return BorderSample(frame.seconds, rows, columns)


def crops_of_scenes(samples: Sequence[BorderSample], scenes: Sequence[Scene]) -> list[Crop]:
    """The crop of each scene.

    A scene too dark or too short to show its borders gets the crop of the nearest scene that shows them, unless that
    would cut off something visible. If no scene shows borders, nothing is cropped.
    """
    sides = [_sides(_inside(samples, scene)) for scene in scenes]
    upright, level = (_borders([axes[axis] for axes in sides], scenes) for axis in (0, 1))
    return [Crop(*vertical, *horizontal) for vertical, horizontal in zip(upright, level, strict=True)]


def _inside(samples: Sequence[BorderSample], scene: Scene) -> Sequence[BorderSample]:
    """The samples of a scene, without those in its fades if there are others."""
    first, end = (bisect_left(samples, time, key=lambda sample: sample.seconds) for time in (scene.start, scene.end))
    own = samples[first:end]
    clear = [sample for sample in own if scene.start + scene.fade_in <= sample.seconds < scene.end - scene.fade_out]
    # Where the film changes its size, the first sample of a scene may still have the old one.
    return [sample for sample in clear or own if sample.shape == own[-1].shape]


Pair = tuple[int, int]  # pixels at two opposite sides


class _Side(NamedTuple):
    """What a scene shows at two opposite sides. borders: None if unknown. dark: how many dark lines are outside of
    everything visible, which a crop may remove; None if nothing is visible."""

    borders: Pair | None = None
    dark: Pair | None = None

    def allows(self, borders: Pair) -> bool:
        """Whether cropping these borders removes nothing visible from this scene."""
        return self.dark is None or all(other < own + _ALIKE for own, other in zip(self.dark, borders, strict=True))


def _sides(samples: Sequence[BorderSample]) -> tuple[_Side, _Side]:
    """The (top, bottom) and the (left, right) of one scene, from its frames."""
    if not samples:
        return _Side(), _Side()
    rows, columns = np.stack([sample.rows for sample in samples]), np.stack([sample.columns for sample in samples])
    # The median over the frames ignores flashes and short texts.
    usual = [np.quantile(lines, 0.5, axis=0, method="lower") / ALL for lines in (rows, columns)]
    most = [np.quantile(lines[:, 0], 0.9, axis=0, method="lower") / ALL for lines in (rows, columns)]
    heights = [float(np.quantile(lines[0], 0.9)) for lines in usual]
    is_clear = min(heights) >= _CLEAR
    rows_side, columns_side = (
        _side(lines[0] / max(height, _CLEAR), lines[1], fullest, is_clear)
        for lines, height, fullest in zip(usual, heights, most, strict=True)
    )
    return rows_side, columns_side


def _side(
    shares: NDArray[np.floating], light: NDArray[np.floating], fullest: NDArray[np.floating], is_clear: bool
) -> _Side:
    """What two opposite sides show, from measurements of each line.

    shares, light: the bright fraction, relative to that of the brighter lines, and the brightness, in most frames.
    fullest: the bright fraction in the fullest frames without flashes.
    """
    some = np.flatnonzero(fullest >= _SOMETHING)
    dark = (int(some[0]), int(len(fullest) - 1 - some[-1])) if some.size else None
    before, after = (_border(shares, light), _border(shares[::-1], light[::-1])) if is_clear else (None, None)
    if before is None or after is None:
        return _Side(None, dark)
    # Borders have about the same width on both sides; the rest is mostly a dark sky over bright ground.
    return _Side((before, after) if abs(before - after) <= _SOFT else (min(before, after),) * 2, dark)


def _border(shares: NDArray[np.floating], light: NDArray[np.floating]) -> int | None:
    """Width of the border before the first line of the picture; None if the picture may just be dark there."""
    if shares[0] >= _BORDER:
        return 0
    first = int(np.argmax(shares >= _PICTURE))
    outside = slice(0, max(1, first - _SOFT + 1))
    near = slice(max(0, first - 2 * _SOFT), outside.stop)  # no text is here; a picture's edge would be brighter
    inside = light[first : first + _SOFT].max()
    dark = light[near].max() <= inside / 4 and light[outside].max() <= inside / 2
    return first if shares[first] >= _PICTURE and shares[outside].max() < _BORDER and dark else None


def _borders(sides: Sequence[_Side], scenes: Sequence[Scene]) -> list[Pair]:
    """The borders of each scene at two opposite sides: its own, else those of the nearest scene that fit it."""

    def borrowed(side: _Side, scene: Scene) -> Pair:
        fitting = (
            (max(other.start - scene.end, scene.start - other.end), borders)
            for (borders, _), other in zip(sides, scenes, strict=True)
            if borders and side.allows(borders)
        )
        return min(fitting, default=(0, (0, 0)))[1]

    return [side.borders or borrowed(side, scene) for side, scene in zip(sides, scenes, strict=True)]


_MARGIN = re.compile(r"\s*(top|bottom|left|right)\s*[= ]\s*(?:(\d\d?(?:\.\d+)?)\s*%|(\d+)\s*px)\s*")


@dataclass(frozen=True)
class Margins:
    """What to cut away at each side: below 1 a fraction of the picture that clips would show, else pixels."""

    top: float = 0.0
    bottom: float = 0.0
    left: float = 0.0
    right: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Margins:
        """The margins of a text such as `top=10%,bottom=80px`, none of an empty one; ValueError for any other."""
        found = [_MARGIN.fullmatch(part) for part in text.split(",")] if text.strip() else []
        if None in found:
            raise ValueError(f"crop is {text!r}; expected sides in per cent or pixels, such as top=10%,bottom=80px")
        return cls(**{part[1]: float(part[2]) / 100 if part[2] else float(part[3]) for part in found})

    def within(self, borders: Crop, shape: Sequence[int], size: tuple[int, int]) -> Crop:
        """The crop of a frame of this shape (H, W, ...), in clips of this size. borders: its black ones."""
        edges, margins = np.array(astuple(borders)), np.array(astuple(self))  # top, bottom, left, right
        inner = np.repeat(shape[:2] - edges.reshape(2, 2).sum(axis=1), 2)
        shown = np.repeat(size, 2) * np.min(inner / np.repeat(size, 2))  # the rest is cut off for the clip's aspect
        cut = np.where(margins < 1, (margins > 0) * (inner - shown) / 2 + margins * shown, margins)
        return Crop(*(edges + cut.round().astype(int)).tolist())


def fit(frame_HWC: NDArray[np.uint8], crop: Crop, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Crop a frame's borders, centre-crop it to the aspect of `size` (height, width), and resize it to that size.

    Uses area interpolation to shrink and cubic interpolation to enlarge. ValueError if the crop leaves nothing.
    """
    import cv2

    top, bottom, left, right = astuple(crop)
    inner = frame_HWC[top : max(0, frame_HWC.shape[0] - bottom), left : max(0, frame_HWC.shape[1] - right)]
    if not inner.size:
        raise ValueError(f"the crop {crop} leaves nothing of a frame of {frame_HWC.shape[:2]}; make it smaller")
    height, width = size
    scale = max(height / inner.shape[0], width / inner.shape[1])
    kept = min(inner.shape[0], round(height / scale)), min(inner.shape[1], round(width / scale))
    y, x = ((have - keep) // 2 for have, keep in zip(inner.shape, kept, strict=False))
    interpolation = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    return cv2.resize(inner[y : y + kept[0], x : x + kept[1]], (width, height), interpolation=interpolation)
