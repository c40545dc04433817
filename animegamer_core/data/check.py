"""`dataset check`: everything that is wrong with a dataset folder, with file and line.

It reads the tables and every clip's packets, about a millisecond each; `deep` decodes every frame.
Clips are read in threads, since PyAV releases the interpreter while it reads.
"""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from ..files import PART
from ..messages import brief
from .clip_info import ClipInfo, read_clip_info
from .dataset import CLIPS, GAMES, INFO, TURNS, DatasetFolder, read_dataset, statistics
from .jsonl_tables import DROPPED, SET_ASIDE, Problem, check_instruction, read_lines, read_objects
from .motion import LEVELS, are_edges, are_values, level_of
from .records import CAPTION_FIELDS, ClipRecord

SMALL_LEVEL = 0.05  # fraction of the clips under which a level is nearly empty; a quintile has 0.2
SHIFTED = 0.05  # fraction of the clips by which a level may differ from a fifth before its edges count as old
CLOSE = 1e-6  # seconds, and pixels per frame
NEARLY_SQUARE = 0.02  # of a pixel's width / height, by which rounded sizes are off
SHOWN = 3
OnProgress = Callable[[int, int], None]  # (clips done, clips in all)


def check(folder: str | Path, deep: bool = False, on_progress: OnProgress | None = None) -> list[Problem]:
    """All problems of a dataset folder, in the order of its files; deep: decode every frame, not headers alone.

    on_progress counts the clips that were opened. OSError: an unreadable file. ValueError: mp4 clips without PyAV.
    """
    read, problems = read_dataset(folder)
    if not importlib.util.find_spec("av") and any(turn.clip.endswith(".mp4") for turn in read.turns):
        raise ValueError("checking mp4 clips needs PyAV; run `pip install av`")
    data = _Tables(read)
    if not (read.path / TURNS).is_file():
        return problems
    for rule in (_turns, _levels, _captions, _games, _info, _left_out, _files):
        problems.extend(rule(data))
    problems.extend(_clips(data, deep, on_progress))
    files = (TURNS, GAMES, INFO, SET_ASIDE, DROPPED, CLIPS)
    return sorted(problems, key=lambda problem: (files.index(problem.file), problem.line))


@dataclass(frozen=True)
class _Tables:
    """A dataset while it is checked."""

    folder: DatasetFolder

    @property
    def turns(self) -> tuple[ClipRecord, ...]:
        return self.folder.turns

    @cached_property
    def line_of(self) -> dict[str, int]:
        """The line of each clip in turns.jsonl."""
        rows = read_lines(self.folder.path / TURNS)[0]
        return {row["clip"]: number for number, row in rows if _has_text(row, "clip")}

    def turn(self, record: ClipRecord, text: str, serious: bool = True) -> Problem:
        """A problem in a clip's line."""
        return Problem(TURNS, self.line_of[record.clip], text, serious)


def _turns(data: _Tables) -> Iterator[Problem]:
    """Clips of a film are in order, do not overlap and have the length of the settings."""
    frames, fps = data.folder.clip_shape.get("frames"), data.folder.clip_shape.get("fps")
    known = isinstance(frames, int) and isinstance(fps, int | float) and frames > 1 and fps > 0
    last: dict[str, ClipRecord] = {}
    for record in data.turns:
        before = last.get(record.film)
        if before is not None and record.start < before.start:
            yield data.turn(record, f"start {record.start:g} is before the clip above ({before.start:g}); sort by time")
        elif before is not None and record.start < before.end - CLOSE:
            yield data.turn(record, f"start {record.start:g} is inside {before.clip}, which ends at {before.end:g}")
        if known and abs(record.end - record.start - (frames - 1) / fps) > 1e-3:
            wanted = f"{frames} frames at {fps:g} fps take {(frames - 1) / fps:g} s"
            yield data.turn(record, f"the clip lasts {record.end - record.start:g} s; {wanted}")
        last[record.film] = record


def _levels(data: _Tables) -> Iterator[Problem]:
    """Motion levels match motion values and edges, and edges match values."""
    missing = [record for record in data.turns if record.motion_value is None]
    if missing:
        found = f"clips without a motion_value: {len(missing)} of {len(data.turns)}, this is the first"
        yield data.turn(missing[0], f"{found}; measure them")
    edges = data.folder.motion.get("edges")
    if not are_edges(edges):
        if data.turns:
            found = "has no settings.motion.edges" if edges is None else f"settings.motion.edges is {edges!r}"
            yield Problem(INFO, 0, f"{found}; expected four rising numbers, finish the dataset first")
        return
    measured = [record for record in data.turns if record.motion_value is not None]
    for record in measured:
        level = level_of(record.motion_value, edges)
        if record.motion_level != level:
            found = f"motion_level is {record.motion_level}, but motion_value {record.motion_value:g} is in level"
            yield data.turn(record, f"{found} {level}; levels come from measurement, so set it to {level}")
    yield from _edges(data, [record.motion_value for record in measured], edges)
    values = data.folder.motion.get("values")
    if values is not None and not are_values(values):
        found = f"settings.motion.values is {brief(values, 60)}"
        yield Problem(INFO, 0, f"{found}; expected five numbers, finish the dataset first")
        return
    for number, value in enumerate(values or (), start=1):
        if level_of(value, edges) != number:
            yield Problem(INFO, 0, f"settings.motion.values: {value:g} is not in level {number}")


def _edges(data: _Tables, values: list[float], edges: list[float]) -> Iterator[Problem]:
    """Notes on levels with hardly any clip, and on edges that are not the quintiles of these clips."""
    counts = Counter(level_of(value, edges) for value in values)
    few = [level for level in range(1, LEVELS + 1) if values and counts[level] < SMALL_LEVEL * len(values)]
    for level in few:
        yield Problem(
            TURNS, 0, f"level {level} has {counts[level]} of {len(values)} clips, too few to learn from", False
        )
    if not few and len(values) >= 100:
        off = max(abs(counts[level] / len(values) - 1 / LEVELS) for level in range(1, LEVELS + 1))
        if off > SHIFTED:
            found = f"a level's share of the clips differs from a fifth by {off:.0%}"
            yield Problem(INFO, 0, f"settings.motion.edges are not these clips' quintiles: {found}", False)
    still = [record for record in data.turns if record.motion_value == 0]
    if still:
        yield data.turn(still[0], f"clips without motion (motion_value 0): {len(still)}, this is the first", False)


def _captions(data: _Tables) -> Iterator[Problem]:
    """Captions are there, whole, and make an instruction."""
    empty = []
    for record in data.turns:
        if record.missing == CAPTION_FIELDS:
            empty.append(record)
        elif record.missing:
            yield data.turn(record, f"incomplete caption: {', '.join(record.missing)} is null; fill it in")
        else:
            try:
                check_instruction(record)
            except ValueError as error:
                yield data.turn(record, str(error))
    if empty:
        serious = len(empty) < len(data.turns)  # a dataset without any caption is for the stage vae alone
        found = f"clips without a caption: {len(empty)} of {len(data.turns)}, this is the first"
        yield data.turn(empty[0], f"{found}; only stage vae accepts them, so caption or drop them", serious)


def _games(data: _Tables) -> Iterator[Problem]:
    """Games have their clips in film order, each once, and share none with held-out games."""
    lines = {row["game"]: number for number, row in read_lines(data.folder.path / GAMES)[0] if _has_text(row, "game")}
    if not data.folder.games and data.turns:
        yield Problem(GAMES, 0, "no game; stages predict and adapt need sequences of clips", False)
    held_out = {clip for game in data.folder.games if game.held_out for clip in game.clips}
    for game in data.folder.games:
        at = partial(Problem, GAMES, lines[game.name])
        clips = [data.turns[clip] for clip in game.clips]
        for before, record in zip(clips, clips[1:], strict=False):
            if record.film == before.film and record.start <= before.start:
                found = f"{record.clip} ({record.start:g} s) follows {before.clip} ({before.start:g} s)"
                yield at(f"{found}; keep film order")
        leaks = [data.turns[clip].clip for clip in game.clips if clip in held_out and not game.held_out]
        if leaks:
            found = f"clips that are also in a held-out game: {len(leaks)}, the first is {leaks[0]}"
            yield at(f"{found}; training would see validation data")


def _has_text(row: Any, key: str) -> bool:
    return isinstance(row, dict) and isinstance(row.get(key), str)


def _info(data: _Tables) -> Iterator[Problem]:
    """The statistics in dataset.json match the clips."""
    stated = data.folder.info.get("statistics")
    if not isinstance(stated, dict):
        if data.turns and (data.folder.path / INFO).is_file():
            yield Problem(INFO, 0, "has no statistics; finish the dataset first", False)
        elif data.turns:
            yield Problem(INFO, 0, "is missing; finish the dataset first")
        return
    for name, value in statistics(data.turns, len(data.folder.games)).items():
        if name in stated and stated[name] != value:
            found = f"statistics.{name} is {brief(stated[name], 60)}, but the tables give {brief(value, 60)}"
            yield Problem(INFO, 0, found, False)


def _left_out(data: _Tables) -> Iterator[Problem]:
    """The tables of left-out clips are readable, and have no clip that turns.jsonl has too."""
    for name, keys in ((SET_ASIDE, ("clip", "reason", "record")), (DROPPED, ("film", "start", "end", "reason"))):
        rows, broken = read_lines(data.folder.path / name)
        yield from (Problem(name, number, text) for number, text in broken)
        for number, row in rows:
            lacking = [key for key in keys if not isinstance(row, dict) or row.get(key) is None]
            if lacking:
                yield Problem(name, number, f"{lacking[0]} is missing; expected an object with {', '.join(keys)}")
            elif name == SET_ASIDE and _has_text(row, "clip") and row["clip"] in data.line_of:
                yield Problem(name, number, f"{row['clip']} also has a line in {TURNS}; delete one")
    waiting = len(read_objects(data.folder.path / SET_ASIDE))
    if waiting:
        yield Problem(SET_ASIDE, 0, f"clips without a valid caption: {waiting}; the review page shows them", False)


def _files(data: _Tables) -> Iterator[Problem]:
    """No file in clips/ is missing from the tables."""
    path = data.folder.path
    known = set(data.line_of)
    turns, aside, dropped = (read_lines(path / name) for name in (TURNS, SET_ASIDE, DROPPED))
    unread = turns[1] or aside[1] or dropped[1] or not all(_has_text(row, "clip") for _, row in turns[0] + aside[0])
    for rows, _ in (aside, dropped):
        for _, row in rows:
            record = row.get("record") if isinstance(row, dict) else None
            known |= {value["clip"] for value in (row, record) if _has_text(value, "clip")}
    files = (file for file in (path / CLIPS).rglob("*") if file.is_file())
    stray = sorted(name for file in files if (name := file.relative_to(path).as_posix()) not in known)
    cut = [name for name in stray if Path(name).name.startswith(PART)]
    if cut:
        yield Problem(CLIPS, 0, f"{_some(cut)} left over from a killed run; delete them", False)
    if len(stray) > len(cut):
        names = _some([name for name in stray if name not in cut])
        remedy = "correct the unreadable lines first" if unread else "delete them, or build again"
        yield Problem(CLIPS, 0, f"{names} not in any table; {remedy}", False)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more} {'is' if len(names) == 1 else 'are'}"


def _clips(data: _Tables, deep: bool, on_progress: OnProgress | None) -> Iterator[Problem]:
    """Every clip opens, and has the size, length and frame rate of the settings, or else of most clips."""
    there = [record for record in data.turns if (data.folder.path / record.clip).is_file()]
    facts: list[tuple[ClipRecord, ClipInfo]] = []
    threads = ThreadPoolExecutor(2 * (os.cpu_count() or 1))
    try:
        read = threads.map(partial(_facts, data.folder.path), there)
        if deep:
            headers = list(read)
            sizes = Counter(found.size for found in headers if isinstance(found, ClipInfo))
            size = data.folder.clip_shape.get("size") or next((size for size, _ in sizes.most_common(1)), None)
            read = threads.map(partial(_deep_facts, data.folder.path, size), there, headers)
        for done, (record, found) in enumerate(zip(there, read, strict=True), start=1):
            if isinstance(found, ClipInfo):
                facts.append((record, found))
                if abs(found.pixel - 1) > NEARLY_SQUARE:
                    wide = f"{record.clip} is to be shown {found.pixel:.2f} times as wide as its pixels"
                    yield data.turn(record, f"{wide}, which training reads as they are; cut it to shape instead", False)
            else:
                yield data.turn(record, found)
            if on_progress is not None:
                on_progress(done, len(there))
    finally:
        threads.shutdown(cancel_futures=True)  # an interrupt does not wait for the other clips
    for name in ("size", "frames", "fps") if facts else ():
        values = [getattr(found, name) for _, found in facts]
        expected = data.folder.clip_shape.get(name) or Counter(values).most_common(1)[0][0]
        for (record, _), value in zip(facts, values, strict=True):
            if value != expected:
                found = f"{record.clip} has {name} {_shown(value)}"
                yield data.turn(record, f"{found}; the dataset's is {_shown(expected)}")


def _deep_facts(folder: Path, size: object, record: ClipRecord, header: ClipInfo | str) -> ClipInfo | str:
    """What the frames say; one of another size, which may be far too large, is not decoded."""
    return _facts(folder, record, True) if isinstance(header, ClipInfo) and header.size == size else header


def _facts(folder: Path, record: ClipRecord, deep: bool = False) -> ClipInfo | str:
    try:
        return read_clip_info(folder / record.clip, deep)
    except (ValueError, OSError) as error:
        return f"{record.clip} cannot be used: {error}; make or copy the file again"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{value[0]} x {value[1]}"
    return f"{value:g}" if isinstance(value, int | float) else brief(value, 60)
