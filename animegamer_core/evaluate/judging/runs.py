"""Several played benchmarks side by side: who played, and the games that all of them have finished."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ...data.benchmark import BenchmarkGame
from ..table.records import GameRecord, PlayedRun, game_folder, read_run

MOST_AGENTS = 8
_SHOWN = 3  # games that a refusal names


@dataclass(frozen=True)
class Contest:
    """Runs of one benchmark. agents: each run's name, told apart by its folder where two players have one name."""

    runs: tuple[PlayedRun, ...]
    agents: tuple[str, ...]

    @cached_property
    def games(self) -> tuple[str, ...]:
        """The games that every run has finished, in the first run's order."""
        others = [set(self._records(number)) for number in range(1, len(self.runs))]
        return tuple(name for name in self._records(0) if all(name in other for other in others))

    def record(self, agent: int, game: str) -> GameRecord:
        """What an agent (0, 1, ...) made of a game."""
        return self._records(agent)[game]

    def folder(self, agent: int, game: str) -> Path:
        """Where its clips are."""
        return game_folder(self.runs[agent].folder, game)

    def game(self, name: str) -> BenchmarkGame:
        """What was asked of all of them."""
        return BenchmarkGame(name, tuple(turn.asked for turn in self.record(0, name).turns))

    def _records(self, agent: int) -> dict[str, GameRecord]:
        return self._by_name[agent]

    @cached_property
    def _by_name(self) -> tuple[dict[str, GameRecord], ...]:
        return tuple({record.name: record for record in run.games} for run in self.runs)


def open_contest(folders: Sequence[Path]) -> Contest:
    """The runs in these folders; ValueError where they are too many, one twice, share no game, or differ in lines."""
    if not 1 <= len(folders) <= MOST_AGENTS:
        raise ValueError(f"{len(folders)} runs; expected 1 to {MOST_AGENTS} folders that `evaluate world` wrote")
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ValueError("a run stands there twice; name each folder once")
    runs = tuple(read_run(folder) for folder in folders)
    names = [run.name for run in runs]
    agents = [
        name if names.count(name) == 1 else f"{name} ({run.folder})" for name, run in zip(names, runs, strict=True)
    ]
    contest = Contest(runs, tuple(agents))
    if not contest.games:
        raise ValueError("the runs have no finished game in common; play the same --games with each")
    _check_lines(contest)
    return contest


def _check_lines(contest: Contest) -> None:
    """A game of one name must have been asked in the same words of all."""
    odd = []
    for name in contest.games:
        asked = [[turn.line for turn in contest.record(agent, name).turns] for agent in range(len(contest.runs))]
        if any(lines != asked[0] for lines in asked):
            odd.append(name)
    if odd:
        named = ", ".join(odd[:_SHOWN])
        raise ValueError(f"games of one name with other lines: {named}; compare runs of the same --games")


def plain(name: str) -> str:
    """A name that can stand in a cell of a Markdown table."""
    return re.sub(r"([\\|`*_<>\[\]])", r"\\\1", " ".join(name.split()))


def as_json(values: object) -> str:
    """A report's json, its floats to six places, so that it is the same wherever sums are."""
    return json.dumps(_rounded(values), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return round(value, 6) if isinstance(value, float) else value
