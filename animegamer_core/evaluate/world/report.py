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
from ..estimates import FEW, Estimate
from ..report import machine
from ..similarity import STAND_IN
from .metrics import MAIN_TABLE, METRICS, PAPER, SOURCE, Metric, estimates_of
from .records import ABOUT, PlayedRun, differences, read_asked, read_run

SAME = ("benchmark", "towers", "motion", "references")  # keys of run.json that must be equal if runs are compared
JSON, MARKDOWN = "report.json", "report.md"
NONE = "-"
UNINFORMATIVE = "(!)"  # after the name of a row in which true shots score worse than a player


@dataclass(frozen=True)
class PaperTable:
    """The table of a run and of those next to it.

    columns: each player's estimates by metric, our run's first. truth: the name of the column of true shots, "" if
    there is none. facts: what is needed to repeat it. remarks: for the reader.
    """

    run: PlayedRun
    columns: Mapping[str, Mapping[str, Estimate]]
    truth: str
    facts: Mapping[str, Any]
    remarks: tuple[str, ...]

    def label(self, metric: Metric) -> str:
        """A row's name, with a note if the Toybox's own models computed it, and a mark if it cannot rank players."""
        stand_in = metric.by_model and self.run.asked["towers"]["stand_in"]
        name = f"{metric.name} ({STAND_IN})" if stand_in else metric.name
        return f"{name} {UNINFORMATIVE}" if self.beats_truth(metric) else name

    def beats_truth(self, metric: Metric) -> str | None:
        """The first player that scores better than the true shots beside it, if any: the row cannot rank players."""
        if not metric.by_model or not self.truth:
            return None
        found = {name: estimates[metric.key] for name, estimates in self.columns.items()}
        true = found.pop(self.truth)
        return next((name for name, one in found.items() if true.count and one.count and one.value > true.value), None)

    @property
    def table(self) -> str:
        """The table as Markdown, with aligned columns so that it is readable as plain text."""
        rows = [["metric", "better", *self.columns, "n", *(f"{name} (paper)" for name in PAPER)]]
        for metric in METRICS:
            found = [estimates[metric.key] for estimates in self.columns.values()]
            counts = list(dict.fromkeys(str(estimate.count) for estimate in found))
            count = counts[0] if len(counts) == 1 else "/".join(str(estimate.count) for estimate in found)
            paper = [_published(metric.published(player), metric.unit) for player in PAPER]
            cells = [_cell(estimate, metric.unit) for estimate in found]
            rows.append([self.label(metric), "higher" if metric.higher else "lower", *cells, count, *paper])
        return _aligned(rows)

    @property
    def text(self) -> str:
        """The printed report: heading, table and remarks."""
        return "\n\n".join([self.heading, self.table, *(f"({remark})" for remark in self.all_remarks)])

    @property
    def all_remarks(self) -> list[str]:
        """The remarks, and those on uninformative rows."""
        return [*self.remarks] + [
            f"{self.label(metric)} cannot rank players: {name} scores better than the true shots"
            for metric in METRICS
            if (name := self.beats_truth(metric))
        ]

    @property
    def heading(self) -> str:
        """The player, the number of games and turns, and the world whose motion settings were used."""
        games, asked = self.run.games, self.run.asked
        counts = f"{counted(len(games), 'game')}, {counted(sum(len(game.turns) for game in games), 'turn')}"
        return f"{next(iter(self.columns))}: {counts}, measured like world {asked['world']['name']!r}"

    @property
    def markdown(self) -> str:
        """The whole report as Markdown."""
        parts = ["# The paper's table", self.heading, self.table]
        parts.append(
            "95 % intervals in brackets: for fractions Wilson's, with a smaller effective count if the turns of a "
            f"game go wrong together; for means a bootstrap over games (2,000 draws). The paper's values ({SOURCE}, "
            f"{MAIN_TABLE}) are for its own models, films, characters and scoring models."
        )
        if self.all_remarks:
            parts += ["## Remarks", "\n".join(f"- {remark}" for remark in self.all_remarks)]
        definitions = (f"- **{self.label(metric)}**: {metric.about} *{metric.source}.*" for metric in METRICS)
        parts += ["## Definitions", "\n".join(definitions)]
        parts += ["## How it was made", f"```json\n{json.dumps(self.facts, indent=1)}\n```"]
        return "\n\n".join(parts) + "\n"

    def save(self, out: Path) -> list[Path]:
        """Write report.json and report.md; returns their paths."""
        values = {**self.facts, "rows": [self._row(metric) for metric in METRICS], "remarks": self.all_remarks}
        write_text(out / JSON, json.dumps(values, indent=1, allow_nan=False) + "\n")
        write_text(out / MARKDOWN, self.markdown)
        return [out / JSON, out / MARKDOWN]

    def _row(self, metric: Metric) -> dict[str, Any]:
        ours, *others = ((name, estimates[metric.key].json_values) for name, estimates in self.columns.items())
        return {
            "key": metric.key,
            "name": self.label(metric),
            "better": "higher" if metric.higher else "lower",
            "unit": metric.unit,
            **ours[1],
            "beside": dict(others),
            "paper": {name: value for name in PAPER if (value := metric.published(name)) is not None},
        }


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
    named = dict(zip(_names(runs), runs, strict=True))
    known = {name: value for name, value in run.asked.items() if name != ABOUT}
    return PaperTable(
        run,
        {name: estimates_of(one.games) for name, one in named.items()},
        next((name for name, one in named.items() if one.asked["player"].get("kind") == "truth"), ""),
        {**(facts or {}), **known, "machine": machine()},
        tuple(dict.fromkeys(remarks)),
    )


def number(value: float, unit: str = "") -> str:
    """A value as the table prints it."""
    return f"{value:.2f} {unit}" if unit else f"{value:.3f}"


def check_beside(asked: Mapping[str, Any], folder: Path) -> None:
    """ValueError if a folder is not a run, or not comparable with the run whose run.json holds `asked`."""
    other = read_asked(folder)
    if found := differences(other, {name: asked[name] for name in SAME if name in asked}):
        raise ValueError(f"{folder} has another {found} than this run; evaluate it with this run's options")


def _names(runs: Sequence[PlayedRun]) -> list[str]:
    """The players' names, made unique by their folders or a number."""
    plain = [clean_text(run.name) for run in runs]
    names = [name if plain.count(name) == 1 else f"{name} ({run.folder.name})" for name, run in zip(plain, runs)]  # noqa: B905
    return [f"{name} #{index + 1}" if names.count(name) > 1 else name for index, name in enumerate(names)]


def _cell(estimate: Estimate, unit: str) -> str:
    if estimate.count == 0:
        return NONE
    return f"{number(estimate.value, unit)} [{number(estimate.low)}, {number(estimate.high)}]"


def _published(value: float | None, unit: str) -> str:
    """One of the paper's values as the table prints it."""
    return NONE if value is None else f"{value:g} {unit}" if unit else f"{value:.3f}"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, every column as wide as its widest cell."""
    cells = [[cell.replace("|", "/") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, ["-" * width for width in widths])
    return "\n".join(f"| {' | '.join(map(str.ljust, row, widths))} |" for row in cells)
