"""Several runs of one benchmark: their players, and the games that all of them finished."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ...data.benchmark import BenchmarkGame
from ...evaluate.world.records import GameRecord, PlayedRun, game_folder, read_run

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


def plain(name: str) -> str:
    """A name, escaped for a cell of a Markdown table."""
    return re.sub(r"([\\|`*_<>\[\]])", r"\\\1", " ".join(name.split()))


def as_json(values: object) -> str:
    """A report as JSON, with floats rounded to six places, so that it is the same on all machines."""
    return json.dumps(_rounded(values), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return round(value, 6) if isinstance(value, float) else value
