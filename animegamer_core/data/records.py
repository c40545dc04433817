"""The rows of a dataset's tables (JSON Lines): a clip, a game, and what else is known of clips.

turns.jsonl       a clip a line (ClipRecord)
games.jsonl       {game, clips, held_out} (GameRecord)
dropped.jsonl     {film, start, end, reason}: segments that were left out. One that a person dropped keeps its
                  `record`, so that it can be brought back
set_aside.jsonl   {clip, reason, reply, record}: clips whose caption stayed invalid; turns.jsonl does not list them
adverbs.jsonl     {clip, level, adverb}: the level that a captioner chose an adverb for. Levels move as films are added;
                  an adverb of another level is asked for again. A person's own adverb has no line here and stays
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from .. import json_files
from ..files import is_inside
from ..game.life import STATS, Values
from ..game.state import Instruction, clean_text, motion_text
from ..messages import brief, quoted

DROPPED, SET_ASIDE, ADVERBS = "dropped.jsonl", "set_aside.jsonl", "adverbs.jsonl"
LOCK = "build.lock"  # held while the tables are written
LONGEST_PATH = 1000  # characters of a clip's path; a part of it has at most 255 bytes, as file systems take
CAPTION_FIELDS = ("character", "motion", "background", "adverb", *(stat.name for stat in STATS))
SHOWN_PROBLEMS = 10
_LONGEST_TEXT = 1000  # maximum characters of a message, which may quote the file
Lines = list[tuple[int, Any]]


@dataclass(frozen=True, kw_only=True)
class ClipRecord:
    """One line of turns.jsonl. Captions are None until a captioner or a person fills them in.

    start, end: seconds in the film. clip: path in the folder. character: names, the main character first. background:
    '{time} {place}'. motion_value: px per frame at 480 px height. motion_level: 1..5. social, entertainment: 0 or 1.
    stamina: -1 or 1. said: the player's instruction for this clip, if it differs from the caption because it refers
    back to earlier turns ("do the same again").
    """

    film: str
    start: float
    end: float
    clip: str
    character: tuple[str, ...] | None = None
    motion: str | None = None
    background: str | None = None
    adverb: str | None = None
    motion_value: float | None = None
    motion_level: int | None = None
    social: int | None = None
    entertainment: int | None = None
    stamina: int | None = None
    said: str | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """The caption's fields that are not filled in yet."""
        return tuple(name for name in CAPTION_FIELDS if getattr(self, name) is None)

    @property
    def captioned(self) -> bool:
        """Whether all values that training reads are there."""
        return not self.missing and self.motion_value is not None and self.motion_level is not None

    @property
    def instruction(self) -> str:
        """What a player says to get this clip; ValueError without a caption."""
        return self.caption if self.said is None else self.said

    @property
    def caption(self) -> str:
        """What the clip shows, in the published form; ValueError without a caption."""
        if not self.captioned:
            raise ValueError(f"{self.clip} has no caption; run the captioner or fill in its line of turns.jsonl")
        return Instruction(
            characters=self.character, motion=self.motion, place=self.background, adverb=self.adverb
        ).text

    @property
    def motion_text(self) -> str:
        """What the shot encoder reads: adverb and motion."""
        return motion_text(self.caption)

    @property
    def levels(self) -> tuple[int, ...]:
        """(ML, SC, ET, ST) as in the prompt."""
        return self.motion_level, *self.change.values()

    @property
    def change(self) -> Values:
        """How the clip changes the character stats."""
        return {stat.name: getattr(self, stat.name) for stat in STATS}

    def to_json(self) -> str:
        """The line, keys in the order of the fields; `said` only where it is set."""
        values = dataclasses.asdict(self)
        if self.said is None:
            del values["said"]
        return json.dumps(values, ensure_ascii=False)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ClipRecord:
        """The record of one line; ValueError names the key, its value and what was expected."""
        only_keys(values, tuple(_RULES), required=("film", "start", "end", "clip"))
        for name, value in values.items():
            accepts, expected = _RULES[name]
            if not (value is None and name not in _REQUIRED) and not accepts(value):
                raise ValueError(f"{name} is {quoted(value)}; expected {expected}")
        if not values["start"] < values["end"]:
            raise ValueError(f"start {values['start']} is not before end {values['end']}")
        names = values.get("character")
        return cls(**{**values, "character": None if names is None else tuple(names)})


@dataclass(frozen=True)
class GameRecord:
    """One line of games.jsonl; clips are indices into the folder's turns, in the order of play."""

    name: str
    clips: tuple[int, ...]
    held_out: bool = False


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12  # so not nan either


def is_text(value: Any) -> bool:
    """Whether a value is a string with more than spaces."""
    return isinstance(value, str) and bool(value.strip())


def _among(*allowed: int) -> Any:
    return lambda value: type(value) is int and value in allowed


def _clip(value: Any) -> bool:
    if not isinstance(value, str) or len(value) > LONGEST_PATH:
        return False
    return is_inside(value) and PurePosixPath(value).suffix in (".mp4", ".safetensors")


def _names(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(is_text(name) for name in value)


_REQUIRED = ("film", "start", "end", "clip")
_RULES: dict[str, tuple[Any, str]] = {  # field: (accepts, what was expected)
    "film": (is_text, "the film's name"),
    "start": (lambda value: _number(value) and value >= 0, "seconds, 0 or more"),
    "end": (_number, "seconds"),
    "clip": (
        _clip,
        "the path of an .mp4 or .safetensors file inside the folder, with forward slashes and short names that every "
        "system allows",
    ),
    "character": (_names, "a list of names, or null"),
    "motion": (is_text, "a phrase, or null"),
    "background": (is_text, "'time place', or null"),
    "adverb": (lambda value: isinstance(value, str), "a word, or null"),
    "motion_value": (lambda value: _number(value) and value >= 0, "pixels per frame, 0 or more, or null"),
    "motion_level": (_among(1, 2, 3, 4, 5), "1 to 5, or null"),
    **{stat.name: (_among(*stat.choices), f"{', '.join(map(str, stat.choices))} or null") for stat in STATS},
    "said": (is_text, "an instruction, or null"),
}


def only_keys(values: Any, known: Sequence[str], required: Sequence[str]) -> None:
    """ValueError unless `values` is an object with no unknown key and every required one."""
    if not isinstance(values, Mapping):
        raise ValueError(f"expected an object with {', '.join(known)}")
    for name in values:
        if name not in known:
            raise ValueError(f"unknown key {quoted(name)}; expected {', '.join(known)}")
    for name in required:
        if values.get(name) is None:
            raise ValueError(f"{name} is missing")


class DatasetError(ValueError):
    """A dataset folder that cannot be used; the message names the file, the line and what to do."""


@dataclass(frozen=True)
class Problem:
    """Something wrong in a file. line 0: the whole file. serious: training would refuse it or learn wrong things; a
    problem that is not serious is shown as a note."""

    file: str
    line: int
    text: str
    serious: bool = True

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        text = brief(self.text, _LONGEST_TEXT)
        return f"{place}: {text}" if self.serious else f"{place}: note: {text}"


def read_lines(path: Path) -> tuple[Lines, list[tuple[int, str]]]:
    """(number, value) of each line of JSON, and (number, what is wrong) of each other line; [] without a file."""
    lines: Lines = []
    problems: list[tuple[int, str]] = []
    for number, value, problem in json_files.read_rows(path, Any):
        if problem is None:
            lines.append((number, value))
        else:
            problems.append((number, problem))
    return lines, problems


def read_rows(path: Path, required: Mapping[str, type] = MappingProxyType({})) -> Lines:
    """(number, object) of each line of a table that will be rewritten, [] without a file.

    required: keys and the types of their values. DatasetError names the first line that is not such an object, since
    rewriting would lose it.
    """
    rows, broken = read_lines(path)
    keys = ", ".join(f"{name} ({kind.__name__})" for name, kind in required.items())
    for number, row in rows:
        if not isinstance(row, dict) or not all(isinstance(row.get(name), kind) for name, kind in required.items()):
            broken.append((number, f"expected an object with {keys}" if keys else "expected an object"))
    if broken:
        number, text = min(broken)
        raise DatasetError(f"{path}:{number}: {text}; correct or delete the line")
    return rows


def read_objects(path: Path) -> list[dict[str, Any]]:
    """The lines that are JSON objects, for display; `dataset check` names the others."""
    return [value for _, value in read_lines(path)[0] if isinstance(value, dict)]


def first_problems(problems: Sequence[object]) -> list[str]:
    """A line for each of the first problems, and the number of the others."""
    more = len(problems) - SHOWN_PROBLEMS
    return [*map(str, problems[:SHOWN_PROBLEMS]), *([f"... and {more} more"] if more > 0 else [])]


def jsonl_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """The text of a table."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def record_at(path: Path, number: int, values: Any) -> ClipRecord:
    """The clip in a line of a table that will be rewritten; DatasetError names the line."""
    try:
        return ClipRecord.from_dict(values)
    except ValueError as error:
        raise DatasetError(f"{path}:{number}: {error}; correct or delete the line") from error


def record_in(row: Mapping[str, Any]) -> ClipRecord | None:
    """The clip in the `record` of a row; None if there is no valid one."""
    try:
        return ClipRecord.from_dict(row.get("record"))
    except ValueError:
        return None


def check_instruction(record: ClipRecord) -> None:
    """ValueError unless a captioned clip makes an instruction whose parts can be separated again."""
    Instruction(record.character, record.motion, record.background, record.adverb).checked()
    for name in record.character:
        if not clean_text(name):
            raise ValueError(f"the name {quoted(name)} is empty; remove it")
        if "," in name:
            raise ValueError(
                f"the name {quoted(name)} has a comma, which separates names; give each name its own entry"
            )
