"""The rows of a dataset's tables: a clip, a game, and the values that each key may have."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from ..files import is_inside
from ..life import PUBLISHED_RULES, Values
from ..messages import quoted
from ..state import Instruction, motion_text

LONGEST_PATH = 1000  # characters of a clip's path; a part of it has at most 255 bytes, as file systems take
CAPTION_FIELDS = ("character", "motion", "background", "adverb", "social", "entertainment", "stamina")


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
        return {name: getattr(self, name) for name in PUBLISHED_RULES.names}

    def to_json(self) -> str:
        """The line, keys in the order of the fields; `said` only where it is set."""
        values = dataclasses.asdict(self)
        if self.said is None:
            del values["said"]  # older versions refuse unknown keys
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
    "social": (_among(0, 1), "0, 1 or null"),
    "entertainment": (_among(0, 1), "0, 1 or null"),
    "stamina": (_among(-1, 1), "-1, 1 or null"),
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
