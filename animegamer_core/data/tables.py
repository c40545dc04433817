"""The tables beside a dataset's turns: lines of json that are read with their numbers.

dropped.jsonl     {film, start, end, reason}: segments that were left out. One that a person dropped keeps its
                  `record`, so that it can be brought back
set_aside.jsonl   {clip, reason, reply, record}: clips whose caption stayed invalid; their line is not in turns.jsonl
adverbs.jsonl     {clip, level, adverb}: which adverb a captioner chose for which level. Levels move as films are added,
                  and an adverb fits one level, so it is asked for again; a person's own word stays, which has no line
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..state import Instruction, clean_text
from .records import ClipRecord

DROPPED, SET_ASIDE, ADVERBS = "dropped.jsonl", "set_aside.jsonl", "adverbs.jsonl"
LOCK = "build.lock"  # held by whoever writes the tables
CAPTION_FIELDS = ("character", "motion", "background", "adverb", "social", "entertainment", "stamina")
SHOWN_PROBLEMS = 10
Lines = list[tuple[int, Any]]


class DatasetError(ValueError):
    """A dataset folder that cannot be used; the message names file, line and remedy."""


@dataclass(frozen=True)
class Problem:
    """Something wrong in a file. line 0: the whole file. serious: training would refuse it or learn wrong things from
    it; what is not is good to know."""

    file: str
    line: int
    text: str
    serious: bool = True

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.text}" if self.serious else f"{place}: note: {self.text}"


def read_lines(path: Path) -> tuple[Lines, list[tuple[int, str]]]:
    """(number, value) of each line that is json, and (number, what is wrong) of each that is not; [] without a file."""
    lines: Lines = []
    problems: list[tuple[int, str]] = []
    for number, line in enumerate(path.read_bytes().splitlines() if path.is_file() else (), start=1):
        try:
            lines.append((number, json.loads(line.decode("utf-8"))))
        except (ValueError, RecursionError) as error:
            problems.append((number, f"not a line of json ({error})"))
    return lines, problems


def read_rows(path: Path, required: Mapping[str, type] = MappingProxyType({})) -> Lines:
    """(number, object) of each line of a table that is written anew, [] without a file.

    required: keys and the types of their values. DatasetError names the first line that is no such object, since it
    would be lost.
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
    """The lines that are json objects, for people to look at; the others are `dataset check`'s to name."""
    return [value for _, value in read_lines(path)[0] if isinstance(value, dict)]


def first_of(problems: Sequence[object]) -> list[str]:
    """A line for each of the first problems, and how many more there are."""
    more = len(problems) - SHOWN_PROBLEMS
    return [*map(str, problems[:SHOWN_PROBLEMS]), *([f"... and {more} more"] if more > 0 else [])]


def to_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """The lines of a table."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def record_of(row: Mapping[str, Any]) -> ClipRecord | None:
    """The clip that a line left out and still holds; None where it holds none that can be used."""
    try:
        return ClipRecord.from_dict(row.get("record"))
    except ValueError:  # a person or another program may have written anything here
        return None


def check_instruction(record: ClipRecord) -> None:
    """ValueError unless a captioned clip can be told as an instruction whose parts are told apart."""
    Instruction(record.character, record.motion, record.background, record.adverb).checked()
    for name in record.character:
        if not clean_text(name):
            raise ValueError(f"the name {name!r} is empty; leave it out")
        if "," in name:
            raise ValueError(f"the name {name!r} holds a comma, which parts names; give each its own entry")
