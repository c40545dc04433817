"""The JSON Lines tables of a dataset: read with line numbers, written as text, and what is wrong in them.

dropped.jsonl     {film, start, end, reason}: segments that were left out. One that a person dropped keeps its
                  `record`, so that it can be brought back
set_aside.jsonl   {clip, reason, reply, record}: clips whose caption stayed invalid; turns.jsonl does not list them
adverbs.jsonl     {clip, level, adverb}: the level that a captioner chose an adverb for. Levels move as films are added;
                  an adverb of another level is asked for again. A person's own adverb has no line here and stays
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .. import json_files
from ..messages import brief, quoted
from ..state import Instruction, clean_text
from .records import ClipRecord

DROPPED, SET_ASIDE, ADVERBS = "dropped.jsonl", "set_aside.jsonl", "adverbs.jsonl"
LOCK = "build.lock"  # held while the tables are written
SHOWN_PROBLEMS = 10
_LONGEST_TEXT = 1000  # maximum characters of a message, which may quote the file
Lines = list[tuple[int, Any]]


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
