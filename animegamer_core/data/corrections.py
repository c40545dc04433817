"""Applies a person's corrections to a dataset's tables: all of them, or none.

corrections.jsonl, as the review page exports it, has a line for each clip that was changed, and for each change of
scene (`films.survey`), which the next build of the film cuts by:

    {clip, <field of the caption>: value, ...}    also for a set-aside clip, if its caption is then complete
    {clip, drop: true}                            drop the clip; its line moves to dropped.jsonl
    {clip, drop: false}                           restore a clip that a person dropped, a duplicate or credits
    {film, scene_change: [before, after]}         another scene begins between these seconds
    {film, no_scene_change: second}               the scene that begins here continues from the one before

Applying a file twice changes nothing the second time. A kill between two tables leaves a readable dataset, and the same
call completes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..files import locked, write_text
from ..json_files import read_rows, to_type
from ..messages import shortened
from .dataset import GAMES, TURNS, DatasetFolder, with_level
from .films.film_index import change_scenes, read_film_index
from .films.scenes import Scene
from .films.survey import SceneChange
from .records import (
    ADVERBS,
    CAPTION_FIELDS,
    DROPPED,
    LOCK,
    REVIEWED,
    SET_ASIDE,
    ChosenAdverb,
    ClipRecord,
    DatasetError,
    Dropped,
    Problem,
    SetAside,
    first_problems,
    jsonl_text,
    read_table,
)


def apply_corrections(folder: str | Path, file: str | Path) -> int:
    """Apply a file of corrections to a dataset folder; returns how many clips and changes of scene it changed.

    DatasetError lists every line that cannot be applied, with its number; then nothing has changed. A restored or
    set-aside clip gets its place in turns.jsonl by film and time, but joins no game; one that was held out becomes a
    held-out game of its own, so that nothing trains on it. ValueError while a build writes the same tables.
    """
    DatasetFolder.open(folder)  # before anything is written into what may be no dataset
    with locked(Path(folder) / LOCK, f"a build is finishing {folder}; apply the corrections when it is done"):
        return _apply(DatasetFolder.open(folder), Path(file))


def _apply(folder: DatasetFolder, file: Path) -> int:
    rows = list(read_rows(file, dict[str, Any]))
    if not rows:
        raise DatasetError(f"{file} has no corrections; export them from the review page and give that file")
    tables, films = _Tables(folder), read_film_index(folder.path)
    scenes: dict[str, Sequence[Scene]] = {}  # of films whose scenes change
    seen: set[str] = set()
    problems, changed = [], 0
    for number, row, problem in rows:
        try:
            if row is None:
                raise ValueError(problem)
            if "film" in row and "clip" not in row:
                change = to_type(row, SceneChange, "this line")
                if change.film not in films:
                    raise ValueError(f"{shortened(change.film)!r} is not a film of this dataset: {', '.join(films)}")
                before: Sequence = scenes.get(change.film, list(films[change.film].survey.scenes))
                after = change.apply(before)
                if after != before:
                    scenes[change.film] = after
                    changed += 1
                continue
            clip = str(row.pop("clip", ""))
            if clip in seen:
                raise ValueError(f"{clip} is also corrected in an earlier line; put both into one")
            seen.add(clip)
            changed += tables.apply(clip, row)
        except ValueError as error:
            problems.append(Problem(file.name, number, str(error)))
    if problems:
        raise DatasetError("\n".join([f"{file} cannot be applied, nothing has changed:", *first_problems(problems)]))
    tables.write()  # even without a change, since a killed call may not have written all tables
    for film in scenes:
        change_scenes(folder.path, film, films[film], scenes[film])
    return changed


class _Tables:
    """A dataset's tables while they are corrected."""

    def __init__(self, folder: DatasetFolder) -> None:
        """DatasetError for an unreadable line, which rewriting would lose."""
        self.folder = folder
        self.turns = {turn.clip: turn for turn in folder.turns}
        self.held_out = {folder.turns[index].clip for index in folder.held_out_clips}
        rows = read_table(folder.path / DROPPED, Dropped)
        self.by_rule = [row for row in rows if row.record is None]
        self.dropped = {row.record.clip: row for row in rows if row.record is not None}
        self.aside = {row.clip: row for row in read_table(folder.path / SET_ASIDE, SetAside)}
        self.added: list[str] = []  # clips that still need a place in turns.jsonl
        self.restored: dict[str, Dropped] = {}
        self.reworded: set[str] = set()  # clips with an adverb of a person

    def apply(self, clip: str, asked: dict[str, Any]) -> bool:
        """Apply one line; returns whether it changed anything. ValueError if it cannot be applied."""
        if asked in ({"drop": True}, {"drop": False}):
            return self._drop(clip) if asked["drop"] else self._restore(clip)
        if not asked or not asked.keys() <= set(CAPTION_FIELDS):
            found = ", ".join(asked) or "nothing"
            raise ValueError(
                f"{clip}: {shortened(found)} cannot be corrected; give drop (true or false) alone, or "
                f"any of {', '.join(CAPTION_FIELDS)}"
            )
        before = self.turns.get(clip) or self._waiting(clip)
        if before is None:
            raise ValueError(self._absent(clip))
        after = to_type({**msgspec.structs.asdict(before), **asked}, ClipRecord, clip)
        after.check(self.folder.stats)
        if clip not in self.turns:
            if after.missing:
                raise ValueError(
                    f"{clip} was set aside, and {after.missing[0]} is still missing; fill in all, or drop it"
                )
            self.added.append(clip)
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
        # It is in the table already if a call was killed before the clip left the other tables.
        held_out = clip in self.held_out or (clip in self.dropped and self.dropped[clip].held_out)
        self.dropped[clip] = Dropped(
            film=record.film, start=record.start, end=record.end, reason=REVIEWED, held_out=held_out, record=record
        )
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
            row = self.restored[clip]
            kept = row.record.kept or row.reason != REVIEWED
            self.turns[clip] = msgspec.structs.replace(self._with_current_level(row.record), kept=kept)
            self.added.append(clip)
        return True

    def _waiting(self, clip: str) -> ClipRecord | None:
        """The record of a clip that was set aside."""
        return self._with_current_level(self.aside[clip].record) if clip in self.aside else None

    def _with_current_level(self, record: ClipRecord) -> ClipRecord:
        """The record with its level by the edges of now, which may have moved."""
        edges = self.folder.motion.edges
        return record if edges is None else with_level(record, edges)

    def _absent(self, clip: str) -> str:
        if clip in self.dropped:
            return f"{clip} was dropped; restore it with drop: false first"
        return f"{shortened(clip)!r} is not a clip of this dataset; is this file for {self.folder.path}?"

    def write(self) -> None:
        """Write the tables one after another, so that the folder is readable at every moment and no clip is lost: a row
        leaves one table only after it is in another."""
        path = self.folder.path
        games, back = self._games()
        dropped = [*self.by_rule, *self.dropped.values()]
        adverbs = (row for row in read_table(path / ADVERBS, ChosenAdverb) if row.clip not in self.reworded)
        steps: list[tuple[str, Any]] = [
            (DROPPED, [*dropped, *self.restored.values()]),
            (GAMES, games),
            (TURNS, self._in_order()),
            (GAMES, [*games, *back]),
            (SET_ASIDE, self.aside.values()),
            (DROPPED, dropped),
            (ADVERBS, adverbs),
        ]
        for name, lines in steps:
            text = jsonl_text(lines)
            if text.encode() != ((path / name).read_bytes() if (path / name).is_file() else b""):
                write_text(path / name, text)

    def _games(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The lines of games.jsonl without dropped clips and empty games, and one for each restored clip that was held
        out and is in no game."""
        clips = [turn.clip for turn in self.folder.turns]
        games: list[dict[str, Any]] = []
        for game in self.folder.games:
            if kept := [clips[clip] for clip in game.clips if clips[clip] in self.turns]:
                games.append({"game": game.name, "clips": kept, "held_out": game.held_out})
        played = {clip for game in games for clip in game["clips"]}
        held_out = [clip for clip, row in self.restored.items() if row.held_out and clip not in played]
        return games, [{"game": f"back-{clip}", "clips": [clip], "held_out": True} for clip in held_out]

    def _in_order(self) -> list[ClipRecord]:
        """The turns; an added one goes before the first later one of its film, else after the film."""
        turns = [turn for clip, turn in self.turns.items() if clip not in self.added]
        for record in sorted((self.turns[clip] for clip in self.added), key=lambda record: record.start):
            film = [place for place, turn in enumerate(turns) if turn.film == record.film]
            later = (place for place in film if turns[place].start > record.start)
            turns.insert(next(later, film[-1] + 1 if film else len(turns)), record)
        return turns
