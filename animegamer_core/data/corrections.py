"""Applies a person's corrections to a dataset's tables: all of them, or none.

corrections.jsonl, as the review page exports it, has a line for each clip that was changed, and for each change of
scene (`films.survey`), which the next build of the film cuts by:

    {clip, <field of the caption>: value, ...}    also for a set-aside clip, if its caption is then complete
    {clip, drop: true}                            drop the clip; its line moves to dropped.jsonl
    {clip, drop: false}                           restore a clip that a person dropped
    {film, scene_change: [before, after]}         another scene begins between these seconds
    {film, no_scene_change: second}               the scene that begins here continues from the one before

Applying a file twice changes nothing the second time. A kill between two tables leaves a readable dataset, and the same
call completes it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..files import locked, write_text
from ..messages import brief
from .dataset import GAMES, TURNS, DatasetFolder, turns_text, with_level
from .films.film_index import FilmEntry, change_scenes, read_film_index
from .films.survey import ADDED, REMOVED, SceneChange
from .records import (
    ADVERBS,
    CAPTION_FIELDS,
    DROPPED,
    LOCK,
    SET_ASIDE,
    ClipRecord,
    DatasetError,
    Problem,
    check_instruction,
    first_problems,
    jsonl_text,
    read_lines,
    read_rows,
    record_in,
)

CORRECTIONS = "corrections.jsonl"
REVIEWED = "dropped in review"  # the reason in dropped.jsonl
_FIXED = ("film", "start", "end")


def apply_corrections(folder: str | Path, file: str | Path) -> int:
    """Apply a file of corrections to a dataset folder; returns how many clips and changes of scene it changed.

    DatasetError lists every line that cannot be applied, with its number; then nothing has changed. A restored or
    set-aside clip gets its place in turns.jsonl by film and time, but joins no game; one that was held out becomes a
    held-out game of its own, so that nothing trains on it. ValueError while a build writes the same tables.
    """
    DatasetFolder.open(folder)  # before anything is written into what may be no dataset
    with locked(Path(folder) / LOCK, f"a build is finishing {folder}; apply the corrections when it is done"):
        return _apply(folder, file)


def _apply(folder: str | Path, file: str | Path) -> int:
    opened = DatasetFolder.open(folder)
    if not Path(file).is_file():
        raise DatasetError(f"{file}: no such file; export corrections from the review page and give that file")
    rows, broken = read_lines(Path(file))
    if not rows and not broken:
        raise DatasetError(f"{file} has no corrections; export them from the review page")
    tables, films = _Tables.read(opened), _Films(opened.path)
    problems = dict(broken)
    changed: dict[str, int] = {}
    for number, row in rows:
        try:
            if isinstance(row, dict) and "film" in row and "clip" not in row:
                films.apply(SceneChange.of(row))
                continue
            clip = _clip_of(row, changed)
            if tables.apply(clip, {name: value for name, value in row.items() if name != "clip"}):
                changed[clip] = number
        except ValueError as error:
            problems[number] = str(error)
    if problems:
        listed = [Problem(Path(file).name, number, text) for number, text in sorted(problems.items())]
        raise DatasetError("\n".join([f"{file} cannot be applied, nothing has changed:", *first_problems(listed)]))
    tables.write()  # even without a change, since a killed call may not have written all tables
    films.write()
    return len(changed) + films.changed


class _Films:
    """The scenes of a dataset's films while they are corrected. changed: how many corrections changed any."""

    def __init__(self, out: Path) -> None:
        self._out, self._scenes, self.changed = out, {}, 0

    @cached_property
    def _index(self) -> dict[str, FilmEntry]:
        return read_film_index(self._out)

    def apply(self, change: SceneChange) -> None:
        """Apply one line; ValueError if it cannot be applied."""
        if change.film not in self._index:
            known = ", ".join(self._index) or "none"
            raise ValueError(f"{brief(change.film)!r} is not a film of this dataset; its films are: {known}")
        before = self._scenes.get(change.film, list(self._index[change.film].survey.scenes))
        after = change.apply(before)
        if after != before:
            self._scenes[change.film], self.changed = after, self.changed + 1

    def write(self) -> None:
        """Write the scenes of the films that have others now."""
        for film, scenes in self._scenes.items():
            change_scenes(self._out, film, self._index[film], scenes)


def _clip_of(row: Any, changed: Mapping[str, int]) -> str:
    """The clip that a line corrects; ValueError for an invalid line."""
    allowed = f"drop or any of {', '.join(CAPTION_FIELDS)}"
    if not isinstance(row, dict) or not isinstance(row.get("clip"), str):
        raise ValueError(f"expected an object with clip, and {allowed}; or film, and {ADDED} or {REMOVED}")
    clip = row["clip"]
    if clip in changed:
        raise ValueError(f"{clip} is also corrected in line {changed[clip]}; put both into one line")
    asked = [name for name in row if name != "clip"]
    if not asked:
        raise ValueError(f"nothing to change in {clip}; give {allowed}")
    if wrong := [name for name in asked if name not in ("drop", *CAPTION_FIELDS)]:
        raise ValueError(f"{wrong[0]!r} cannot be corrected; give {allowed}")
    if "drop" in asked and (len(asked) > 1 or not isinstance(row["drop"], bool)):
        raise ValueError(
            f"drop is {row['drop']!r}; expected true or false, and no other change to {clip} in the same line"
        )
    return clip


@dataclass
class _Tables:
    """A dataset's tables while they are corrected. dropped, aside: rows by the clip in their `record`, or by their line
    if they have none."""

    folder: DatasetFolder
    turns: dict[str, ClipRecord]
    held_out: frozenset[str]  # clips of held-out games
    dropped: dict[str | int, Any]
    aside: dict[str | int, Any]
    added: list[str] = field(default_factory=list)  # clips that still need a place in turns.jsonl
    restored: dict[str | int, Any] = field(default_factory=dict)  # rows that were in dropped.jsonl
    reworded: set[str] = field(default_factory=set)  # clips with an adverb of a person

    @classmethod
    def read(cls, folder: DatasetFolder) -> _Tables:
        """The tables of a folder; DatasetError for an unreadable line, which rewriting would lose."""
        turns = {turn.clip: turn for turn in folder.turns}
        held_out = frozenset(folder.turns[index].clip for index in folder.held_out_clips)
        return cls(folder, turns, held_out, *(_by_clip(folder.path / name) for name in (DROPPED, SET_ASIDE)))

    def apply(self, clip: str, asked: Mapping[str, Any]) -> bool:
        """Apply one line; returns whether it changed anything. ValueError if it cannot be applied."""
        if "drop" in asked:
            return self._drop(clip) if asked["drop"] else self._restore(clip)
        before = self.turns.get(clip) or self._waiting(clip)
        if before is None:
            raise ValueError(self._absent(clip))
        after = ClipRecord.from_dict({**dataclasses.asdict(before), **asked})
        if clip not in self.turns:
            if after.missing:
                raise ValueError(
                    f"{clip} was set aside, and {after.missing[0]} is still missing; fill in all, or drop it"
                )
            self.added.append(clip)
        after.to_json().encode()  # UnicodeEncodeError (a ValueError) for a lone surrogate
        if after.captioned:
            check_instruction(after)
        changed = self.aside.pop(clip, None) is not None or after != before
        self.turns[clip] = after
        if "adverb" in asked:
            self.reworded.add(clip)
        return changed

    def _drop(self, clip: str) -> bool:
        record = self.turns.pop(clip, None) or self._waiting(clip)
        if record is None and clip not in self.dropped:
            raise ValueError(self._absent(clip))
        if record is None:
            return False
        self.aside.pop(clip, None)
        span = {name: getattr(record, name) for name in _FIXED}
        known = self.dropped.get(clip, {})  # from a call that was killed before the clip left the other tables
        side = {"held_out": True} if clip in self.held_out or known.get("held_out") is True else {}
        self.dropped[clip] = {**span, "reason": REVIEWED, **side, "record": dataclasses.asdict(record)}
        return True

    def _restore(self, clip: str) -> bool:
        if clip not in self.dropped and clip not in self.turns:
            raise ValueError(self._absent(clip))
        if clip not in self.dropped:
            return False
        if not (self.folder.path / clip).is_file():
            raise ValueError(f"the file of {clip} is missing, so the clip cannot be restored")
        self.restored[clip] = self.dropped.pop(clip)
        if clip not in self.turns:
            self.turns[clip] = self._with_current_level(record_in(self.restored[clip]))
            self.added.append(clip)
        return True

    def _waiting(self, clip: str) -> ClipRecord | None:
        """The record of a clip that was set aside."""
        return self._with_current_level(record_in(self.aside[clip])) if clip in self.aside else None

    def _with_current_level(self, record: ClipRecord) -> ClipRecord:
        """The record with its level by the edges of now, which may have moved."""
        try:
            return with_level(record, self.folder.motion_table.edges)
        except DatasetError:  # the dataset has no levels
            return record

    def _absent(self, clip: str) -> str:
        if clip in self.dropped:
            return f"{clip} was dropped; restore it with drop: false first"
        return f"{clip!r} is not a clip of this dataset; is this file for {self.folder.path}?"

    def write(self) -> None:
        """Write the tables one after another, so that the folder is readable at every moment and no clip is lost: a row
        leaves one table only after it is in another."""
        path, turns = self.folder.path, self._in_order()
        games, back = self._games()
        steps = [
            (DROPPED, jsonl_text([*self.dropped.values(), *self.restored.values()])),
            (GAMES, jsonl_text(games)),
            (TURNS, turns_text(turns)),
            (GAMES, jsonl_text([*games, *back])),
            (SET_ASIDE, jsonl_text(self.aside.values())),
            (DROPPED, jsonl_text(self.dropped.values())),
            (ADVERBS, jsonl_text(row for _, row in read_rows(path / ADVERBS) if row.get("clip") not in self.reworded)),
        ]
        for name, text in steps:
            if text.encode() != ((path / name).read_bytes() if (path / name).is_file() else b""):
                write_text(path / name, text)

    def _games(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The lines of games.jsonl without dropped clips and empty games, and one for each restored clip that was held
        out and is in no game."""
        clips = [turn.clip for turn in self.folder.turns]
        games = []
        for game in self.folder.games:
            if kept := [clips[clip] for clip in game.clips if clips[clip] in self.turns]:
                games.append({"game": game.name, "clips": kept, "held_out": game.held_out})
        played = {clip for game in games for clip in game["clips"]}
        held_out = [clip for clip, row in self.restored.items() if row.get("held_out") is True and clip not in played]
        return games, [{"game": f"back-{clip}", "clips": [clip], "held_out": True} for clip in held_out]

    def _in_order(self) -> list[ClipRecord]:
        """The turns; an added one goes before the first later one of its film, else after the film."""
        turns = [turn for clip, turn in self.turns.items() if clip not in self.added]
        for record in sorted((self.turns[clip] for clip in self.added), key=lambda record: record.start):
            film = [place for place, turn in enumerate(turns) if turn.film == record.film]
            later = (place for place in film if turns[place].start > record.start)
            turns.insert(next(later, film[-1] + 1 if film else len(turns)), record)
        return turns


def _by_clip(path: Path) -> dict[str | int, Any]:
    return {record.clip if (record := record_in(row)) else number: row for number, row in read_rows(path)}
