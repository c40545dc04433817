"""The finished table, as JSON, Markdown and text: our values next to other runs and the paper."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...data.stats import counted
from ...files import write_text
from ...game.state import clean_text
from ...weights.storage import write_json
from ..estimates import FEW, Estimate
from ..report import machine
from ..similarity import FACTS
from .metrics import MAIN_TABLE, METRICS, PAPER, SOURCE, Metric, estimates_of
from .records import PlayedRun, differences, read_asked, read_run

SAME = ("benchmark", FACTS, "motion", "references")  # keys of run.json that must be equal if runs are compared
JSON, MARKDOWN = "report.json", "report.md"


@dataclass(frozen=True)
class PaperTable:
    """The table of a run and of those next to it.

    columns: each player's estimates by metric, our run's first. metrics: the rows. facts: what is needed to repeat it.
    """

    heading: str
    columns: Mapping[str, Mapping[str, Estimate]]
    metrics: Sequence[Metric]
    facts: Mapping[str, Any]
    remarks: tuple[str, ...]

    @property
    def table(self) -> str:
        """The table as Markdown, every column as wide as its widest cell, so that it is readable as plain text."""
        rows = [["metric", "better", *self.columns, "n", *(f"{name} (paper)" for name in PAPER)]]
        for metric in self.metrics:
            found = [estimates[metric.key] for estimates in self.columns.values()]
            counts = [str(estimate.count) for estimate in found]
            count = counts[0] if len(set(counts)) == 1 else "/".join(counts)
            paper = [_published(metric.published(player), metric.unit) for player in PAPER]
            values = [_cell(estimate, metric.unit) for estimate in found]
            rows.append([metric.name, metric.better, *values, count, *paper])
        cells = [[cell.replace("|", "/") for cell in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        cells.insert(1, ["-" * width for width in widths])
        return "\n".join(f"| {' | '.join(map(str.ljust, row, widths))} |" for row in cells)

    @property
    def text(self) -> str:
        return "\n\n".join([self.heading, self.table, *(f"({remark})" for remark in self.remarks)])

    def save(self, out: Path) -> list[Path]:
        """Write report.json and report.md; returns their paths."""
        rows = []
        for metric in self.metrics:
            ours, *others = ((name, estimates[metric.key].json_values) for name, estimates in self.columns.items())
            paper = {name: value for name in PAPER if (value := metric.published(name)) is not None}
            about = {"key": metric.key, "name": metric.name, "better": metric.better, "unit": metric.unit}
            rows.append({**about, **ours[1], "beside": dict(others), "paper": paper})
        write_json(out / JSON, {**self.facts, "rows": rows, "remarks": self.remarks})
        intervals = (
            "95 % intervals in brackets: for fractions Wilson's, with a smaller effective count if the turns of a "
            f"game go wrong together; for means a bootstrap over games (2,000 draws). The paper's values ({SOURCE}, "
            f"{MAIN_TABLE}) are for its own models, films, characters and scoring models."
        )
        parts = ["# The paper's table", self.heading, self.table, intervals]
        parts += ["## Remarks", *(f"- {remark}" for remark in self.remarks)] if self.remarks else []
        definitions = (f"- **{metric.name}**: {metric.about} *{metric.source}.*" for metric in self.metrics)
        parts += ["## Definitions", *definitions]
        parts += ["## How it was made", f"```json\n{json.dumps(self.facts, indent=1)}\n```"]
        write_text(out / MARKDOWN, "\n\n".join(parts) + "\n")
        return [out / JSON, out / MARKDOWN]


def table_of(
    run: PlayedRun, beside: Sequence[Path] = (), remarks: Sequence[str] = (), facts: Mapping[str, Any] | None = None
) -> PaperTable:
    """The table of a finished run, next to other runs. facts: more to report, such as the command.

    ValueError if another run was measured differently, played another benchmark, or finished none of these games.
    """
    remarks, runs, wanted = [*remarks], [run], {game.name for game in run.games}
    if len(wanted) == 1:
        remarks.append("only one game: the intervals of means are over its turns, which are correlated")
    elif len(wanted) < FEW:
        remarks.append(f"only {len(wanted)} games: the intervals of means are too narrow with so few")
    for folder in beside:
        check_beside(run.asked, folder)
        other = read_run(folder)
        games = tuple(game for game in other.games if game.name in wanted)
        if not games:
            raise ValueError(f"{folder} has finished none of this run's games; play it with the same --limit first")
        if len(games) < len(wanted):
            remarks.append(f"{other.name} in {folder.name} has finished {len(games)} of these {len(wanted)} games")
        runs.append(PlayedRun(folder, other.asked, games))
    names = _names(runs)
    counts = f"{counted(len(wanted), 'game')}, {counted(sum(len(game.turns) for game in run.games), 'turn')}"
    return PaperTable(
        f"{names[0]}: {counts}, measured like world {run.asked['world']['name']!r}",
        {name: estimates_of(one.games) for name, one in zip(names, runs, strict=True)},
        [metric for metric in METRICS if metric.model is None or metric.model in run.asked[FACTS]],
        {**(facts or {}), **run.asked, "machine": machine()},
        tuple(dict.fromkeys(remarks)),
    )


def check_beside(asked: Mapping[str, Any], folder: Path) -> None:
    """ValueError if a folder is not a run, or not comparable with the run whose run.json holds `asked`."""
    other = read_asked(folder)
    if found := differences(other, {name: asked[name] for name in SAME if name in asked}):
        raise ValueError(f"{folder} differs from this run in: {found}; evaluate it with this run's options")


def _names(runs: Sequence[PlayedRun]) -> list[str]:
    """The players' names, made unique by their folders or a number."""
    plain = [clean_text(run.name) for run in runs]
    names = [name if plain.count(name) == 1 else f"{name} ({run.folder.name})" for name, run in zip(plain, runs)]  # noqa: B905
    return [f"{name} #{index + 1}" if names.count(name) > 1 else name for index, name in enumerate(names)]


def _cell(estimate: Estimate, unit: str) -> str:
    if estimate.count == 0:
        return "-"
    value = f"{estimate.value:.2f} {unit}" if unit else f"{estimate.value:.3f}"
    return f"{value} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _published(value: float | None, unit: str) -> str:
    """One of the paper's values as the table prints it."""
    return "-" if value is None else f"{value:g} {unit}" if unit else f"{value:.3f}"
