"""The rows of a dataset's tables (JSON Lines): a clip, a game, and what else is known of clips.

turns.jsonl       a clip a line (ClipRecord)
games.jsonl       {game, clips, held_out} (GameRecord)
dropped.jsonl     segments that were left out (Dropped)
set_aside.jsonl   clips whose caption stayed invalid (SetAside); turns.jsonl does not list them
adverbs.jsonl     the level that a captioner chose an adverb for (ChosenAdverb). Levels move as films are added; an
                  adverb of another level is asked for again. A person's own adverb has no line here and stays
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from ..files import is_inside
from ..game.life import Stat
from ..game.recall import names_of
from ..game.state import Instruction, clean_text, motion_text
from ..json_files import read_rows
from ..messages import quoted, shortened

DROPPED, SET_ASIDE, ADVERBS = "dropped.jsonl", "set_aside.jsonl", "adverbs.jsonl"
REVIEWED = "dropped in review"  # the reason of a clip that a person dropped
LOCK = "build.lock"  # held while the tables are written
LONGEST_PATH = 1000  # characters of a clip's path; a part of it has at most 255 bytes, as file systems take
CAPTION_FIELDS = ("character", "motion", "background", "adverb", "stats")
SHOWN_PROBLEMS = 10
_LONGEST_TEXT = 1000  # maximum characters of a message, which may quote the file

Text = Annotated[str, msgspec.Meta(pattern=r"\S")]
Seconds = Annotated[float, msgspec.Meta(ge=0, lt=1e9)]
T = TypeVar("T")


class ClipRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of turns.jsonl. Captions are None until a captioner or a person fills them in.

    start, end: seconds in the film. clip: path in the folder. character: names, the main character first. background:
    '{time} {place}'. motion_value: px per frame at 480 px height. motion_level: 1..5. stats: the change of each of the
    dataset's stats in units; None where it is not known. said: the player's instruction for this clip, if it differs
    from the caption because it refers back to earlier turns ("do the same again"). kept: a person brought it
    back that a rule had left out.
    """

    film: Text
    start: Seconds
    end: Seconds
    clip: str
    character: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)] | None = None
    motion: Text | None = None
    background: Text | None = None
    adverb: str | None = None
    motion_value: Annotated[float, msgspec.Meta(ge=0, lt=1e12)] | None = None
    motion_level: Annotated[int, msgspec.Meta(ge=1, le=5)] | None = None
    stats: dict[str, int | None] | None = None
    said: Text | None = None
    kept: bool = False

    def __post_init__(self) -> None:
        if len(self.clip) > LONGEST_PATH or not is_inside(self.clip) or not self.clip.endswith(".mp4"):
            raise ValueError(
                f"clip is {quoted(self.clip)}; expected the path of an .mp4 inside the folder, with / and short names "
                "that every system allows"
            )
        if not self.start < self.end:
            raise ValueError(f"start {self.start} is not before end {self.end}")

    @property
    def missing(self) -> tuple[str, ...]:
        """The caption's fields that are not filled in yet."""
        known = {name: getattr(self, name) for name in CAPTION_FIELDS}
        return tuple(
            name for name, value in known.items() if value is None or (name == "stats" and None in value.values())
        )

    @property
    def captioned(self) -> bool:
        """Whether all values that training reads are there."""
        return not self.missing and self.motion_value is not None and self.motion_level is not None

    @property
    def instruction(self) -> str:
        """What a player says to get this clip; ValueError without a caption."""
        return self.caption if self.said is None else clean_text(self.said)

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

    def check(self, stats: Sequence[Stat]) -> None:
        """ValueError unless its stats are these, and its caption, if it has one, makes an instruction whose parts can
        be separated again."""
        if self.stats is not None:
            check_stats(self.stats, stats)
        if self.missing:
            return
        Instruction(self.character, self.motion, self.background, self.adverb).checked()
        for name in self.character:
            if names_of(name) != (name.strip(),):
                raise ValueError(f"the name {quoted(name)} is empty or several names; give each its own entry")

    def to_json(self) -> str:
        """The line, keys in the order of the fields; `said` and `kept` only where they are set."""
        values = msgspec.structs.asdict(self)
        values = {name: value for name, value in values.items() if value or name not in ("said", "kept")}
        return json.dumps(values, ensure_ascii=False)


def check_stats(values: Mapping[str, int | None], stats: Sequence[Stat]) -> None:
    """ValueError unless `values` has a change of each stat that it can have, or None."""
    names = [stat.name for stat in stats]
    if sorted(values) != sorted(names):
        raise ValueError(f"stats names {shortened(', '.join(values) or 'none')}; expected {', '.join(names)}")
    for stat in stats:
        if (value := values[stat.name]) is not None and value not in stat.choices:
            raise ValueError(f"{stat.name} is {value}; expected {' or '.join(map(str, stat.choices))}")


class Dropped(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A segment that was left out, and why. clip: its file, if it has one. record: of a clip that is there, so that it
    can be brought back; held_out: whether it was in a held-out game."""

    film: str
    start: Seconds
    end: Seconds
    reason: str
    clip: str | None = None
    held_out: bool = False
    record: ClipRecord | None = None


class SetAside(msgspec.Struct, kw_only=True):
    """A clip without a caption because no reply about it was valid. reply: the last one."""

    clip: str
    reason: str
    reply: str
    record: ClipRecord


class ChosenAdverb(msgspec.Struct, frozen=True, order=True):
    """An adverb that a captioner chose for a level of a clip."""

    clip: str
    level: int
    adverb: str


@dataclass(frozen=True)
class GameRecord:
    """One line of games.jsonl; clips are indices into the folder's turns, in the order of play."""

    name: str
    clips: tuple[int, ...]
    held_out: bool = False


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
        text = shortened(self.text, _LONGEST_TEXT)
        return f"{place}: {text}" if self.serious else f"{place}: note: {text}"


def read_table(path: Path, kind: type[T]) -> list[T]:
    """The rows of a table that will be rewritten, [] without a file.

    DatasetError names the first line that is not of the kind, since rewriting would lose it.
    """
    rows = []
    for number, value, problem in read_rows(path, kind):
        if problem is not None:
            raise DatasetError(f"{path}:{number}: {problem}; correct or delete the line")
        rows.append(value)
    return rows


def readable_rows(path: Path, kind: type[T]) -> list[T]:
    """The rows of a table that are of the kind, for display; `dataset check` names the others."""
    return [value for _, value, problem in read_rows(path, kind) if problem is None]


def first_problems(problems: Sequence[object]) -> list[str]:
    """A line for each of the first problems, and the number of the others."""
    more = len(problems) - SHOWN_PROBLEMS
    return [*map(str, problems[:SHOWN_PROBLEMS]), *([f"... and {more} more"] if more > 0 else [])]


def jsonl_text(rows: Iterable[Any]) -> str:
    """The text of a table."""
    lines = (
        row.to_json() if isinstance(row, ClipRecord) else json.dumps(msgspec.to_builtins(row), ensure_ascii=False)
        for row in rows
    )
    return "".join(line + "\n" for line in lines)
