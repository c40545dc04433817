"""Plots a run's losses with matplotlib, without a display."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..files import save_picture
from .log import read_log

if TYPE_CHECKING:
    from PIL import Image

SIZE = (960, 600)
_CURVES = {"loss": ("loss", "#2f74d0"), "held_out_loss": ("held-out loss", "#d07a1c")}
_RAGGED = 40  # a curve with at least this many points is also shown smoothed
_LOG_SCALE_FROM = 20.0  # the scale is logarithmic if the highest loss is more than this many times the lowest


def plot_log(log: Path, picture: Path) -> None:
    """Plot the training and held-out losses of a log as PNG; ValueError if nothing has been logged."""
    save_picture(draw_losses(read_log(log)), picture)


def draw_losses(lines: Sequence[Mapping[str, float]]) -> Image.Image:
    """A plot, 960 x 600, of the finite losses in logged lines over the steps; ValueError if there are none."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator
    from PIL import Image

    curves = {}
    for name in _CURVES:
        points = [(line["step"], line[name]) for line in lines if math.isfinite(line.get(name, math.nan))]
        if points:
            curves[name] = points
    if not curves:
        raise ValueError("no loss has been logged yet; train a step first")
    figure = Figure(figsize=(SIZE[0] / 100, SIZE[1] / 100), dpi=100, layout="constrained")
    axes = figure.add_subplot(xlabel="step")
    for name, points in curves.items():
        label, colour = _CURVES[name]
        if len(points) < _RAGGED:
            axes.plot(*zip(*points, strict=True), color=colour, marker="o", markersize=4, linewidth=2, label=label)
        else:
            axes.plot(*zip(*points, strict=True), color=colour, alpha=0.35, linewidth=1)
            axes.plot(*zip(*_smoothed(points), strict=True), color=colour, linewidth=2, label=label)
    losses = [loss for points in curves.values() for _, loss in points]
    if min(losses) > 0 and max(losses) / min(losses) > _LOG_SCALE_FROM:
        axes.set_yscale("log")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(color="#e6e8ec")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.frombytes("RGBA", canvas.get_width_height(), bytes(canvas.buffer_rgba())).convert("RGB")


def _smoothed(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Running means over a twentieth of the points, each at the middle of its points."""
    count = max(2, len(points) // 20)
    parts = [points[start : start + count] for start in range(len(points) - count + 1)]
    return [(sum(step for step, _ in part) / count, sum(loss for _, loss in part) / count) for part in parts]
