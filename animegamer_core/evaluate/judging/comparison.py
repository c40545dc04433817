"""Several runs of one benchmark, the order in which judges see them, and how far judges agree."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from ...data.benchmark import BenchmarkGame
from ..estimates import Estimate
from ..world.records import GameRecord, PlayedRun, game_folder, read_run

MOST_AGENTS = 8
_SHOWN = 3  # games in an error


@dataclass(frozen=True)
class Comparison:
    """Runs of one benchmark. agents: each run's player, with the folder if several players have the same name."""

    runs: tuple[PlayedRun, ...]
    agents: tuple[str, ...]

    @cached_property
    def games(self) -> tuple[str, ...]:
        """The games that every run has finished, in the first run's order."""
        first, *others = self._records
        return tuple(name for name in first if all(name in other for other in others))

    def record(self, agent: int, game: str) -> GameRecord:
        """The game as an agent (0, 1, ...) played it."""
        return self._records[agent][game]

    def folder(self, agent: int, game: str) -> Path:
        """The folder with an agent's clips of a game."""
        return game_folder(self.runs[agent].folder, game)

    def game(self, name: str) -> BenchmarkGame:
        """The game as it is in the benchmark."""
        return BenchmarkGame(name, tuple(turn.asked for turn in self.record(0, name).turns))

    @cached_property
    def _records(self) -> tuple[dict[str, GameRecord], ...]:
        return tuple({record.name: record for record in run.games} for run in self.runs)


def open_comparison(folders: Sequence[Path]) -> Comparison:
    """Open the runs in these folders; ValueError for too many, duplicates, no common game, or different lines."""
    if not 1 <= len(folders) <= MOST_AGENTS:
        raise ValueError(f"{len(folders)} runs; expected 1 to {MOST_AGENTS} folders of `evaluate world`")
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ValueError("a run is listed twice; name each folder once")
    runs = tuple(read_run(folder) for folder in folders)
    names = [run.name for run in runs]
    agents = [
        name if names.count(name) == 1 else f"{name} ({run.folder})" for name, run in zip(names, runs, strict=True)
    ]
    comparison = Comparison(runs, tuple(agents))
    if not comparison.games:
        raise ValueError("the runs have no finished game in common; play the same --games with each")
    different = []
    for name in comparison.games:
        asked = [[turn.line for turn in comparison.record(agent, name).turns] for agent in range(len(runs))]
        if any(lines != asked[0] for lines in asked):
            different.append(name)
    if different:
        named = ", ".join(different[:_SHOWN])
        raise ValueError(f"the runs have different lines for these games: {named}; compare runs of the same --games")
    return comparison


def shown_order(about: str, turn: int, count: int) -> tuple[int, ...]:
    """Which agent (0..count-1) is in each place when something is shown for the `turn`-th time (0, 1, ...).

    The order is shuffled with the seed `about`, then rotated by one place each time, so that in `count` times each
    agent is in every place once. Then it is shuffled again.
    """
    first = list(range(count))
    random.Random(f"{about}/{turn // count}").shuffle(first)
    moved = turn % count
    return tuple(first[moved:] + first[:moved])


def concordance(ranks_JA: ArrayLike) -> float | None:
    """Kendall's W of the ranks that J judges gave A agents, from 0 (no agreement) to 1; None if it is undefined.

    W = 12 S / (J^2 (A^3 - A) - J T), where S is the sum of squared deviations of the agents' rank sums from their mean,
    and T the sum of t^3 - t over every group of t equal ranks of a judge (Kendall and Babington Smith 1939; with ties
    as in Kendall, Rank Correlation Methods, 1948). Undefined for fewer than two judges or agents, and if all judges
    rank all agents equal.
    """
    given = np.asarray(ranks_JA, dtype=float)
    judges, agents = given.shape
    if judges < 2 or agents < 2:
        return None
    sums = given.sum(0)
    deviations = float(np.square(sums - sums.mean()).sum())
    ties = sum(float((counts**3 - counts).sum()) for counts in (np.unique(row, return_counts=True)[1] for row in given))
    most = judges**2 * (agents**3 - agents) - judges * ties
    return None if most <= 0 else 12 * deviations / most


def mean_concordance(groups: Iterable[ArrayLike]) -> float | None:
    """Kendall's W, averaged over games or stories; None where it is undefined for all."""
    known = [value for group in groups if (value := concordance(group)) is not None]
    return float(np.mean(known)) if known else None


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with numbers aligned to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def interval_cell(estimate: Estimate) -> str:
    """An estimate with its interval, for a table."""
    return "-" if estimate.count == 0 else f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


def number_cell(value: float | None) -> str:
    """A number for a table; `-` for None."""
    return "-" if value is None else f"{value:.2f}"


def plain(name: str) -> str:
    """A name, escaped for a cell of a Markdown table."""
    return re.sub(r"([\\|`*_<>\[\]])", r"\\\1", " ".join(name.split()))
