"""An evaluation's report: estimates next to their targets, as text and json, and pictures."""

from __future__ import annotations

import json
import math
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..files import save_picture, write_text
from ..spec import PROGRAM
from .estimates import Estimate

if TYPE_CHECKING:
    from PIL import Image

OK, SHORT, UNSURE = "ok", "short", "unsure"
STRIP_FRAMES = 3  # of each clip in a comparison picture
SHEET_WIDTH = 1200  # px
LIBRARIES = ("torch", "diffusers", "transformers", "numpy", "opencv-python-headless")


@dataclass(frozen=True)
class Target:
    """The interval that a value must be in, ends included."""

    low: float = -math.inf
    high: float = math.inf

    def holds(self, value: float) -> bool:
        """Whether the value is in the interval; an unmeasured value is not."""
        return self.low <= value <= self.high

    def reached_by(self, estimate: Estimate) -> bool:
        """Whether the estimate's interval overlaps the target, so that more samples could still reach it."""
        return estimate.count == 0 or (estimate.high >= self.low and estimate.low <= self.high)


@dataclass(frozen=True)
class Line:
    """One estimate of a row. unit: how it is printed ("%": a fraction). target None: for information only."""

    row: str
    name: str
    estimate: Estimate
    target: Target | None = None
    unit: str = "%"

    def verdict(self, few: bool) -> str:
        """`ok` or `short`; "" without a target; `unsure` if samples are few and the interval reaches the target."""
        if self.target is None:
            return ""
        if self.target.holds(self.estimate.value):
            return OK
        return UNSURE if few and self.target.reached_by(self.estimate) else SHORT


@dataclass(frozen=True)
class Outcome:
    """The result of measuring one row: its lines, pictures by file name, and remarks.

    failed: the row's name if it could not be measured; its remarks then say why.
    """

    lines: tuple[Line, ...]
    pictures: Mapping[str, Image.Image] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    failed: str = ""


@dataclass(frozen=True)
class Report:
    """An evaluation. few: there are too few samples to be sure of every miss. facts: what is needed to repeat it.

    to_come: rows that are not measured yet; a report with such rows is partial.
    """

    outcomes: tuple[Outcome, ...]
    few: bool
    facts: Mapping[str, Any]
    to_come: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[Line, ...]:
        """All lines in order."""
        return tuple(line for outcome in self.outcomes for line in outcome.lines)

    @property
    def failed(self) -> tuple[str, ...]:
        """The rows that could not be measured."""
        return tuple(outcome.failed for outcome in self.outcomes if outcome.failed)

    @property
    def short(self) -> bool:
        """Whether an estimate misses its target."""
        return any(line.verdict(self.few) == SHORT for line in self.lines)

    @property
    def text(self) -> str:
        """The printed table with its remarks."""
        notes = [f"({note})" for outcome in self.outcomes for note in outcome.notes]
        notes += [f"(partial: {', '.join(self.to_come)} still to be measured)"] if self.to_come else []
        return "\n".join([TABLE_HEAD, *(table_line(line, self.few) for line in self.lines), *notes])

    def sheet(self) -> Image.Image | None:
        """All pictures in one column; None if no row has a picture."""
        pictures = [picture for outcome in self.outcomes for picture in outcome.pictures.values()]
        return stacked(pictures) if pictures else None

    def save(self, folder: Path) -> list[Path]:
        """Write report.json and the pictures; returns their paths."""
        values = {
            **self.facts,
            "few_samples": self.few,
            "short": self.short,
            "partial": bool(self.to_come),
            "to_come": list(self.to_come),
            "failed": list(self.failed),
            "lines": [_line_values(line, self.few) for line in self.lines],
            "notes": [note for outcome in self.outcomes for note in outcome.notes],
        }
        paths = [folder / "report.json"]
        write_text(paths[0], json.dumps(values, indent=2, allow_nan=False) + "\n")
        for outcome in self.outcomes:
            for name, picture in outcome.pictures.items():
                paths.append(folder / f"{name}.png")
                save_picture(picture, paths[-1])
        return paths


def stacked(pictures: Sequence[Image.Image]) -> Image.Image:
    """One or more pictures in one column, each scaled to SHEET_WIDTH."""
    from PIL import Image

    scaled = [
        picture.resize((SHEET_WIDTH, round(picture.height * SHEET_WIDTH / picture.width))) for picture in pictures
    ]
    sheet = Image.new("RGB", (SHEET_WIDTH, sum(picture.height for picture in scaled)), "white")
    top = 0
    for picture in scaled:
        sheet.paste(picture, (0, top))
        top += picture.height
    return sheet


def table_line(line: Line, few: bool) -> str:
    """One line of the printed table: row, name, target, count, value, interval, verdict."""
    estimate, unit = line.estimate, line.unit
    target = "" if line.target is None else _target_text(line.target, unit)
    value = "-" if estimate.count == 0 else _number(estimate.value, unit)
    interval = "-" if estimate.count == 0 else f"{_number(estimate.low, unit)} .. {_number(estimate.high, unit)}"
    verdict = line.verdict(few)
    return f"{line.row:9} {line.name:46} {target:>16} {estimate.count:>6} {value:>9} {interval:>19}  {verdict}".rstrip()


TABLE_HEAD = f"{'row':9} {'measure':46} {'target':>16} {'n':>6} {'value':>9} {'95 % interval':>19}"


def command_line() -> str:
    """The command that was typed, with the program's name instead of its path."""
    return shlex.join([*PROGRAM.split(), *sys.argv[1:]])


def machine() -> dict[str, str]:
    """The machine and the versions of the libraries that compute, for a report."""
    import torch

    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "absent"
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none"
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "processor": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "gpu": gpu,
        **versions,
    }


def strips(films: Sequence[Sequence[NDArray[np.uint8]]], labels: Sequence[str]) -> Image.Image:
    """Clips side by side: one row a scene, one block of three frames for each of `labels`.

    films: for each label, the clips (F, H, W, 3) of the scenes.
    """
    from PIL import Image, ImageDraw

    height, width = films[0][0].shape[1:3]
    block, head = STRIP_FRAMES * width, 16
    sheet = Image.new("RGB", (len(films) * (block + 6), head + len(films[0]) * (height + 4)), "white")
    pen = ImageDraw.Draw(sheet)
    for column, (label, clips) in enumerate(zip(labels, films, strict=True)):
        left = column * (block + 6)
        pen.text((left + 2, 2), label, fill="black")
        for row, clip in enumerate(clips):
            for tile, index in enumerate(np.linspace(0, len(clip) - 1, STRIP_FRAMES).round().astype(int)):
                picture = Image.fromarray(clip[index]).resize((width, height))
                sheet.paste(picture, (left + tile * width, head + row * (height + 4)))
    return sheet


def _line_values(line: Line, few: bool) -> dict[str, Any]:
    target = line.target
    ends = None if target is None else [end if math.isfinite(end) else None for end in (target.low, target.high)]
    about = {"row": line.row, "name": line.name, "unit": line.unit, "target": ends}
    return {**about, **line.estimate.json_values, "verdict": line.verdict(few)}


def _target_text(target: Target, unit: str) -> str:
    if math.isinf(target.high):
        return f">= {_number(target.low, unit)}"
    if math.isinf(target.low):
        return f"<= {_number(target.high, unit)}"
    return f"{_number(target.low, unit)} .. {_number(target.high, unit)}"


def _number(value: float, unit: str) -> str:
    if unit == "%":
        return f"{100 * value:.1f} %"
    return f"{value:.3g} {unit}".rstrip()
