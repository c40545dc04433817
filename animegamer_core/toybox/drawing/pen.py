"""The pen: draws outlined shapes in frame coordinates on an enlarged Pillow image.

Lengths are units of a frame of 144 x 96, which is drawn larger; y points down; angles are in degrees, clockwise on
screen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
from PIL import Image, ImageDraw

WIDE, HIGH = 144, 96  # the frame, in the units that everything is drawn in
RGB = tuple[int, int, int]
Point = tuple[float, float]


def mix(first: RGB, second: RGB, fraction: float) -> RGB:
    """Return `first` moved towards `second` by `fraction` (0..1)."""
    red, green, blue = (round(a + (b - a) * fraction) for a, b in zip(first, second, strict=True))
    return red, green, blue


@dataclass(frozen=True)
class Light:
    """How a light changes colours: gain and lift per channel, then a fraction of a tint. `ink` tints outlines."""

    ink: RGB
    gain: tuple[float, float, float] = (1.0, 1.0, 1.0)
    lift: RGB = (0, 0, 0)
    tint: RGB = (255, 255, 255)
    fraction: float = 0.0

    def on(self, colour: RGB) -> RGB:
        """Return a colour under this light."""
        return _lit(self, colour)

    def line(self, colour: RGB) -> RGB:
        """Return the outline's colour for a surface of this colour, to which the light was already applied."""
        return _inked(colour, self.ink)


@lru_cache(maxsize=4096)
def _lit(light: Light, colour: RGB) -> RGB:
    lit = [c * g + up for c, g, up in zip(colour, light.gain, light.lift, strict=True)]
    tinted = [c + (t - c) * light.fraction for c, t in zip(lit, light.tint, strict=True)]
    red, green, blue = (max(0, min(255, round(c))) for c in tinted)
    return red, green, blue


_inked = lru_cache(maxsize=4096)(partial(mix, fraction=0.5))


@lru_cache(maxsize=64)
def _circle(points: int) -> np.ndarray:
    angles = np.linspace(0, 2 * math.pi, points, endpoint=False)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


@lru_cache(maxsize=64)
def spline(knots: int, steps: int = 5) -> np.ndarray:
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


@dataclass(frozen=True)
class Pen:
    """Draws lit, outlined shapes through an affine map (a, b, c, d, x, y) from local to canvas pixels."""

    draw: ImageDraw.ImageDraw
    light: Light
    matrix: tuple[float, float, float, float, float, float]
    soft: ImageDraw.ImageDraw  # blends translucent colours into an image without alpha
    outline: float = 0.7

    @classmethod
    def on(cls, image: Image.Image, light: Light, scale: float, origin: Point) -> Pen:
        """Return a pen for an image enlarged by `scale`, with its (0, 0) at `origin` in frame pixels."""
        matrix = (scale, 0.0, 0.0, scale, origin[0] * scale, origin[1] * scale)
        return cls(ImageDraw.Draw(image), light, matrix, ImageDraw.Draw(image, "RGBA"))

    def at(self, x: float, y: float, angle: float = 0.0, scale: float = 1.0) -> Pen:
        """Return a pen whose origin is at (x, y), turned by `angle` and enlarged by `scale`."""
        a, b, c, d, e, f = self.matrix
        cos, sin = scale * math.cos(math.radians(angle)), scale * math.sin(math.radians(angle))
        turned = (a * cos + b * sin, b * cos - a * sin, c * cos + d * sin, d * cos - c * sin)
        return Pen(self.draw, self.light, (*turned, a * x + b * y + e, c * x + d * y + f), self.soft, self.outline)

    def under(self, light: Light) -> Pen:
        """Return the same pen with another light."""
        return replace(self, light=light)

    def unlit(self) -> Pen:
        """Return the pen without the scene's light, for things that glow."""
        return self.under(Light(self.light.ink))

    def shape(self, points: Sequence[Point] | np.ndarray, fill: RGB, *, line: bool = True) -> None:
        """Fill a polygon; with `line`, give it an outline of its own colour mixed with the light's ink."""
        xy = self._canvas(np.asarray(points, dtype=float))
        colour = self.light.on(fill)
        if line:
            width = max(1, round(2 * self.outline * self._scale()))
            self.draw.line([*xy, *xy[:4]], fill=self.light.line(colour), width=width)
        self.draw.polygon(xy, fill=colour)

    def box(self, left: float, top: float, right: float, bottom: float, fill: RGB, *, line: bool = True) -> None:
        """Fill a rectangle."""
        self.shape([(left, top), (right, top), (right, bottom), (left, bottom)], fill, line=line)

    def blob(self, knots: Sequence[Point] | np.ndarray, fill: RGB, *, line: bool = True) -> None:
        """Fill the smooth closed curve through the knots."""
        self.shape(spline(len(knots)) @ np.asarray(knots, dtype=float), fill, line=line)

    def oval(self, x: float, y: float, rx: float, ry: float, fill: RGB, *, line: bool = True) -> None:
        """Fill an ellipse with radii rx and ry around (x, y)."""
        unit = _circle(16 if max(rx, ry) < 5 else 28)
        colour = self.light.on(fill)
        if line:
            grown = unit * (rx + self.outline, ry + self.outline) + (x, y)
            self.draw.polygon(self._canvas(grown), fill=self.light.line(colour))
        self.draw.polygon(self._canvas(unit * (rx, ry) + (x, y)), fill=colour)

    def stroke(self, points: Sequence[Point] | np.ndarray, width: float, fill: RGB, *, line: bool = True) -> None:
        """Draw a path of this width, with round ends and joints."""
        a, b, c, d, e, f = self.matrix  # quicker than numpy for the few points of a path
        xy = [round(number) for x, y in points for number in (a * x + b * y + e, c * x + d * y + f)]
        colour = self.light.on(fill)
        if line:
            self._path(xy, width + 2 * self.outline, self.light.line(colour))
        self._path(xy, width, colour)

    def shade(self, x: float, y: float, rx: float, ry: float, alpha: int) -> None:
        """Draw a translucent dark ellipse (a shadow on the ground); an RGBA image must be empty. alpha: 0..255."""
        self.soft.polygon(self._canvas(_circle(28) * (rx, ry) + (x, y)), fill=(36, 30, 64, alpha))

    def _path(self, xy: list[int], width: float, colour: RGB) -> None:
        thick = max(1, round(width * self._scale()))
        self.draw.line(xy, fill=colour, width=thick)
        radius = thick / 2 - 0.5
        for x, y in zip(xy[::2], xy[1::2], strict=True):
            self.draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)

    def _scale(self) -> float:
        a, b, c, d, _, _ = self.matrix
        return math.sqrt(abs(a * d - b * c))

    def _canvas(self, points: np.ndarray) -> list[int]:
        a, b, c, d, e, f = self.matrix
        moved = points @ np.array(((a, c), (b, d))) + (e, f)
        return np.rint(moved).astype(int).ravel().tolist()
