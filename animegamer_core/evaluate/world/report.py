"""The finished table, as JSON, Markdown and text: our values next to the paper's."""

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
from .records import PlayedRun

JSON, MARKDOWN = "report.json", "report.md"


@dataclass(frozen=True)
class PaperTable:
    """The table of a run. estimates: by metric. metrics: the rows. facts: what is needed to repeat it."""

    name: str
    heading: str
    estimates: Mapping[str, Estimate]
    metrics: Sequence[Metric]
    facts: Mapping[str, Any]
    remarks: tuple[str, ...]

    @property
    def table(self) -> str:
        """The table as Markdown, every column as wide as its widest cell, so that it is readable as plain text."""
        rows = [["metric", "better", self.name, "n", *(f"{name} (paper)" for name in PAPER)]]
        for metric in self.metrics:
            found = self.estimates[metric.key]
            paper = [_published(metric.published(player), metric.unit) for player in PAPER]
            rows.append([metric.name, metric.better, _cell(found, metric.unit), str(found.count), *paper])
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
            paper = {name: value for name in PAPER if (value := metric.published(name)) is not None}
            about = {"key": metric.key, "name": metric.name, "better": metric.better, "unit": metric.unit}
            rows.append({**about, **self.estimates[metric.key].json_values, "paper": paper})
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


def table_of(run: PlayedRun, remarks: Sequence[str] = (), facts: Mapping[str, Any] | None = None) -> PaperTable:
    """The table of a finished run. facts: more to report, such as the command."""
    remarks, games, name = [*remarks], len(run.games), clean_text(run.name)
    if games == 1:
        remarks.append("only one game: the intervals of means are over its turns, which are correlated")
    elif games < FEW:
        remarks.append(f"only {games} games: the intervals of means are too narrow with so few")
    counts = f"{counted(games, 'game')}, {counted(sum(len(game.turns) for game in run.games), 'turn')}"
    return PaperTable(
        name,
        f"{name}: {counts}, measured like world {run.asked['world']['name']!r}",
        estimates_of(run.games),
        [metric for metric in METRICS if metric.model is None or metric.model in run.asked[FACTS]],
        {**(facts or {}), **run.asked, "machine": machine()},
        tuple(dict.fromkeys(remarks)),
    )


def _cell(estimate: Estimate, unit: str) -> str:
    if estimate.count == 0:
        return "-"
    value = f"{estimate.value:.2f} {unit}" if unit else f"{estimate.value:.3f}"
    return f"{value} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _published(value: float | None, unit: str) -> str:
    """One of the paper's values as the table prints it."""
    return "-" if value is None else f"{value:g} {unit}" if unit else f"{value:.3f}"
