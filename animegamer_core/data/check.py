"""`dataset check`: what training would refuse or learn wrongly from, with file and line."""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from ..files import PART
from ..json_files import read_rows
from ..media.video import ClipInfo, read_clip_info
from ..messages import brief
from .dataset import CLIPS, GAMES, INFO, TURNS, DatasetFolder, read_dataset
from .motion import LEVELS, level_of
from .records import CAPTION_FIELDS, DROPPED, SET_ASIDE, ClipRecord, Problem

SMALL_LEVEL = 0.05  # fraction of the clips under which a level is nearly empty; a quintile has 0.2
CLOSE = 1e-6  # seconds
NEARLY_SQUARE = 0.02  # of a pixel's width / height, by which rounded sizes are off
SHOWN = 3
OnProgress = Callable[[int, int], None]  # (clips done, clips in all)
OfClip = Callable[..., Problem]  # (record, text, serious): a problem in the clip's line of turns.jsonl


def check(folder: str | Path, on_progress: OnProgress | None = None) -> list[Problem]:
    """All problems of a dataset folder, in the order of its files. Of clips it reads headers, and decodes no frame.

    on_progress counts the clips that were opened. OSError: an unreadable file. ValueError: mp4 clips without PyAV.
    """
    read, problems = read_dataset(folder)
    if not importlib.util.find_spec("av") and any(turn.clip.endswith(".mp4") for turn in read.turns):
        raise ValueError("checking mp4 clips needs PyAV; run `pip install av`")
    if not (read.path / TURNS).is_file():
        return problems
    lines = {row.value.clip: row.number for row in read_rows(read.path / TURNS, ClipRecord) if row.value is not None}

    def of_clip(record: ClipRecord, text: str, serious: bool = True) -> Problem:
        return Problem(TURNS, lines[record.clip], text, serious)

    strays = list(_stray_files(read.path, unread=bool(problems)))
    for rule in (_times, _levels, _captions):
        problems.extend(rule(read, of_clip))
    problems.extend(_games(read))
    problems.extend(strays)
    problems.extend(_clips(read, of_clip, on_progress))
    files = (TURNS, GAMES, INFO, CLIPS)
    return sorted(problems, key=lambda problem: (files.index(problem.file), problem.line))


def _times(folder: DatasetFolder, of_clip: OfClip) -> Iterator[Problem]:
    """Clips of a film are in order, do not overlap and have the length of the settings."""
    frames, fps = folder.clip_shape.get("frames"), folder.clip_shape.get("fps")
    known = isinstance(frames, int) and isinstance(fps, int | float) and frames > 1 and fps > 0
    last: dict[str, ClipRecord] = {}
    for record in folder.turns:
        before = last.get(record.film)
        if before is not None and record.start < before.start:
            yield of_clip(record, f"start {record.start:g} is before the clip above ({before.start:g}); sort by time")
        elif before is not None and record.start < before.end - CLOSE:
            yield of_clip(record, f"start {record.start:g} is inside {before.clip}, which ends at {before.end:g}")
        if known and abs(record.end - record.start - (frames - 1) / fps) > 1e-3:
            wanted = f"{frames} frames at {fps:g} fps take {(frames - 1) / fps:g} s"
            yield of_clip(record, f"the clip lasts {record.end - record.start:g} s; {wanted}")
        last[record.film] = record


def _levels(folder: DatasetFolder, of_clip: OfClip) -> Iterator[Problem]:
    """Motion levels match motion values and edges, and no level is nearly empty."""
    measured = [record for record in folder.turns if record.motion_value is not None]
    if unmeasured := [record for record in folder.turns if record.motion_value is None]:
        found = f"clips without a motion_value: {len(unmeasured)} of {len(folder.turns)}, this is the first"
        yield of_clip(unmeasured[0], f"{found}; measure them")
    edges = folder.motion.edges
    if edges is None:
        if folder.turns:
            yield Problem(INFO, 0, "has no settings.motion.edges; finish the dataset first")
        return
    for record in measured:
        level = level_of(record.motion_value, edges)
        if record.motion_level != level:
            found = f"motion_level is {record.motion_level}, but motion_value {record.motion_value:g} is in level"
            yield of_clip(record, f"{found} {level}; levels come from measurement, so set it to {level}")
    counts = Counter(level_of(record.motion_value, edges) for record in measured)
    for level in range(1, LEVELS + 1):
        if measured and counts[level] < SMALL_LEVEL * len(measured):
            found = f"level {level} has {counts[level]} of {len(measured)} clips"
            yield Problem(TURNS, 0, f"{found}, too few to learn from", False)
    for number, value in enumerate(folder.motion.values or (), start=1):
        if level_of(value, edges) != number:
            yield Problem(INFO, 0, f"settings.motion.values: {value:g} is not in level {number}")


def _captions(folder: DatasetFolder, of_clip: OfClip) -> Iterator[Problem]:
    """Captions are there and whole."""
    empty = []
    for record in folder.turns:
        if record.missing == CAPTION_FIELDS:
            empty.append(record)
        elif record.missing:
            yield of_clip(record, f"incomplete caption: {', '.join(record.missing)} is null; fill it in")
    if empty:
        serious = len(empty) < len(folder.turns)  # a dataset without any caption is for the stage vae alone
        found = f"clips without a caption: {len(empty)} of {len(folder.turns)}, this is the first"
        yield of_clip(empty[0], f"{found}; only stage vae accepts them, so caption or drop them", serious)


def _games(folder: DatasetFolder) -> Iterator[Problem]:
    """Games have their clips in film order, and share none with held-out games."""
    rows = read_rows(folder.path / GAMES, dict[str, Any])
    lines = {row.value.get("game"): row.number for row in rows if row.value is not None}
    if not folder.games and folder.turns:
        yield Problem(GAMES, 0, "no game; stages predict and adapt need sequences of clips", False)
    held_out = set(folder.held_out_clips)
    for game in folder.games:
        at = partial(Problem, GAMES, lines[game.name])
        clips = [folder.turns[clip] for clip in game.clips]
        for before, record in zip(clips, clips[1:], strict=False):
            if record.film == before.film and record.start <= before.start:
                found = f"{record.clip} ({record.start:g} s) follows {before.clip} ({before.start:g} s)"
                yield at(f"{found}; keep film order")
        leaks = [folder.turns[clip].clip for clip in game.clips if clip in held_out and not game.held_out]
        if leaks:
            found = f"clips that are also in a held-out game: {len(leaks)}, the first is {leaks[0]}"
            yield at(f"{found}; training would see validation data")


def _stray_files(path: Path, unread: bool) -> Iterator[Problem]:
    """Notes on files in clips/ that no table lists. unread: whether a line could not be read, which may list them."""
    rows = [
        row.value
        for name in (TURNS, SET_ASIDE, DROPPED)
        for row in read_rows(path / name, dict[str, Any])
        if row.value is not None
    ]
    records = [row["record"] for row in rows if isinstance(row.get("record"), dict)]
    known = {str(row.get("clip")) for row in (*rows, *records)}
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


def _clips(folder: DatasetFolder, of_clip: OfClip, on_progress: OnProgress | None) -> Iterator[Problem]:
    """Every clip opens, and has the size, length and frame rate of the settings, or else of most clips."""
    there = [record for record in folder.turns if (folder.path / record.clip).is_file()]
    opened: list[tuple[ClipRecord, ClipInfo]] = []
    threads = ThreadPoolExecutor(2 * (os.cpu_count() or 1))
    try:
        infos = threads.map(partial(_info_of, folder.path), there)
        for done, (record, found) in enumerate(zip(there, infos, strict=True), start=1):
            if isinstance(found, str):
                yield of_clip(record, found)
            else:
                opened.append((record, found))
                if abs(found.pixel - 1) > NEARLY_SQUARE:
                    wide = f"{record.clip} is to be shown {found.pixel:.2f} times as wide as its pixels"
                    yield of_clip(record, f"{wide}, which training reads as they are; cut it to shape instead", False)
            if on_progress is not None:
                on_progress(done, len(there))
    finally:
        threads.shutdown(cancel_futures=True)  # an interrupt does not wait for the other clips
    for name in ("size", "frames", "fps") if opened else ():
        values = [getattr(found, name) for _, found in opened]
        expected = folder.clip_shape.get(name) or Counter(values).most_common(1)[0][0]
        for (record, _), value in zip(opened, values, strict=True):
            if value != expected:
                found = f"{record.clip} has {name} {_shown(value)}"
                yield of_clip(record, f"{found}; the dataset's is {_shown(expected)}")


def _info_of(folder: Path, record: ClipRecord) -> ClipInfo | str:
    try:
        return read_clip_info(folder / record.clip)
    except (ValueError, OSError) as error:
        return f"{record.clip} cannot be used: {error}; make or copy the file again"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{value[0]} x {value[1]}"
    return f"{value:g}" if isinstance(value, int | float) else brief(value, 60)
