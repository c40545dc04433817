"""A played benchmark on disk: the run's settings, and every game's turns and scores.

run.json                  the settings; a run with other settings is refused in this folder
games/<name>/game.json    the game's turns and scores; written last, so if it exists, the game is finished
games/<name>/turn-01.*    the game's clips
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ...data.benchmark import BenchmarkTurn, check_game_name, parse_turn
from ...files import UNFINISHED, write_text
from ...game.life import Values
from ...json_files import JsonError, read_json

RUN, LOCK, GAMES, GAME = "run.json", "run.lock", "games", "game.json"
ClipName = Annotated[str, msgspec.Meta(pattern=r"^turn-[0-9]{2,6}\.(mp4|safetensors)\Z")]
SHOT_SCORES = ("clip_i", "dreamsim", "clip_t", "clip_i_across", "dreamsim_across")  # a shot's, by the scoring models
FRAMES_COMPARED = 4  # of each shot


@dataclass(frozen=True)
class TurnRecord:
    """One turn as it was played; level, change, seconds: as in PlayedShot.

    line: of the benchmark. motion_value: measured on the shot, in px per frame at 480 px height; motion_level: its
    level 1..5, None without edges; uncalibrated_value, uncalibrated_level: those of the uncalibrated shot. scores: by
    SHOT_SCORES, None if there was nothing to compare with. warm_up: whether it is the first turn after loading.
    """

    number: int
    line: str
    level: int | None
    change: Values | None
    motion_value: float
    motion_level: int | None
    uncalibrated_value: float
    uncalibrated_level: int | None
    scores: Mapping[str, float | None]
    seconds: float
    warm_up: bool
    clip: ClipName

    def __post_init__(self) -> None:
        self.asked  # noqa: B018  ValueError for an invalid line

    @cached_property
    def asked(self) -> BenchmarkTurn:
        """What the benchmark asks for in this turn."""
        return parse_turn(self.line)


@dataclass(frozen=True)
class GameRecord:
    """A finished game. seed: of the first turn's noise."""

    name: str
    player: str
    seed: int
    fps: float
    turns: tuple[TurnRecord, ...]

    def save(self, out: Path) -> None:
        """Write game.json, which marks the game as finished; with the instructions, for people who read the file."""
        turns = [{**msgspec.to_builtins(turn), "instruction": turn.asked.instruction} for turn in self.turns]
        text = json.dumps({**msgspec.to_builtins(self), "turns": turns}, indent=1, ensure_ascii=False, allow_nan=False)
        write_text(game_folder(out, self.name) / GAME, text + "\n")


@dataclass(frozen=True)
class PlayedRun:
    """The finished games of a folder, in the benchmark's order. asked: the content of run.json."""

    folder: Path
    asked: Mapping[str, Any]
    games: tuple[GameRecord, ...]

    @property
    def name(self) -> str:
        return self.asked["player"]["name"]


def game_folder(out: Path, name: str) -> Path:
    """The folder of a game's clips and record; ValueError for an invalid name."""
    return out / GAMES / check_game_name(name)


def read_game(out: Path, name: str) -> GameRecord | None:
    """The record of a game; None if the game is not finished, ValueError if its file is invalid."""
    path = game_folder(out, name) / GAME
    if not path.is_file():
        return None
    try:
        return read_json(path, GameRecord)
    except JsonError as error:
        raise ValueError(f"{error}; this is not a played game, so delete it to play it again") from error


def read_run(out: Path) -> PlayedRun:
    """The finished games of a folder; ValueError if it is not a run or has no finished game."""
    asked = read_asked(out)
    finished = tuple(filter(None, (read_game(out, name) for name in asked["benchmark"]["games"])))
    if not finished:
        raise ValueError(f"{out}: no game has been finished yet; play it first with `evaluate world --out {out}`")
    return PlayedRun(out, asked, finished)


def read_asked(out: Path) -> dict[str, Any]:
    """The content of run.json; ValueError if it is missing or not that of a played benchmark."""
    path = out / RUN
    values = read_json(path, dict[str, Any]) if path.is_file() else {}
    if "benchmark" not in values or "player" not in values:
        raise ValueError(f"{out}: no played benchmark here (no {RUN} with games); give an --out of `evaluate world`")
    return values


def begin_run(out: Path, asked: Mapping[str, Any]) -> None:
    """Write run.json, or check that it holds the same settings; ValueError names the differences.

    asked: everything that affects the numbers. ValueError also if the folder holds other files.
    """
    asked = json.loads(json.dumps(dict(asked), allow_nan=False))
    if not (out / RUN).is_file():
        if out.is_dir() and any(path.name != LOCK and not path.name.startswith(UNFINISHED) for path in out.iterdir()):
            raise ValueError(f"{out} holds other files and no {RUN}; choose a new folder")
        write_text(out / RUN, json.dumps(asked, indent=1, ensure_ascii=False) + "\n")
        return
    before = read_asked(out)
    if found := ", ".join(name for name in asked if before.get(name) != asked[name]):
        raise ValueError(f"{out} holds a run that differs in: {found}; use its options, or choose a new folder")
