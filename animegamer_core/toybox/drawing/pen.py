"""The pen: draws outlined, cel-shaded shapes in frame units on an enlarged sheet, and notes whose shapes they are.

Lengths are units of a frame of 144 x 96, whatever the picture's own size; y points down; angles are in degrees,
clockwise on screen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import cv2
import numpy as np

RGB = tuple[int, int, int]
Point = tuple[float, float]
SHIFT = 4  # fractional bits of OpenCV's coordinates
BACKDROP = 1  # who the shapes of props and furniture belong to; figures have 2, 3, ...


def mix(first: RGB, second: RGB, fraction: float) -> RGB:
    """Return `first` moved towards `second` by `fraction` (0..1)."""
    red, green, blue = (round(a + (b - a) * fraction) for a, b in zip(first, second, strict=True))
    return red, green, blue


@dataclass(frozen=True)
class Light:
    """How a light changes colours: gain and lift per channel, then a fraction of a tint."""

    gain: tuple[float, float, float] = (1.0, 1.0, 1.0)
    lift: RGB = (0, 0, 0)
    tint: RGB = (255, 255, 255)
    fraction: float = 0.0

    def on(self, colour: RGB) -> RGB:
        """Return a colour under this light."""
        return _lit(self, colour)


@dataclass(frozen=True)
class Line:
    """How a film draws: the outline's width in units, its ink, how much of it is ink rather than the surface's own
    colour, and the colour that shaded parts move towards (None: flat), by `depth`.
    """

    width: float
    ink: RGB
    fraction: float = 0.6
    shade: RGB | None = None
    depth: float = 0.25


@lru_cache(maxsize=1 << 15)
def _lit(light: Light, colour: RGB) -> RGB:
    lit = [c * g + up for c, g, up in zip(colour, light.gain, light.lift, strict=True)]
    tinted = [c + (t - c) * light.fraction for c, t in zip(lit, light.tint, strict=True)]
    red, green, blue = (max(0, min(255, round(c))) for c in tinted)
    return red, green, blue


@lru_cache(maxsize=64)
def _circle(points: int) -> np.ndarray:
    angles = np.linspace(0, 2 * math.pi, points, endpoint=False)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


@lru_cache(maxsize=64)
def _spline(knots: int, steps: int = 6) -> np.ndarray:
    """Return the matrix (knots * steps, knots) that turns knots into points of a closed Catmull-Rom curve."""
    t = np.arange(steps)[:, None] / steps
    basis = np.concatenate(
        [-t + 2 * t**2 - t**3, 2 - 5 * t**2 + 3 * t**3, t + 4 * t**2 - 3 * t**3, -(t**2) + t**3], axis=1
    )
    matrix = np.zeros((knots, steps, knots))
    for knot in range(knots):
        for column in range(4):
            matrix[knot, :, (knot + column - 1) % knots] += basis[:, column] / 2
    return matrix.reshape(knots * steps, knots)


class Sheet:
    """What is drawn: colours (H, W, 3), whose shape each pixel is (H, W; 0: nobody's), and shadows (H, W)."""

    def __init__(self, height: int, width: int) -> None:
        self.colours = np.zeros((height, width, 3), np.uint8)
        self.owners = np.zeros((height, width), np.uint8)
        self.shadows = np.zeros((height, width), np.uint8)

    def clear(self) -> None:
        """Make everything empty."""
        for plane in (self.colours, self.owners, self.shadows):
            plane.fill(0)


@dataclass(frozen=True)
class Pen:
    """Draws through an affine map (a, b, c, d, x, y) from local units to the sheet's pixels.

    owner: whom the shapes belong to. cel: whether surfaces have a lit and a shaded part.
    """

    sheet: Sheet
    light: Light
    line: Line
    matrix: tuple[float, float, float, float, float, float]
    owner: int = BACKDROP
    cel: bool = False

    @classmethod
    def on(cls, sheet: Sheet, light: Light, line: Line, scale: float, origin: Point) -> Pen:
        """Return a pen for a sheet of `scale` pixels per unit, with its (0, 0) at `origin` in units."""
        return cls(sheet, light, line, (scale, 0.0, 0.0, scale, origin[0] * scale, origin[1] * scale))

    def at(self, x: float, y: float, angle: float = 0.0, scale: float = 1.0) -> Pen:
        """Return a pen whose origin is at (x, y), turned by `angle` and enlarged by `scale`."""
        a, b, c, d, e, f = self.matrix
        cos, sin = scale * math.cos(math.radians(angle)), scale * math.sin(math.radians(angle))
        turned = (a * cos + b * sin, b * cos - a * sin, c * cos + d * sin, d * cos - c * sin)
        return replace(self, matrix=(*turned, a * x + b * y + e, c * x + d * y + f))

    def flipped(self) -> Pen:
        """Return a pen whose x axis points the other way."""
        a, b, c, d, e, f = self.matrix
        return replace(self, matrix=(-a, b, -c, d, e, f))

    def under(self, light: Light) -> Pen:
        """Return the same pen with another light."""
        return replace(self, light=light)

    def shape(self, points: Sequence[Point] | np.ndarray, fill: RGB, *, line: bool = True, cel: bool = True) -> None:
        """Fill a polygon; with `line`, outline it. cel: whether a pen that shades shades this one (convex shapes)."""
        self._polygon(self._pixels(np.asarray(points, dtype=float)), fill, line, cel)

    def box(self, left: float, top: float, right: float, bottom: float, fill: RGB, *, line: bool = True) -> None:
        """Fill a rectangle."""
        self.shape([(left, top), (right, top), (right, bottom), (left, bottom)], fill, line=line)

    def blob(self, knots: Sequence[Point] | np.ndarray, fill: RGB, *, line: bool = True, cel: bool = True) -> None:
        """Fill the smooth closed curve through the knots."""
        self.shape(_spline(len(knots)) @ np.asarray(knots, dtype=float), fill, line=line, cel=cel)

    def oval(self, x: float, y: float, rx: float, ry: float, fill: RGB, *, line: bool = True) -> None:
        """Fill an ellipse with radii rx and ry around (x, y)."""
        self.shape(_circle(16 if max(rx, ry) < 3 else 32) * (rx, ry) + (x, y), fill, line=line)

    def stroke(
        self, points: Sequence[Point] | np.ndarray, width: float, fill: RGB, *, line: bool = True, cel: bool = True
    ) -> None:
        """Draw a path of this width, with round ends and joints."""
        pixels, colour, size = self._pixels(np.asarray(points, dtype=float)), self.light.on(fill), self._scale()
        if line:
            self._path(pixels, (width + 2 * self.line.width) * size, self._ink(colour))
        shaded = self.cel and cel and self.line.shade is not None and width > 2
        self._path(pixels, width * size, self._shaded(colour) if shaded else colour)
        if shaded:
            self._path(pixels - (0.13 * width * size, 0.1 * width * size), 0.72 * width * size, colour)

    def shade(self, x: float, y: float, rx: float, ry: float, alpha: int) -> None:
        """Draw a translucent dark ellipse on what is behind the sheet: a shadow on the ground. alpha: 0..255."""
        pixels = self._pixels(_circle(32) * (rx, ry) + (x, y))
        cv2.fillPoly(self.sheet.shadows, [_fixed(pixels)], alpha, cv2.LINE_8, SHIFT)

    def _polygon(self, pixels: np.ndarray, fill: RGB, line: bool, cel: bool) -> None:
        colour = self.light.on(fill)
        xy = _fixed(pixels)
        if line:
            width = max(1, round(2 * self.line.width * self._scale()))
            ink = self._ink(colour)
            cv2.polylines(self.sheet.colours, [xy], True, ink, width, cv2.LINE_8, SHIFT)
            cv2.polylines(self.sheet.owners, [xy], True, self.owner, width, cv2.LINE_8, SHIFT)
        cv2.fillPoly(self.sheet.owners, [xy], self.owner, cv2.LINE_8, SHIFT)
        if self.cel and cel and self.line.shade is not None:
            cv2.fillPoly(self.sheet.colours, [xy], self._shaded(colour), cv2.LINE_8, SHIFT)
            low, high = pixels.min(axis=0), pixels.max(axis=0)
            middle, reach = (low + high) / 2, (high - low).min()
            lit = middle + (pixels - middle) * 0.87 - (0.05 * reach, 0.045 * reach)
            cv2.fillPoly(self.sheet.colours, [_fixed(lit)], colour, cv2.LINE_8, SHIFT)
        else:
            cv2.fillPoly(self.sheet.colours, [xy], colour, cv2.LINE_8, SHIFT)

    def _path(self, pixels: np.ndarray, width: float, colour: RGB) -> None:
        xy, thick = _fixed(pixels), max(1, round(width))
        for plane, value in ((self.sheet.colours, colour), (self.sheet.owners, self.owner)):
            cv2.polylines(plane, [xy], False, value, thick, cv2.LINE_8, SHIFT)  # OpenCV rounds the ends

    def _ink(self, colour: RGB) -> RGB:
        return mix(colour, self.line.ink, self.line.fraction)

    def _shaded(self, colour: RGB) -> RGB:
        return mix(colour, self.line.shade, self.line.depth)

    def _scale(self) -> float:
        a, b, c, d, _, _ = self.matrix
        return math.sqrt(abs(a * d - b * c))

    def _pixels(self, points: np.ndarray) -> np.ndarray:
        a, b, c, d, e, f = self.matrix
        return points @ np.array([[a, c], [b, d]]) + (e, f)


def _fixed(pixels: np.ndarray) -> np.ndarray:
    """Pixels as OpenCV's fixed-point numbers."""
    return np.rint(pixels * 2**SHIFT).astype(np.int32)
