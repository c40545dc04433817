"""The finished table: our figures, other runs beside them, the paper's; as JSON, as Markdown and in words."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...data.stats import counted
from ...files import write_text
from ...state import clean_text
from ..figures import FEW, Figure
from ..report import machine
from ..similarity.towers import STAND_IN
from .metrics import METRICS, Metric, ceilings_of, confusion, figures_of
from .paper import MAIN_TABLE, PAPER, SOURCE
from .records import PlayedRun, differences, read_asked, read_run

SAME = ("benchmark", "towers", "motion", "references")  # of run.json: must be equal for figures to stand side by side
JSON, MARKDOWN = "report.json", "report.md"
NONE = "-"
HOLLOW = "(!)"  # behind the name of a row that says nothing


@dataclass(frozen=True)
class Column:
    """A player's figures by metric, and its shots by asked and measured motion level.

    ceilings: by metric, what the true shots of the games that it played score.
    """

    name: str
    figures: Mapping[str, Figure]
    confusion: tuple[tuple[int, ...], ...]
    games: int
    turns: int
    ceilings: Mapping[str, Figure]

    @classmethod
    def of(cls, run: PlayedRun, name: str) -> Column:
        """A run's column."""
        turns = sum(len(game.turns) for game in run.games)
        told = figures_of(run.games), confusion(run.games), len(run.games), turns, ceilings_of(run.games)
        return cls(name, *told)

    def beats_the_truth(self, metric: Metric) -> bool:
        """Whether it scores better than the true shots of the same games, so that the row tells nothing of it."""
        figure, ceiling = self.figures[metric.key], self.ceilings.get(metric.key)
        if ceiling is None or not figure.count:
            return False
        return figure.value > ceiling.value if metric.higher else figure.value < ceiling.value


@dataclass(frozen=True)
class PaperTable:
    """Columns, ours first; run: ours. facts: what it takes to repeat it. remarks: what a reader has to know."""

    run: PlayedRun
    columns: tuple[Column, ...]
    facts: Mapping[str, Any]
    remarks: tuple[str, ...]

    @property
    def ours(self) -> Column:
        """Our column."""
        return self.columns[0]

    def label(self, metric: Metric) -> str:
        """A row's name; what the Toybox's own towers computed never stands under the bare name."""
        stand_in = metric.tower and self.run.asked["towers"]["stand_in"]
        return f"{metric.name} ({STAND_IN})" if stand_in else metric.name

    def is_hollow(self, metric: Metric) -> bool:
        """Whether the row says nothing, since the truth scores below a player in it."""
        return any(column.beats_the_truth(metric) for column in self.columns)

    @property
    def hollow(self) -> list[str]:
        """One remark for each row that says nothing."""
        return [
            f"{self.marked(metric)} says nothing of players: the true shots themselves score "
            f"{number(column.ceilings[metric.key].value)}, worse than {column.name} with "
            f"{number(column.figures[metric.key].value)}"
            for metric in METRICS
            for column in self.columns
            if column.beats_the_truth(metric)
        ]

    def marked(self, metric: Metric) -> str:
        """A row's label, marked where the row says nothing."""
        return f"{self.label(metric)} {HOLLOW}" if self.is_hollow(metric) else self.label(metric)

    @property
    def table(self) -> str:
        """The table as Markdown, its columns aligned so that it reads as plain text too."""
        head = ["metric", "better", *(column.name for column in self.columns), "n"]
        rows = [[*head, *(f"{name} (paper)" for name in PAPER)]]
        for metric in METRICS:
            cells = [_cell(column.figures[metric.key], metric.unit) for column in self.columns]
            paper = [_value(metric.published(player), metric.unit) for player in PAPER]
            counts = [str(column.figures[metric.key].count) for column in self.columns]
            count = counts[0] if len(set(counts)) == 1 else "/".join(counts)
            rows.append([self.marked(metric), "higher" if metric.higher else "lower", *cells, count, *paper])
        return _aligned(rows)

    @property
    def text(self) -> str:
        """Heading, table and remarks: what is printed."""
        return "\n\n".join([self.heading, self.table, *(f"({remark})" for remark in self.said)])

    @property
    def said(self) -> tuple[str, ...]:
        """All remarks."""
        return (*self.remarks, *self.hollow)

    @property
    def heading(self) -> str:
        """Who played what."""
        ours, asked = self.ours, self.run.asked
        counts = f"{counted(ours.games, 'game')}, {counted(ours.turns, 'turn')}"
        return f"{ours.name}: {counts}, measured as world {asked['world']['name']!r} is"

    @property
    def markdown(self) -> str:
        """The whole report."""
        parts = ["# The paper's table", _plain(self.heading), self.table]
        parts += ["95 % intervals in brackets: for shares Wilson's, where turns of a game that go wrong together "]
        parts[-1] += "count as fewer; for means a bootstrap over games (2,000 draws). The paper's figures "
        parts[-1] += f"({SOURCE}, {MAIN_TABLE}) are of its own films, characters, towers and models."
        parts += ["## Remarks", "\n".join(f"- {_plain(remark)}" for remark in self.said)] if self.said else []
        parts += ["## Definitions", "\n".join(self._definition(metric) for metric in METRICS)]
        parts += ["## How it was made", f"```json\n{json.dumps(self.facts, indent=1)}\n```"]
        return "\n\n".join(parts) + "\n"

    def _definition(self, metric: Metric) -> str:
        return f"- **{self.label(metric)}**: {metric.about} *{metric.source}.*"

    def save(self, out: Path) -> list[Path]:
        """Write report.json and report.md; returns their paths."""
        rows = [self._row(metric) for metric in METRICS]
        named = {column.name: [list(row) for row in column.confusion] for column in self.columns}
        values = {**self.facts, "rows": rows, "motion_levels": named, "remarks": list(self.said)}
        write_text(out / JSON, json.dumps(values, indent=1, allow_nan=False) + "\n")
        write_text(out / MARKDOWN, self.markdown)
        return [out / JSON, out / MARKDOWN]

    def _row(self, metric: Metric) -> dict[str, Any]:
        ceiling = self.ours.ceilings.get(metric.key)
        others = {column.name: figure_values(column.figures[metric.key]) for column in self.columns[1:]}
        return {
            "key": metric.key,
            "name": self.label(metric),
            "better": "higher" if metric.higher else "lower",
            "unit": metric.unit,
            **figure_values(self.ours.figures[metric.key]),
            "truth": None if ceiling is None else figure_values(ceiling),
            "says_nothing": self.is_hollow(metric),
            "beside": others,
            "paper": {name: value for name in PAPER if (value := metric.published(name)) is not None},
            "definition": metric.about,
            "source": metric.source,
        }


def table_of(run: PlayedRun, beside: Sequence[Path] = (), told: Mapping[str, Any] | None = None) -> PaperTable:
    """The table of a finished run with other runs beside it. told: the command and remarks (`remarks`), if any.

    ValueError for a folder beside that was measured otherwise, on other games, or has none of these finished.
    """
    told = dict(told or {})
    remarks = [*told.pop("remarks", ()), *_remarks(run)]
    others = []
    for folder in beside:
        other, remark = _beside(run, folder)
        others.append(other)
        remarks += remark
    names = _names([run, *others])
    columns = tuple(Column.of(one, name) for one, name in zip([run, *others], names, strict=True))
    facts = {name: value for name, value in run.asked.items() if name not in ("format", "about")}
    facts["benchmark"] = {**facts["benchmark"], "games": [game.name for game in run.games]}
    facts |= {"seeds": {game.name: game.seed for game in run.games}, "played_on": _played_on(run)}
    facts["beside"] = {
        name: {"player": one.asked["player"], "seed": one.asked["seed"], "played_on": _played_on(one)}
        for name, one in zip(names[1:], others, strict=True)
    }
    return PaperTable(run, columns, {**told, **facts, "machine": machine()}, tuple(dict.fromkeys(remarks)))


def figure_values(figure: Figure) -> dict[str, Any]:
    """A figure as json values; null where nothing was measured."""
    value, low, high = (end if math.isfinite(end) else None for end in (figure.value, figure.low, figure.high))
    return {"value": value, "interval": [low, high], "n": figure.count}


def number(value: float, unit: str = "") -> str:
    """A value as the table writes it."""
    return f"{value:.2f} {unit}" if unit else f"{value:.3f}"


def check_beside(asked: Mapping[str, Any], folder: Path) -> None:
    """ValueError where a folder is no run, or none that can stand beside one of which run.json says `asked`."""
    other = read_asked(folder)
    found = [phrase for name in SAME for phrase in differences(other.get(name), asked.get(name), name)]
    if found:
        raise ValueError(
            f"{folder} cannot stand beside this run: {'; '.join(found[:3])}; evaluate it with this run's options"
        )


def _beside(run: PlayedRun, folder: Path) -> tuple[PlayedRun, list[str]]:
    """Another run, its games those that ours has; what is to be said of it."""
    check_beside(run.asked, folder)
    other = read_run(folder)
    wanted = {game.name for game in run.games}
    games = tuple(game for game in other.games if game.name in wanted)
    if not games:
        raise ValueError(f"{folder} has finished none of this run's games; play it with the same --limit first")
    fewer = [f"{other.name} in {folder.name} has finished {len(games)} of these {len(wanted)} games"]
    return PlayedRun(folder, other.asked, games), fewer if len(games) < len(wanted) else []


def _names(runs: Sequence[PlayedRun]) -> list[str]:
    """The players' names, with the folders where several are called alike."""
    plain = [clean_text(run.name) for run in runs]
    names = [name if plain.count(name) == 1 else f"{name} ({run.folder.name})" for name, run in zip(plain, runs)]  # noqa: B905
    return [f"{name} #{index + 1}" if names.count(name) > 1 else name for index, name in enumerate(names)]


def _remarks(run: PlayedRun) -> list[str]:
    remarks = []
    if len(run.games) == 1:
        remarks.append("one game alone: the intervals of means are over its turns, which are alike")
    elif len(run.games) < FEW:
        remarks.append(f"{len(run.games)} games only: the intervals of means, drawn over so few, come out too narrow")
    if len(_played_on(run)) > 1:
        remarks.append("the games were played on several machines or versions, whose last digits differ; see played_on")
    if len({game.fps for game in run.games}) > 1 or run.games[0].fps != 8:
        remarks.append(f"shots have {run.games[0].fps:g} frames a second; motion values are meant for 8")
    return remarks


def _played_on(run: PlayedRun) -> list[dict[str, str]]:
    """Each kind of machine that played games, once."""
    kinds = {json.dumps(dict(game.played_on), sort_keys=True) for game in run.games}
    return [json.loads(kind) for kind in sorted(kinds)]


def _cell(figure: Figure, unit: str) -> str:
    if figure.count == 0:
        return NONE
    return f"{number(figure.value, unit)} [{number(figure.low)}, {number(figure.high)}]"


def _value(value: float | None, unit: str) -> str:
    return NONE if value is None else f"{value:g} {unit}" if unit else f"{value:.3f}"


def _plain(text: str) -> str:
    """Somebody else's words as Markdown shows them and nothing more."""
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]<>#|" else letter for letter in text)


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, every column as wide as its widest cell."""
    cells = [[cell.replace("|", "/") for cell in row] for row in rows]
    widths = [max(len(row[place]) for row in cells) for place in range(len(cells[0]))]
    rule = ["-" * width for width in widths]
    lines = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in (cells[0], *cells[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:]))
