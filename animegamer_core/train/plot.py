"""The picture of a run's losses, drawn with Pillow alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ..data.plots import FAINT, GRID, INK, PAPER, SHARPER, put_words, round_numbers, round_ratios
from ..files import save_picture
from .log import read_log

if TYPE_CHECKING:
    from PIL import Image, ImageDraw

SIZE = (960, 600)
_BOX = (92, 56, 928, 532)  # left, top, right, bottom of the field
_CURVES = {"loss": ("loss", "#2f74d0", "#bdd3f1"), "held_out_loss": ("held-out loss", "#d07a1c", "#eed3b6")}
_RAGGED = 40  # points from which on a curve is also shown smoothed, over a twentieth of its length
_WIDE = 20.0  # highest / lowest loss from which on the scale is logarithmic

Points = list[tuple[float, float]]


def plot_log(log: Path, picture: Path) -> None:
    """Draw a log's losses, training and held out, as PNG; ValueError while nothing is logged."""
    save_picture(draw_losses(read_log(log)), picture)


def draw_losses(lines: Sequence[Mapping[str, float]]) -> Image.Image:
    """The finite losses of logged lines over their steps, 960 x 600; ValueError if there are none."""
    from PIL import Image, ImageDraw

    logged = {name: [(line["step"], line[name]) for line in lines if name in line] for name in _CURVES}
    curves = {name: [point for point in points if math.isfinite(point[1])] for name, points in logged.items()}
    curves = {name: points for name, points in curves.items() if points}
    if not curves:
        raise ValueError("no loss is logged yet; train a step first")
    sheet = Image.new("RGB", (SIZE[0] * SHARPER, SIZE[1] * SHARPER), PAPER)
    field = _Field(ImageDraw.Draw(sheet), tuple(point for points in curves.values() for point in points))
    field.grid()
    for number, (name, points) in enumerate(curves.items()):
        field.curve(points, *_CURVES[name][1:])
        field.legend(number, *_CURVES[name][:2])
    return sheet.resize(SIZE, Image.Resampling.LANCZOS)


@dataclass(frozen=True)
class _Field:
    """The field that curves are drawn in, and its scales."""

    draw: ImageDraw.ImageDraw
    points: tuple[tuple[float, float], ...]

    @cached_property
    def steps(self) -> tuple[float, float]:
        """First and last step shown."""
        last = max(step for step, _ in self.points)
        first = min(step for step, _ in self.points)
        return (first, last) if last > first else (first - 1, last + 1)

    @cached_property
    def losses(self) -> tuple[float, float]:
        """Lowest and highest loss shown, with a little room."""
        low, high = (end(loss for _, loss in self.points) for end in (min, max))
        if self.logarithmic:
            return low / 1.1, high * 1.1
        room = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
        return low - room, high + room

    @cached_property
    def logarithmic(self) -> bool:
        """Whether equal ratios, not differences, are equally high."""
        low, high = (end(loss for _, loss in self.points) for end in (min, max))
        return low > 0 and high / low > _WIDE

    def at(self, step: float, loss: float) -> tuple[float, float]:
        """Where a point lies on the sheet."""
        left, top, right, bottom = (SHARPER * edge for edge in _BOX)
        scale = math.log if self.logarithmic else float
        low, high, here = (scale(value) for value in (*self.losses, loss))
        along = (step - self.steps[0]) / (self.steps[1] - self.steps[0])
        return left + along * (right - left), bottom - (here - low) / (high - low) * (bottom - top)

    def grid(self) -> None:
        """Lines at round losses, round steps below, and what the axes are."""
        ticks = round_ratios(*self.losses) if self.logarithmic else round_numbers(*self.losses)
        for loss in ticks:
            (left, y), (right, _) = self.at(self.steps[0], loss), self.at(self.steps[1], loss)
            self.draw.line((left, y, right, y), fill=GRID, width=SHARPER)
            put_words(self.draw, (left / SHARPER - 10, y / SHARPER), f"{loss:.4g}", FAINT, "rm")
        for step in round_numbers(*self.steps):
            if step == round(step):
                x = self.at(step, self.losses[0])[0] / SHARPER
                put_words(self.draw, (x, _BOX[3] + 20), f"{step:g}", FAINT, "mm")
        put_words(self.draw, ((_BOX[0] + _BOX[2]) / 2, SIZE[1] - 24), "step", INK, "mm")

    def curve(self, points: Points, ink: str, faint: str) -> None:
        """A curve; a long one faintly, with its running mean on it."""
        width = 3 * SHARPER
        if len(points) >= _RAGGED:
            self.draw.line([self.at(*point) for point in points], fill=faint, width=SHARPER, joint="curve")
            points = _smoothed(points)
        places = [self.at(*point) for point in points]
        self.draw.line(places, fill=ink, width=width, joint="curve")
        for x, y in places if len(places) < _RAGGED else ():
            self.draw.ellipse((x - width, y - width, x + width, y + width), fill=ink)

    def legend(self, number: int, name: str, ink: str) -> None:
        """What a curve is, above the field."""
        x, y = _BOX[0] + 180 * number, 28
        self.draw.line([SHARPER * value for value in (x, y, x + 26, y)], fill=ink, width=3 * SHARPER)
        put_words(self.draw, (x + 36, y), name, INK, "lm")


def _smoothed(points: Points) -> Points:
    """Running means over a twentieth of the points; each at the middle of its own."""
    count = max(2, len(points) // 20)
    parts = [points[start : start + count] for start in range(len(points) - count + 1)]
    return [(sum(step for step, _ in part) / count, sum(loss for _, loss in part) / count) for part in parts]
