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
from .metrics import MAIN_TABLE, METRICS, PAPER, SOURCE, Metric, confusion, estimates_of
from .records import ABOUT, PlayedRun, differences, read_asked, read_run

SAME = ("benchmark", "towers", "motion", "references")  # keys of run.json that must be equal if runs are compared
JSON, MARKDOWN = "report.json", "report.md"
NONE = "-"
UNINFORMATIVE = "(!)"  # after the name of a row in which true shots score worse than a player


@dataclass(frozen=True)
class Column:
    """A player's estimates by metric, and its counts of shots by requested and measured motion level.

    is_truth: whether its shots are the Toybox's true ones.
    """

    name: str
    estimates: Mapping[str, Estimate]
    confusion: tuple[tuple[int, ...], ...]
    games: int
    turns: int
    is_truth: bool = False

    @classmethod
    def of(cls, run: PlayedRun, name: str) -> Column:
        """A run's column."""
        turns, is_truth = sum(len(game.turns) for game in run.games), run.asked["player"].get("kind") == "truth"
        return cls(name, estimates_of(run.games), confusion(run.games), len(run.games), turns, is_truth)


@dataclass(frozen=True)
class PaperTable:
    """The columns, our run's first. run: our run. facts: what is needed to repeat it. remarks: for the reader."""

    run: PlayedRun
    columns: tuple[Column, ...]
    facts: Mapping[str, Any]
    remarks: tuple[str, ...]

    @property
    def ours(self) -> Column:
        """Our column."""
        return self.columns[0]

    def label(self, metric: Metric) -> str:
        """A row's name, with a note if the Toybox's own models computed it."""
        stand_in = metric.by_model and self.run.asked["towers"]["stand_in"]
        return f"{metric.name} ({STAND_IN})" if stand_in else metric.name

    def beats_truth(self, metric: Metric) -> str | None:
        """The first player that scores better than the true shots beside it, if any: the row cannot rank players."""
        found = {column.name: column.estimates[metric.key] for column in self.columns if not column.is_truth}
        truth = next((column.estimates[metric.key] for column in self.columns if column.is_truth), None)
        if not metric.by_model or truth is None or not truth.count:
            return None
        return next((name for name, one in found.items() if one.count and one.value > truth.value), None)

    def marked(self, metric: Metric) -> str:
        """A row's label, marked if the row is uninformative."""
        return f"{self.label(metric)} {UNINFORMATIVE}" if self.beats_truth(metric) else self.label(metric)

    @property
    def table(self) -> str:
        """The table as Markdown, with aligned columns so that it is readable as plain text."""
        head = ["metric", "better", *(column.name for column in self.columns), "n"]
        rows = [[*head, *(f"{name} (paper)" for name in PAPER)]]
        for metric in METRICS:
            cells = [_cell(column.estimates[metric.key], metric.unit) for column in self.columns]
            paper = [published_text(metric.published(player), metric.unit) for player in PAPER]
            counts = [str(column.estimates[metric.key].count) for column in self.columns]
            count = counts[0] if len(set(counts)) == 1 else "/".join(counts)
            rows.append([self.marked(metric), "higher" if metric.higher else "lower", *cells, count, *paper])
        return _aligned(rows)

    @property
    def text(self) -> str:
        """The printed report: heading, table and remarks."""
        return "\n\n".join([self.heading, self.table, *(f"({remark})" for remark in self.all_remarks)])

    @property
    def all_remarks(self) -> tuple[str, ...]:
        """The remarks, and those on uninformative rows."""
        found = ((metric, self.beats_truth(metric)) for metric in METRICS)
        beaten = (
            f"{self.marked(metric)} cannot rank players: {name} scores better than the true shots"
            for metric, name in found
            if name is not None
        )
        return (*self.remarks, *beaten)

    @property
    def heading(self) -> str:
        """The player, the number of games and turns, and the world whose motion settings were used."""
        ours, asked = self.ours, self.run.asked
        counts = f"{counted(ours.games, 'game')}, {counted(ours.turns, 'turn')}"
        return f"{ours.name}: {counts}, measured like world {asked['world']['name']!r}"

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
        rows = [self._row(metric) for metric in METRICS]
        named = {column.name: [list(row) for row in column.confusion] for column in self.columns}
        values = {**self.facts, "rows": rows, "motion_levels": named, "remarks": list(self.all_remarks)}
        write_text(out / JSON, json.dumps(values, indent=1, allow_nan=False) + "\n")
        write_text(out / MARKDOWN, self.markdown)
        return [out / JSON, out / MARKDOWN]

    def _row(self, metric: Metric) -> dict[str, Any]:
        others = {column.name: column.estimates[metric.key].json_values for column in self.columns[1:]}
        return {
            "key": metric.key,
            "name": self.label(metric),
            "better": "higher" if metric.higher else "lower",
            "unit": metric.unit,
            **self.ours.estimates[metric.key].json_values,
            "says_nothing": self.beats_truth(metric) is not None,
            "beside": others,
            "paper": {name: value for name in PAPER if (value := metric.published(name)) is not None},
            "definition": metric.about,
            "source": metric.source,
        }


def table_of(
    run: PlayedRun, beside: Sequence[Path] = (), remarks: Sequence[str] = (), facts: Mapping[str, Any] | None = None
) -> PaperTable:
    """The table of a finished run, next to other runs. facts: more to report, such as the command.

    ValueError if another run was measured differently, played another benchmark, or finished none of these games.
    """
    remarks = [*remarks, *_remarks(run)]
    others = []
    for folder in beside:
        other, remark = _beside(run, folder)
        others.append(other)
        remarks += remark
    names = _names([run, *others])
    columns = tuple(Column.of(one, name) for one, name in zip([run, *others], names, strict=True))
    known = {name: value for name, value in run.asked.items() if name != ABOUT}
    known["benchmark"] = {**known["benchmark"], "games": [game.name for game in run.games]}
    known |= {"seeds": {game.name: game.seed for game in run.games}, "played_on": _played_on(run)}
    known["beside"] = {
        name: {"player": one.asked["player"], "seed": one.asked["seed"], "played_on": _played_on(one)}
        for name, one in zip(names[1:], others, strict=True)
    }
    return PaperTable(run, columns, {**(facts or {}), **known, "machine": machine()}, tuple(dict.fromkeys(remarks)))


def number(value: float, unit: str = "") -> str:
    """A value as the table prints it."""
    return f"{value:.2f} {unit}" if unit else f"{value:.3f}"


def check_beside(asked: Mapping[str, Any], folder: Path) -> None:
    """ValueError if a folder is not a run, or not comparable with the run whose run.json holds `asked`."""
    other = read_asked(folder)
    found = [phrase for name in SAME for phrase in differences(other.get(name), asked.get(name), name)]
    if found:
        raise ValueError(
            f"{folder} cannot be compared with this run: {'; '.join(found[:3])}; evaluate it with this run's options"
        )


def _beside(run: PlayedRun, folder: Path) -> tuple[PlayedRun, list[str]]:
    """Another run, reduced to the games of ours, and remarks on it."""
    check_beside(run.asked, folder)
    other = read_run(folder)
    wanted = {game.name for game in run.games}
    games = tuple(game for game in other.games if game.name in wanted)
    if not games:
        raise ValueError(f"{folder} has finished none of this run's games; play it with the same --limit first")
    fewer = [f"{other.name} in {folder.name} has finished {len(games)} of these {len(wanted)} games"]
    return PlayedRun(folder, other.asked, games), fewer if len(games) < len(wanted) else []


def _names(runs: Sequence[PlayedRun]) -> list[str]:
    """The players' names, made unique by their folders or a number."""
    plain = [clean_text(run.name) for run in runs]
    names = [name if plain.count(name) == 1 else f"{name} ({run.folder.name})" for name, run in zip(plain, runs)]  # noqa: B905
    return [f"{name} #{index + 1}" if names.count(name) > 1 else name for index, name in enumerate(names)]


def _remarks(run: PlayedRun) -> list[str]:
    remarks = []
    if len(run.games) == 1:
        remarks.append("only one game: the intervals of means are over its turns, which are correlated")
    elif len(run.games) < FEW:
        remarks.append(f"only {len(run.games)} games: the intervals of means are too narrow with so few")
    if len(_played_on(run)) > 1:
        remarks.append(
            "the games were played on several machines or versions, which changes the last digits; see played_on"
        )
    if len({game.fps for game in run.games}) > 1 or run.games[0].fps != 8:
        remarks.append(f"shots have {run.games[0].fps:g} frames per second; motion values are meant for 8")
    return remarks


def _played_on(run: PlayedRun) -> list[dict[str, str]]:
    """Every kind of machine that played games, without duplicates."""
    kinds = {json.dumps(dict(game.played_on), sort_keys=True) for game in run.games}
    return [json.loads(kind) for kind in sorted(kinds)]


def _cell(estimate: Estimate, unit: str) -> str:
    if estimate.count == 0:
        return NONE
    return f"{number(estimate.value, unit)} [{number(estimate.low)}, {number(estimate.high)}]"


def published_text(value: float | None, unit: str) -> str:
    """One of the paper's values as the table prints it."""
    return NONE if value is None else f"{value:g} {unit}" if unit else f"{value:.3f}"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, every column as wide as its widest cell."""
    cells = [[cell.replace("|", "/") for cell in row] for row in rows]
    widths = [max(len(row[place]) for row in cells) for place in range(len(cells[0]))]
    rule = ["-" * width for width in widths]
    lines = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in (cells[0], *cells[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:]))
