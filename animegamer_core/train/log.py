"""What a run tells: its log, a line of JSON every few steps; the picture of its losses; and its messages."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..files import append_line, save_picture, write_text
from .checkpoints import CHECKPOINTS, list_checkpoints, step_of

if TYPE_CHECKING:
    from PIL import Image

LOG = "log.jsonl"
PICTURE, SHEETS = "loss.png", "shots"  # a picture, and the folder of contact sheets
_CURVES = {"loss": ("loss", "#2f74d0"), "held_out_loss": ("held-out loss", "#d07a1c")}
_RAGGED = 40  # a curve with at least this many points is also shown smoothed
_LOG_SCALE_FROM = 20.0  # the scale is logarithmic if the highest loss is more than this many times the lowest


def read_log(path: Path) -> list[dict[str, float]]:
    """The lines of a log; empty without a file. An incomplete last line of a killed run is skipped.

    ValueError for any other line that is not an object of numbers. Values that were not finite are left out.
    """
    lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            values = msgspec.json.decode(line, type=dict[str, int | float | None])
        except msgspec.MsgspecError as error:
            raise ValueError(f"{path}:{number}: {error}; delete the line") from error
        found.append({name: value for name, value in values.items() if value is not None})
    return found


class RunLog:
    """Appends to a run's log. Lines after the step that a run continues from are removed first."""

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        kept = [line for line in read_log(path) if line["step"] <= step]
        write_text(path, "".join(json.dumps(line) + "\n" for line in kept))

    def write(self, step: int, values: dict[str, float]) -> None:
        """Add a line; values that are not finite are written as null."""
        numbers = {name: value if math.isfinite(value) else None for name, value in values.items()}  # JSON has no NaN
        append_line(self.path, json.dumps({"step": step, **numbers}) + "\n")


def plot_log(log: Path, picture: Path) -> None:
    """Plot the training and held-out losses of a log as PNG; ValueError if nothing has been logged."""
    save_picture(draw_losses(read_log(log)), picture)


def draw_losses(lines: Sequence[Mapping[str, float]]) -> Image.Image:
    """A plot, 960 x 600, of the finite losses in logged lines over the steps; ValueError if there are none."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator
    from PIL import Image

    figure = Figure(figsize=(9.6, 6), dpi=100, layout="constrained")
    axes, losses = figure.add_subplot(xlabel="step"), []
    for name, (label, colour) in _CURVES.items():
        points = [(line["step"], line[name]) for line in lines if math.isfinite(line.get(name, math.nan))]
        losses += [loss for _, loss in points]
        look: dict[str, Any] = {"color": colour, "linewidth": 2, "label": label}
        if len(points) < _RAGGED:
            steps, values = zip(*points, strict=True) if points else ((), ())
            axes.plot(steps, values, marker="o", markersize=4, **look)
        else:  # the points, and running means over a twentieth of them
            axes.plot(*zip(*points, strict=True), color=colour, alpha=0.35, linewidth=1)
            weights = np.full(len(points) // 20, 1 / (len(points) // 20))
            axes.plot(*(np.convolve(side, weights, "valid") for side in zip(*points, strict=True)), **look)
    if not losses:
        raise ValueError("no loss has been logged yet; train a step first")
    if min(losses) > 0 and max(losses) / min(losses) > _LOG_SCALE_FROM:
        axes.set_yscale("log")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(color="#e6e8ec")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.frombytes("RGBA", canvas.get_width_height(), bytes(canvas.buffer_rgba())).convert("RGB")


REPORT_EVERY_S = 10.0  # between two lines about the same feature
Report = Callable[[str], object]  # prints or collects a line


class RunProgress:
    """Reports the progress of one run of a stage, line by line."""

    def __init__(self, stage: str, report: Report) -> None:
        self._stage, self._report = stage, report
        self._feature, self._reported = "", 0.0
        self._before = 0, 0.0

    def feature(self, name: str, done: int, count: int) -> None:
        """Report for how many clips a feature is computed: at the start, every 10 s, and at the end."""
        now = time.monotonic()
        if name == self._feature and done < count and now - self._reported < REPORT_EVERY_S:
            return
        self._feature, self._reported = name, now
        self._report(f"{'reading clips' if name == 'frames' else f'computing {name} of clips'}: {done} of {count}")

    def step(self, step: int, steps: int, values: dict[str, float]) -> None:
        """Report logged values, the mean seconds per step since the line before, and the time left at this pace."""
        before, seconds_before = self._before
        self._before = step, values["seconds"]
        pace = (values["seconds"] - seconds_before) / (step - before)
        shown = (f"{name} {value:.4g}" for name, value in values.items() if name != "seconds")
        left = f", {duration(pace * (steps - step))} left" if step < steps else ""
        self._report(f"{self._stage} {step}/{steps}  {'  '.join(shown)}  {pace:.2g} s a step{left}")


def duration(seconds: float) -> str:
    """A time as text: 45 s, 12 min, 3 h 05 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


def how_it_stopped(out: Path) -> str:
    """A sentence on what an interrupted run in this folder has saved, and how to continue."""
    saved = list_checkpoints(out / CHECKPOINTS)
    if not saved:
        return "stopped before a step was saved; the same command starts again"
    return f"stopped after step {step_of(saved[-1])}; the same command with --resume continues"
