"""`dataset check`: everything that is wrong with a dataset folder, each with its file and line.

Reading the tables takes a moment and every clip's header some tenths of a millisecond; with `deep` every frame is
decoded. Headers and frames are read in threads, since PyAV lets others run while it reads.
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
from .clipfacts import ClipFacts, clip_facts
from .dataset import CLIPS, GAMES, INFO, TURNS, DatasetFolder, read_dataset, statistics
from .motion import LEVELS, are_edges, are_values, level_of
from .records import ClipRecord
from .tables import CAPTION_FIELDS, DROPPED, SET_ASIDE, Problem, check_instruction, read_lines, read_objects

SHARE_OF_A_LEVEL = 0.05  # a level with fewer clips is nearly empty: the dataset's own quintiles hold a fifth each
SHIFTED = 0.05  # by how much of all clips a level may differ from a fifth before its edges are called old
CLOSE = 1e-6  # seconds, and pixels a frame
SHOWN = 3
OnProgress = Callable[[int, int], None]  # (clips done, clips in all)


def check(folder: str | Path, deep: bool = False, on_progress: OnProgress | None = None) -> list[Problem]:
    """All problems of a dataset folder, in the order of its files; deep: decode every frame, not headers alone.

    on_progress hears of clips that were opened; what it raises goes on to the caller. OSError: a file that cannot be
    read at all. ValueError: a deep check without PyAV.
    """
    if deep and not importlib.util.find_spec("av"):
        raise ValueError(
            "a deep check decodes the clips, which takes PyAV; run `pip install av`, or check without --deep"
        )
    read, told = read_dataset(folder)
    data, problems = _Tables(read), list(told)
    if not (read.path / TURNS).is_file():
        return problems
    for rule in (_turns, _levels, _captions, _games, _info, _left_out, _files):
        problems.extend(rule(data))
    problems.extend(_clips(data, deep, on_progress))
    files = (TURNS, GAMES, INFO, SET_ASIDE, DROPPED, CLIPS)
    return sorted(problems, key=lambda problem: (files.index(problem.file), problem.line))


@dataclass(frozen=True)
class _Tables:
    """A dataset while it is looked through."""

    folder: DatasetFolder

    @property
    def turns(self) -> tuple[ClipRecord, ...]:
        return self.folder.turns

    @cached_property
    def line_of(self) -> dict[str, int]:
        """The line of each clip in turns.jsonl."""
        rows = read_lines(self.folder.path / TURNS)[0]
        return {row["clip"]: number for number, row in rows if _tells(row, "clip")}

    @property
    def shape(self) -> dict[str, Any]:
        """What every clip shall be, as far as the settings tell: size, frames, fps."""
        settings = self.folder.settings
        told = settings.get("clips")
        told = {**settings, **(told if isinstance(told, dict) else {})}
        sides = told.get("width"), told.get("height")
        return {name: told[name] for name in ("frames", "fps") if name in told} | (
            {} if None in sides else {"size": sides}
        )

    def turn(self, record: ClipRecord, text: str, serious: bool = True) -> Problem:
        """A problem of a clip's line."""
        return Problem(TURNS, self.line_of[record.clip], text, serious)


def _turns(data: _Tables) -> Iterator[Problem]:
    """Clips of a film follow one another, do not overlap and are as long as the settings say."""
    frames, fps = data.shape.get("frames"), data.shape.get("fps")
    known = isinstance(frames, int) and isinstance(fps, int | float) and frames > 1 and fps > 0
    last: dict[str, ClipRecord] = {}
    for record in data.turns:
        before = last.get(record.film)
        if before is not None and record.start < before.start:
            yield data.turn(
                record, f"start {record.start:g} lies before the clip above ({before.start:g}); sort by time"
            )
        elif before is not None and record.start < before.end - CLOSE:
            yield data.turn(record, f"start {record.start:g} lies inside {before.clip}, which ends at {before.end:g}")
        if known and abs(record.end - record.start - (frames - 1) / fps) > 1e-3:
            wanted = f"{frames} frames at {fps:g} fps take {(frames - 1) / fps:g} s"
            yield data.turn(record, f"the clip lasts {record.end - record.start:g} s; {wanted}")
        last[record.film] = record


def _levels(data: _Tables) -> Iterator[Problem]:
    """Motion levels follow from motion values and edges, and the edges from the values."""
    missing = [record for record in data.turns if record.motion_value is None]
    if missing:
        yield data.turn(
            missing[0],
            f"clips without a motion_value: {len(missing)} of {len(data.turns)}, this is the first; measure them",
        )
    edges = data.folder.motion.get("edges")
    if not are_edges(edges):
        if data.turns:
            told = "has no settings.motion.edges" if edges is None else f"settings.motion.edges is {edges!r}"
            yield Problem(INFO, 0, f"{told}; expected four rising numbers, finish the dataset first")
        return
    measured = [record for record in data.turns if record.motion_value is not None]
    for record in measured:
        level = level_of(record.motion_value, edges)
        if record.motion_level != level:
            told = (
                f"motion_level is {record.motion_level}, but motion_value {record.motion_value:g} lies in level {level}"
            )
            yield data.turn(record, f"{told}; levels are measured, so set it to {level}")
    yield from _edges(data, [record.motion_value for record in measured], edges)
    told = data.folder.motion.get("values")
    if told is not None and not are_values(told):
        found = f"settings.motion.values is {_brief(told)}"
        yield Problem(INFO, 0, f"{found}; expected five numbers, finish the dataset first")
        return
    for number, value in enumerate(told or (), start=1):
        if level_of(value, edges) != number:
            yield Problem(INFO, 0, f"settings.motion.values: {value:g} does not lie in level {number}")


def _edges(data: _Tables, values: list[float], edges: list[float]) -> Iterator[Problem]:
    """Notes on levels with hardly any clip, and on edges that parted other clips than these."""
    counts = Counter(level_of(value, edges) for value in values)
    few = [level for level in range(1, LEVELS + 1) if values and counts[level] < SHARE_OF_A_LEVEL * len(values)]
    for level in few:
        yield Problem(TURNS, 0, f"level {level} has {counts[level]} of {len(values)} clips; few to learn from", False)
    if not few and len(values) >= 100:
        off = max(abs(counts[level] / len(values) - 1 / LEVELS) for level in range(1, LEVELS + 1))
        if off > SHIFTED:
            told = f"a level differs from a fifth of the clips by {off:.0%}"
            yield Problem(INFO, 0, f"settings.motion.edges are not these clips' quintiles: {told}", False)
    still = [record for record in data.turns if record.motion_value == 0]
    if still:
        yield data.turn(still[0], f"clips that stand still (motion_value 0): {len(still)}, this is the first", False)


def _captions(data: _Tables) -> Iterator[Problem]:
    """Captions are there, whole, and can be told as an instruction."""
    empty = []
    for record in data.turns:
        lacking = [name for name in CAPTION_FIELDS if getattr(record, name) is None]
        if len(lacking) == len(CAPTION_FIELDS):
            empty.append(record)
        elif lacking:
            yield data.turn(record, f"captioned in part: {', '.join(lacking)} is null; fill it in")
        else:
            yield from _instruction(data, record)
    if empty:
        serious = len(empty) < len(data.turns)  # a dataset without any caption is for the video part alone
        told = f"clips without a caption: {len(empty)} of {len(data.turns)}, this is the first"
        yield data.turn(empty[0], f"{told}; all stages but vae refuse them, so caption or drop them", serious)


def _instruction(data: _Tables, record: ClipRecord) -> Iterator[Problem]:
    try:
        check_instruction(record)
    except ValueError as error:
        yield data.turn(record, str(error))


def _games(data: _Tables) -> Iterator[Problem]:
    """Games play their clips in the order of the film, once, and share none with held-out games."""
    lines = {row["game"]: number for number, row in read_lines(data.folder.path / GAMES)[0] if _tells(row, "game")}
    if not data.folder.games and data.turns:
        yield Problem(GAMES, 0, "no game; stages predict and adapt need sequences of clips", False)
    kept_back = {clip: game.name for game in data.folder.games if game.held_out for clip in game.clips}
    for game in data.folder.games:
        at = partial(Problem, GAMES, lines[game.name])
        clips = [data.turns[clip] for clip in game.clips]
        for before, record in zip(clips, clips[1:], strict=False):
            if record.film == before.film and record.start <= before.start:
                yield at(
                    f"{record.clip} ({record.start:g} s) follows {before.clip} ({before.start:g} s); keep film order"
                )
        leaks = [data.turns[clip].clip for clip in game.clips if clip in kept_back and not game.held_out]
        if leaks:
            told = f"clips that another game holds out too: {len(leaks)}, the first is {leaks[0]}"
            yield at(f"{told}; training would see what validation is measured on")


def _tells(row: Any, key: str) -> bool:
    return isinstance(row, dict) and isinstance(row.get(key), str)


def _info(data: _Tables) -> Iterator[Problem]:
    """Statistics are those of these clips."""
    told = data.folder.info.get("statistics")
    if not isinstance(told, dict):
        if data.turns and (data.folder.path / INFO).is_file():
            yield Problem(INFO, 0, "has no statistics; finish the dataset first", False)
        elif data.turns:
            yield Problem(INFO, 0, "is missing; finish the dataset first")
        return
    for name, value in statistics(data.turns, len(data.folder.games)).items():
        if name in told and told[name] != value:
            yield Problem(INFO, 0, f"statistics.{name} is {_brief(told[name])}, the tables say {_brief(value)}", False)


def _brief(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _left_out(data: _Tables) -> Iterator[Problem]:
    """The tables of what was left out can be read, and hold no clip that is in turns.jsonl too."""
    for name, keys in ((SET_ASIDE, ("clip", "reason", "record")), (DROPPED, ("film", "start", "end", "reason"))):
        rows, broken = read_lines(data.folder.path / name)
        yield from (Problem(name, number, text) for number, text in broken)
        for number, row in rows:
            lacking = [key for key in keys if not isinstance(row, dict) or row.get(key) is None]
            if lacking:
                yield Problem(name, number, f"{lacking[0]} is missing; expected an object with {', '.join(keys)}")
            elif name == SET_ASIDE and _tells(row, "clip") and row["clip"] in data.line_of:
                yield Problem(name, number, f"{row['clip']} has a line in {TURNS} too; delete one")
    waiting = len(read_objects(data.folder.path / SET_ASIDE))
    if waiting:
        yield Problem(SET_ASIDE, 0, f"clips that wait for a caption: {waiting}; the review page shows them", False)


def _files(data: _Tables) -> Iterator[Problem]:
    """Files in clips/ that no table names."""
    path = data.folder.path
    known = set(data.line_of)
    turns, aside, dropped = (read_lines(path / name) for name in (TURNS, SET_ASIDE, DROPPED))
    unread = turns[1] or aside[1] or dropped[1] or not all(_tells(row, "clip") for _, row in turns[0] + aside[0])
    for rows, _ in (aside, dropped):
        for _, row in rows:
            record = row.get("record") if isinstance(row, dict) else None
            known |= {value["clip"] for value in (row, record) if _tells(value, "clip")}
    files = (file for file in (path / CLIPS).rglob("*") if file.is_file())
    stray = sorted(name for file in files if (name := file.relative_to(path).as_posix()) not in known)
    cut = [name for name in stray if Path(name).name.startswith(PART)]
    if cut:
        yield Problem(CLIPS, 0, f"{_some(cut)} left by a run that was killed; delete them", False)
    if len(stray) > len(cut):
        told = _some([name for name in stray if name not in cut])
        remedy = "mend the lines that cannot be read first" if unread else "delete them, or build again"
        yield Problem(CLIPS, 0, f"{told} in no table; {remedy}", False)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more} {'is' if len(names) == 1 else 'are'}"


def _clips(data: _Tables, deep: bool, on_progress: OnProgress | None) -> Iterator[Problem]:
    """Every clip opens, and all agree in size, length and frame rate."""
    there = [record for record in data.turns if (data.folder.path / record.clip).is_file()]
    facts: list[tuple[ClipRecord, ClipFacts]] = []
    threads = ThreadPoolExecutor(2 * (os.cpu_count() or 1))
    try:
        read = threads.map(partial(_facts, data.folder.path, deep), there)
        for done, (record, found) in enumerate(zip(there, read, strict=True), start=1):
            if isinstance(found, ClipFacts):
                facts.append((record, found))
            else:
                yield data.turn(record, found)
            if on_progress is not None:
                on_progress(done, len(there))
    finally:
        threads.shutdown(cancel_futures=True)  # somebody who stops need not wait for the other clips
    for name, expected in _expected(data, [found for _, found in facts]).items():
        for record, found in facts:
            if (value := getattr(found, name)) not in (None, expected):
                yield data.turn(record, f"{record.clip} has {name} {_told(value)}; the dataset's is {_told(expected)}")


def _facts(folder: Path, deep: bool, record: ClipRecord) -> ClipFacts | str:
    try:
        return clip_facts(folder / record.clip, deep)
    except (ValueError, OSError) as error:
        return f"{record.clip} cannot be used: {error}; make or copy the file again"


def _expected(data: _Tables, facts: list[ClipFacts]) -> dict[str, Any]:
    """What the settings say of all clips, or what most have."""
    expected = {}
    for name in ("size", "frames", "fps"):
        counts = Counter(value for found in facts if (value := getattr(found, name)) is not None)
        if name in data.shape or counts:
            expected[name] = data.shape.get(name) or counts.most_common(1)[0][0]
    return expected


def _told(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{value[0]} x {value[1]}"
    return f"{value:g}" if isinstance(value, int | float) else _brief(value)
