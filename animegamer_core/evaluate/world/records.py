"""A played benchmark on disk: the run's settings, and every game's turns and scores.

run.json                  the settings; another run is refused in this folder
games/<name>/game.json    the game's turns and scores, written last, so that its presence means finished
games/<name>/turn-01.*    its clips
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from ...data.benchmark import BenchmarkGame, BenchmarkTurn, parse_turn
from ...files import PART, write_text
from ...state import StateChange

FORMAT = 1  # raised when an older program could misread the folder
RUN, LOCK, GAMES, GAME = "run.json", "run.lock", "games", "game.json"
ABOUT = "about"  # key of run.json for what does not decide the numbers, and may differ when a run continues
_CLIP = re.compile(r"turn-[0-9]{2,6}\.(mp4|safetensors|webp)")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")
_DIFFERENCES = 3  # shown in an error
_BRIEF = 60  # characters of a value in an error
Read = TypeVar("Read")


@dataclass(frozen=True)
class TurnRecord:
    """One turn as it was played.

    line: the benchmark's. level, change: predicted by the player, None if it predicts none. motion_value: measured on
    the shot, in px a frame at 480 px height; motion_level: its level 1..5, None without edges. scores: by the names of
    `scores.SIMILARITIES`, None if there was nothing to compare with. warm_up: whether it is the first turn after
    loading. clip: the file's name beside game.json; shown: a file that a browser can show. uncalibrated_value,
    uncalibrated_level: as motion_value and motion_level, for the same shot without calibrated motion values; None if no
    such shot was drawn.
    """

    number: int
    line: str
    level: int | None
    change: StateChange | None
    motion_value: float
    motion_level: int | None
    scores: Mapping[str, float | None]
    seconds: float
    warm_up: bool
    clip: str
    shown: str
    uncalibrated_value: float | None = None
    uncalibrated_level: int | None = None

    @cached_property
    def asked(self) -> BenchmarkTurn:
        """What the benchmark asks of the turn."""
        return parse_turn(self.line)

    @property
    def instruction(self) -> str:
        """The player's instruction."""
        return self.asked.instruction

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them back."""
        change = None if self.change is None else asdict(self.change)
        names = [name for name in self.__dataclass_fields__ if name != "change"]
        values = {name: getattr(self, name) for name in names}
        return {**values, "scores": dict(self.scores), "change": change, "instruction": self.instruction}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TurnRecord:
        """The turn that `to_json` wrote; ValueError or KeyError for anything else."""
        change = values["change"]
        turn = cls(
            number=_integer(values["number"]),
            line=str(values["line"]),
            level=_optional(_integer, values["level"]),
            change=None if change is None else StateChange(**{name: _integer(units) for name, units in change.items()}),
            motion_value=_number(values["motion_value"]),
            motion_level=_optional(_integer, values["motion_level"]),
            scores={str(name): _optional(_number, score) for name, score in values["scores"].items()},
            seconds=_number(values["seconds"]),
            warm_up=bool(values["warm_up"]),
            clip=_clip_name(values["clip"]),
            shown=_clip_name(values["shown"]),
            # Absent from games of earlier versions.
            uncalibrated_value=_optional(_number, values.get("uncalibrated_value")),
            uncalibrated_level=_optional(_integer, values.get("uncalibrated_level")),
        )
        turn.asked  # noqa: B018  ValueError for an invalid line
        return turn


@dataclass(frozen=True)
class GameRecord:
    """A finished game. seed: of the first turn's noise. played_on: device and versions."""

    name: str
    player: str
    seed: int
    fps: float
    played_on: Mapping[str, str]
    turns: tuple[TurnRecord, ...]

    @property
    def character(self) -> str:
        """The main character."""
        return self.turns[0].asked.characters[0]

    def save(self, out: Path) -> None:
        """Write game.json, which marks the game as finished."""
        values = {**{name: getattr(self, name) for name in ("name", "player", "seed", "fps")}, "format": FORMAT}
        values |= {"played_on": dict(self.played_on), "turns": [turn.to_json() for turn in self.turns]}
        text = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False)
        write_text(game_folder(out, self.name) / GAME, text + "\n")


@dataclass(frozen=True)
class PlayedRun:
    """The finished games of a folder, in the benchmark's order. asked: the content of run.json."""

    folder: Path
    asked: Mapping[str, Any]
    games: tuple[GameRecord, ...]

    @property
    def name(self) -> str:
        """The player's name."""
        return str(self.asked["player"]["name"])


def game_folder(out: Path, name: str) -> Path:
    """The folder of a game's clips and record; ValueError for an invalid name."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{ascii(name[:_BRIEF])} is not a valid name of a game; expected a-z, 0-9 and -, at most 60")
    return out / GAMES / name


def read_game(out: Path, name: str) -> GameRecord | None:
    """The game of that name, None if it is not finished; ValueError for an invalid file."""
    path = game_folder(out, name) / GAME
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values["format"] != FORMAT or values["name"] != name or not values["turns"]:
            raise ValueError(f"format {values['format']!r} of game {values['name']!r}")
        return GameRecord(
            name=name,
            player=str(values["player"]),
            seed=_integer(values["seed"]),
            fps=_number(values["fps"]),
            played_on={str(key): str(value) for key, value in values["played_on"].items()},
            turns=tuple(TurnRecord.from_json(turn) for turn in values["turns"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{path}: not a played game ({str(error)[:200]}); delete it, and it is played again"
        ) from error


def plays(record: GameRecord, game: BenchmarkGame) -> bool:
    """Whether a record has the turns of a game."""
    return [turn.line for turn in record.turns] == [turn.line for turn in game.turns]


def read_run(out: Path) -> PlayedRun:
    """The finished games of a folder; ValueError if it is not a run or has no finished game."""
    asked = read_asked(out)
    games = (read_game(out, str(name)) for name in asked["benchmark"]["games"])
    finished = tuple(game for game in games if game is not None)
    if not finished:
        raise ValueError(f"{out}: no game is finished yet; play it first with `evaluate world --out {out}`")
    return PlayedRun(out, asked, finished)


def read_asked(out: Path) -> dict[str, Any]:
    """The content of run.json; ValueError if it is missing or invalid."""
    path = out / RUN
    if not path.is_file():
        raise ValueError(f"{out}: no played benchmark here (no {RUN}); give the --out folder of an `evaluate world`")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        valid = values["format"] == FORMAT and isinstance(values["benchmark"]["games"], list)
        valid = valid and isinstance(values["player"]["name"], str)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: not written by `evaluate world`; choose another folder") from error
    if not valid:
        raise ValueError(f"{path}: format {values['format']!r}, this program reads {FORMAT}; update the program")
    return values


def begin_run(out: Path, asked: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Write run.json, or check that it holds the same settings; ValueError names differences or foreign files.

    asked: everything that decides the numbers. about: other facts about the start of the run.
    """
    asked = json.loads(json.dumps({"format": FORMAT, **asked}, allow_nan=False))
    if not (out / RUN).is_file():
        if out.is_dir() and any(path.name != LOCK and not path.name.startswith(PART) for path in out.iterdir()):
            raise ValueError(f"{out} holds other files and no {RUN}; choose a new folder")
        write_text(out / RUN, json.dumps({**asked, ABOUT: dict(about)}, indent=1, ensure_ascii=False) + "\n")
        return
    before = {name: value for name, value in read_asked(out).items() if name != ABOUT}
    found = list(differences(before, asked))
    if found:
        more = f" and {len(found) - _DIFFERENCES} more" if len(found) > _DIFFERENCES else ""
        raise ValueError(
            f"{out} holds another run: {'; '.join(found[:_DIFFERENCES])}{more}; give its options, or a new folder"
        )


def differences(before: Any, now: Any, where: str = "") -> Iterator[str]:
    """A phrase for each value that differs: `seed was 0, now 1`."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in dict.fromkeys([*before, *now]):
            yield from differences(before.get(name), now.get(name), f"{where} {name}".strip())
    elif before != now:
        yield f"{where} was {_brief(before)}, now {_brief(now)}"


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _BRIEF else f"{text[: _BRIEF - 3]}..."


def _clip_name(value: Any) -> str:
    if not isinstance(value, str) or not _CLIP.fullmatch(value):
        raise ValueError(f"{ascii(str(value)[:_BRIEF])} is not the name of a clip")
    return value


def _optional(read: Callable[[Any], Read], value: Any) -> Read | None:
    return None if value is None else read(value)


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{ascii(str(value)[:_BRIEF])} is not an integer")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{ascii(str(value)[:_BRIEF])} is not a finite number")
    return float(value)


def finished_games(out: Path, games: Sequence[BenchmarkGame]) -> list[GameRecord]:
    """The finished ones of the games, in order."""
    records = ((game, read_game(out, game.name)) for game in games)
    return [record for game, record in records if record is not None and plays(record, game)]
