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

from ..files import save_picture, write_text
from ..spec import PROGRAM
from .estimates import Estimate

if TYPE_CHECKING:
    from PIL import Image

OK, SHORT, UNSURE = "ok", "short", "unsure"
SHEET_WIDTH = 1200  # px


@dataclass(frozen=True)
class Target:
    """The interval that a value must be in, ends included."""

    low: float = -math.inf
    high: float = math.inf


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
        target, found = self.target, self.estimate
        if target is None:
            return ""
        if target.low <= found.value <= target.high:
            return OK
        reached = found.count == 0 or (found.high >= target.low and found.low <= target.high)
        return UNSURE if few and reached else SHORT


@dataclass(frozen=True)
class Outcome:
    """The result of measuring one row: its lines, pictures by file name, and remarks.

    failed: the row's name if it could not be measured; its remarks then say why.
    """

    lines: Sequence[Line]
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
    def lines(self) -> list[Line]:
        return [line for outcome in self.outcomes for line in outcome.lines]

    @property
    def failed(self) -> list[str]:
        """The rows that could not be measured."""
        return [outcome.failed for outcome in self.outcomes if outcome.failed]

    @property
    def pictures(self) -> dict[str, Image.Image]:
        return {name: picture for outcome in self.outcomes for name, picture in outcome.pictures.items()}

    @property
    def short(self) -> bool:
        """Whether an estimate misses its target."""
        return any(line.verdict(self.few) == SHORT for line in self.lines)

    @property
    def text(self) -> str:
        notes = [f"({note})" for outcome in self.outcomes for note in outcome.notes]
        return "\n".join([TABLE_HEAD, *(table_line(line, self.few) for line in self.lines), *notes])

    def sheet(self) -> Image.Image | None:
        """All pictures in one column, each scaled to SHEET_WIDTH; None if no row has a picture."""
        from PIL import Image

        pictures = self.pictures.values()
        scaled = [one.resize((SHEET_WIDTH, round(one.height * SHEET_WIDTH / one.width))) for one in pictures]
        return Image.fromarray(np.vstack([np.asarray(one.convert("RGB")) for one in scaled])) if scaled else None

    def save(self, folder: Path) -> list[Path]:
        """Write report.json and the pictures; returns their paths."""
        lines = []
        for line in self.lines:
            ends = line.target and [end if math.isfinite(end) else None for end in (line.target.low, line.target.high)]
            about = {"row": line.row, "name": line.name, "unit": line.unit, "target": ends}
            lines.append({**about, **line.estimate.json_values, "verdict": line.verdict(self.few)})
        values = {
            **self.facts,
            "few_samples": self.few,
            "short": self.short,
            "partial": bool(self.to_come),
            "to_come": list(self.to_come),
            "failed": self.failed,
            "lines": lines,
            "notes": [note for outcome in self.outcomes for note in outcome.notes],
        }
        write_text(folder / "report.json", json.dumps(values, indent=2, allow_nan=False) + "\n")
        for name, picture in self.pictures.items():
            save_picture(picture, folder / f"{name}.png")
        return [folder / "report.json", *(folder / f"{name}.png" for name in self.pictures)]


TABLE_HEAD = f"{'row':9} {'measure':46} {'target':>16} {'n':>6} {'value':>9} {'95 % interval':>19}"


def table_line(line: Line, few: bool) -> str:
    """One line of the printed table: row, name, target, count, value, interval, verdict."""
    found, unit = line.estimate, line.unit
    target = _span(line.target.low, line.target.high, unit) if line.target else ""
    value, interval = (_number(found.value, unit), _span(found.low, found.high, unit)) if found.count else ("-", "-")
    row = f"{line.row:9} {line.name:46} {target:>16} {found.count:>6} {value:>9} {interval:>19}"
    return f"{row}  {line.verdict(few)}".rstrip()


def command_line() -> str:
    """The command that was typed, with the program's name instead of its path."""
    return shlex.join([*PROGRAM.split(), *sys.argv[1:]])


def machine() -> dict[str, str]:
    """The machine and the versions of the libraries that compute, for a report."""
    import torch

    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "processor": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none",
        **{name: metadata.version(name) for name in ("torch", "diffusers", "transformers", "numpy")},
    }


def _span(low: float, high: float, unit: str) -> str:
    if math.isinf(high):
        return f">= {_number(low, unit)}"
    if math.isinf(low):
        return f"<= {_number(high, unit)}"
    return f"{_number(low, unit)} .. {_number(high, unit)}"


def _number(value: float, unit: str) -> str:
    return f"{100 * value:.1f} %" if unit == "%" else f"{value:.3g} {unit}".rstrip()
