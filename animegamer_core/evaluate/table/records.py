"""A played benchmark on disk: what was asked, and of every game what was played and how it scored.

run.json                  what was asked; a folder of another run is refused
games/<name>/game.json    the game's turns and scores, written last: the game is finished
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
TOLD = "about"  # of run.json: what does not decide the numbers, and may differ when a run goes on
_CLIP = re.compile(r"turn-[0-9]{2,6}\.(mp4|safetensors|webp)")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")
_DIFFERENCES = 3  # that a refusal names
_BRIEF = 60  # characters of a value in it
Read = TypeVar("Read")


@dataclass(frozen=True)
class TurnRecord:
    """One turn as it was played.

    line: the benchmark's. level, change: as the player predicted them, None where it predicts none. motion_value: px a
    frame at 480 px height, measured on the shot; motion_level: its level 1..5, None without edges. scores: by the names
    of `scores.SIMILARITIES`, None where there was nothing to compare with. warm_up: the first turn after loading.
    clip: the file's name beside game.json; shown: the one that a browser can show. uncalibrated_value,
    uncalibrated_level: as motion_value and motion_level, of the same shot without calibrated motion values; None where
    no such shot was drawn.
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
        """What was typed."""
        return self.asked.instruction

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them back."""
        change = None if self.change is None else asdict(self.change)
        names = [name for name in self.__dataclass_fields__ if name != "change"]
        values = {name: getattr(self, name) for name in names}
        return {**values, "scores": dict(self.scores), "change": change, "instruction": self.instruction}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TurnRecord:
        """The turn in `values`; ValueError or KeyError where they are none."""
        change = values["change"]
        turn = cls(
            number=_whole(values["number"]),
            line=str(values["line"]),
            level=_maybe(_whole, values["level"]),
            change=None if change is None else StateChange(**{name: _whole(units) for name, units in change.items()}),
            motion_value=_number(values["motion_value"]),
            motion_level=_maybe(_whole, values["motion_level"]),
            scores={str(name): _maybe(_number, score) for name, score in values["scores"].items()},
            seconds=_number(values["seconds"]),
            warm_up=bool(values["warm_up"]),
            clip=_clip_name(values["clip"]),
            shown=_clip_name(values["shown"]),
            # Absent from games of earlier versions.
            uncalibrated_value=_maybe(_number, values.get("uncalibrated_value")),
            uncalibrated_level=_maybe(_whole, values.get("uncalibrated_level")),
        )
        turn.asked  # noqa: B018  the line may be none
        return turn


@dataclass(frozen=True)
class GameRecord:
    """A finished game. seed: of turn 1's noise. played_on: device and versions, by name."""

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
        """Write game.json, with which the game is finished."""
        values = {**{name: getattr(self, name) for name in ("name", "player", "seed", "fps")}, "format": FORMAT}
        values |= {"played_on": dict(self.played_on), "turns": [turn.to_json() for turn in self.turns]}
        text = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False)
        write_text(game_folder(out, self.name) / GAME, text + "\n")


@dataclass(frozen=True)
class PlayedRun:
    """The finished games of a folder, in the benchmark's order. asked: what run.json says."""

    folder: Path
    asked: Mapping[str, Any]
    games: tuple[GameRecord, ...]

    @property
    def name(self) -> str:
        """The player's name."""
        return str(self.asked["player"]["name"])


def game_folder(out: Path, name: str) -> Path:
    """Where a game's clips and record lie; ValueError for a name that no benchmark allows."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{ascii(name[:_BRIEF])} is no game's name; expected a-z, 0-9 and -, at most 60")
    return out / GAMES / name


def read_game(out: Path, name: str) -> GameRecord | None:
    """The finished game of that name, None where it is not finished; ValueError for a file that is none."""
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
            seed=_whole(values["seed"]),
            fps=_number(values["fps"]),
            played_on={str(key): str(value) for key, value in values["played_on"].items()},
            turns=tuple(TurnRecord.from_json(turn) for turn in values["turns"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: not a played game ({str(error)[:200]}); delete it, and it is played anew") from error


def plays(record: GameRecord, game: BenchmarkGame) -> bool:
    """Whether a record is of these turns."""
    return [turn.line for turn in record.turns] == [turn.line for turn in game.turns]


def read_run(out: Path) -> PlayedRun:
    """A played benchmark, as far as its games are finished; ValueError where the folder is none or has none."""
    asked = read_asked(out)
    games = (read_game(out, str(name)) for name in asked["benchmark"]["games"])
    finished = tuple(game for game in games if game is not None)
    if not finished:
        raise ValueError(f"{out}: no game is finished there yet; play it first with `evaluate world --out {out}`")
    return PlayedRun(out, asked, finished)


def read_asked(out: Path) -> dict[str, Any]:
    """What run.json says; ValueError where it is none."""
    path = out / RUN
    if not path.is_file():
        raise ValueError(f"{out}: no played benchmark here (no {RUN}); give the --out of an `evaluate world`")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        whole = values["format"] == FORMAT and isinstance(values["benchmark"]["games"], list)
        whole = whole and isinstance(values["player"]["name"], str)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: not what `evaluate world` writes; choose another folder") from error
    if not whole:
        raise ValueError(f"{path}: format {values['format']!r}, this program reads {FORMAT}; update the program")
    return values


def begin_run(out: Path, asked: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Write run.json, or find it there saying the same; ValueError says what differs, or that the folder is taken.

    asked: all that decides the numbers. about: what else is told of the run as it was begun.
    """
    asked = json.loads(json.dumps({"format": FORMAT, **asked}, allow_nan=False))
    if not (out / RUN).is_file():
        if out.is_dir() and any(path.name != LOCK and not path.name.startswith(PART) for path in out.iterdir()):
            raise ValueError(f"{out} holds other files and no {RUN}; choose a new folder")
        write_text(out / RUN, json.dumps({**asked, TOLD: dict(about)}, indent=1, ensure_ascii=False) + "\n")
        return
    before = {name: value for name, value in read_asked(out).items() if name != TOLD}
    found = list(differences(before, asked))
    if found:
        more = f" and {len(found) - _DIFFERENCES} more" if len(found) > _DIFFERENCES else ""
        raise ValueError(
            f"{out} holds another run: {'; '.join(found[:_DIFFERENCES])}{more}; give its options, or a new folder"
        )


def differences(before: Any, now: Any, where: str = "") -> Iterator[str]:
    """One phrase for each value that differs: `seed was 0, now 1`."""
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
        raise ValueError(f"{ascii(str(value)[:_BRIEF])} is no clip's name")
    return value


def _maybe(read: Callable[[Any], Read], value: Any) -> Read | None:
    return None if value is None else read(value)


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{ascii(str(value)[:_BRIEF])} is no whole number")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{ascii(str(value)[:_BRIEF])} is no number")
    return float(value)


def finished_games(out: Path, games: Sequence[BenchmarkGame]) -> list[GameRecord]:
    """Those of the games that are finished, in order."""
    records = ((game, read_game(out, game.name)) for game in games)
    return [record for game, record in records if record is not None and plays(record, game)]
