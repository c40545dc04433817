"""Several runs of one benchmark, the order in which judges see them, and the table of their scores."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ...files import write_text
from ...weights.storage import write_json
from ..estimates import Estimate
from ..world.records import GameRecord, game_folder, read_run

MOST_AGENTS = 8


@dataclass(frozen=True)
class Comparison:
    """Runs of one benchmark.

    agents: each run's player, with the folder if several players have the same name. games: the games that every run
    has finished, by name, as each agent (0, 1, ...) played it.
    """

    agents: tuple[str, ...]
    folders: tuple[Path, ...]
    games: Mapping[str, tuple[GameRecord, ...]]

    def clips(self, agent: int, game: str) -> list[Path]:
        """The clips of a game, as an agent played it."""
        folder = game_folder(self.folders[agent], game)
        return [folder / turn.clip for turn in self.games[game][agent].turns]


def open_comparison(folders: Sequence[Path]) -> Comparison:
    """Open the runs in these folders; ValueError for too many, no common game, or different lines."""
    if not 1 <= len(folders) <= MOST_AGENTS:
        raise ValueError(f"{len(folders)} runs; expected 1 to {MOST_AGENTS} folders of `evaluate world`")
    runs = [read_run(folder) for folder in folders]
    names = [run.name for run in runs]
    agents = (run.name if names.count(run.name) == 1 else f"{run.name} ({run.folder})" for run in runs)
    records = [{record.name: record for record in run.games} for run in runs]
    games = {name: tuple(run[name] for run in records) for name in records[0] if all(name in run for run in records)}
    if not games:
        raise ValueError("the runs have no finished game in common; play the same --games with each")
    for name, played in games.items():
        if len({tuple(turn.line for turn in record.turns) for record in played}) > 1:
            raise ValueError(f"the runs have different lines for game {name}; compare runs of the same --games")
    return Comparison(tuple(agents), tuple(folders), games)


def shown_order(about: str, turn: int, count: int) -> tuple[int, ...]:
    """Which agent (0..count-1) is in each place when something is shown for the `turn`-th time (0, 1, ...).

    The order is shuffled with the seed `about`, then rotated by one place each time, so that in `count` times each
    agent is in every place once. Then it is shuffled again.
    """
    first = list(range(count))
    random.Random(f"{about}/{turn // count}").shuffle(first)
    moved = turn % count
    return tuple(first[moved:] + first[:moved])


def save_scores(
    path: Path,
    title: str,
    criteria: Mapping[str, str],
    scores: Mapping[str, Mapping[str, Estimate]],
    paper: Mapping[str, Mapping[str, float]],
    notes: str,
    facts: Mapping[str, Any] = MappingProxyType({}),
) -> list[Path]:
    """Write PATH.json and PATH.md, a table with a row for each agent; returns their paths.

    criteria: the columns' heads, by the keys of scores (agent -> estimates) and of the paper's scores.
    """
    rows = [[_plain(agent), *(_interval(row[key]) for key in criteria)] for agent, row in scores.items()]
    rows += [[f"{agent} (paper)", *(_number(row.get(key)) for key in criteria)] for agent, row in paper.items()]
    table = [["Agent", *criteria.values()], ["---", *["---:"] * len(criteria)], *rows]
    parts = [f"# {title}", "\n".join(f"| {' | '.join(line)} |" for line in table)]
    parts += ["\n".join(f"- {_plain(name)}: {_plain(str(value))}" for name, value in facts.items()), notes]
    estimates = {agent: {key: asdict(value) for key, value in row.items()} for agent, row in scores.items()}
    write_json(path.with_suffix(".json"), {**facts, "scores": estimates})
    write_text(path.with_suffix(".md"), "\n\n".join(filter(None, parts)) + "\n")
    return [path.with_suffix(".json"), path.with_suffix(".md")]


def _interval(estimate: Estimate) -> str:
    return "-" if estimate.count == 0 else f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _plain(name: str) -> str:
    """A name, escaped for a cell of a Markdown table."""
    return re.sub(r"([\\|`*_<>\[\]])", r"\\\1", " ".join(name.split()))
