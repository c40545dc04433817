"""`dataset check`: what training would refuse or learn wrongly from, with file and line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from ..json_files import read_rows
from ..media.video import ClipInfo, read_clip_info
from .dataset import CLIPS, GAMES, INFO, TURNS, DatasetFolder, GameLine, read_dataset
from .motion import level_of
from .records import CAPTION_FIELDS, ClipRecord, Problem

CLOSE = 1e-6  # seconds
OnProgress = Callable[[int, int], None]  # (clips done, clips in all)
OfClip = Callable[..., Problem]  # (record, text, serious): a problem in the clip's line of turns.jsonl


def check(folder: str | Path, on_progress: OnProgress | None = None) -> list[Problem]:
    """All problems of a dataset folder, in the order of its files. Of clips it reads headers, and decodes no frame.

    on_progress counts the clips that were opened. OSError: an unreadable file.
    """
    read, problems = read_dataset(folder)
    if not (read.path / TURNS).is_file():
        return problems
    lines = {row.value.clip: row.number for row in read_rows(read.path / TURNS, ClipRecord) if row.value is not None}

    def of_clip(record: ClipRecord, text: str, serious: bool = True) -> Problem:
        return Problem(TURNS, lines[record.clip], text, serious)

    for rule in (_times, _levels, _captions):
        problems.extend(rule(read, of_clip))
    problems.extend(_games(read))
    problems.extend(_clips(read, of_clip, on_progress))
    files = (TURNS, GAMES, INFO, CLIPS)
    return sorted(problems, key=lambda problem: (files.index(problem.file), problem.line))


def _times(folder: DatasetFolder, of_clip: OfClip) -> Iterator[Problem]:
    """Clips of a film are in order, do not overlap and have the length of the settings."""
    frames, fps = folder.clip_shape.get("frames", 1), folder.clip_shape.get("fps", 1)
    last: dict[str, ClipRecord] = {}
    for record in folder.turns:
        before = last.get(record.film)
        if before is not None and record.start < before.start:
            yield of_clip(record, f"start {record.start:g} is before the clip above ({before.start:g}); sort by time")
        elif before is not None and record.start < before.end - CLOSE:
            yield of_clip(record, f"start {record.start:g} is inside {before.clip}, which ends at {before.end:g}")
        if frames > 1 and abs(record.end - record.start - (frames - 1) / fps) > 1e-3:
            wanted = f"{frames} frames at {fps:g} fps take {(frames - 1) / fps:g} s"
            yield of_clip(record, f"the clip lasts {record.end - record.start:g} s; {wanted}")
        last[record.film] = record


def _levels(folder: DatasetFolder, of_clip: OfClip) -> Iterator[Problem]:
    """Motion levels match motion values and edges."""
    if unmeasured := [record for record in folder.turns if record.motion_value is None]:
        found = f"clips without a motion_value: {len(unmeasured)} of {len(folder.turns)}, this is the first"
        yield of_clip(unmeasured[0], f"{found}; measure them")
    edges = folder.motion.edges
    if edges is None:
        if folder.turns:
            yield Problem(INFO, 0, "has no settings.motion.edges; finish the dataset first")
        return
    for record in folder.turns:
        level = None if record.motion_value is None else level_of(record.motion_value, edges)
        if record.motion_level != level:
            found = f"motion_level is {record.motion_level}, but motion_value {record.motion_value} is in level {level}"
            yield of_clip(record, f"{found}; levels come from measurement, so set it to {level}")


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
    lines = {row.value.game: row.number for row in read_rows(folder.path / GAMES, GameLine) if row.value is not None}
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


def _clips(folder: DatasetFolder, of_clip: OfClip, on_progress: OnProgress | None) -> Iterator[Problem]:
    """Every clip opens, and has the size, length and frame rate of the settings, or else of most clips."""
    there = [record for record in folder.turns if (folder.path / record.clip).is_file()]
    opened: list[tuple[ClipRecord, ClipInfo]] = []
    for done, record in enumerate(there, start=1):
        try:
            opened.append((record, read_clip_info(folder.path / record.clip)))
        except (ValueError, OSError) as error:
            yield of_clip(record, f"{record.clip} cannot be used: {error}; make or copy the file again")
        if on_progress is not None:
            on_progress(done, len(there))
    for name in ("size", "frames", "fps") if opened else ():
        values = [getattr(found, name) for _, found in opened]
        expected = folder.clip_shape.get(name) or Counter(values).most_common(1)[0][0]
        for (record, _), value in zip(opened, values, strict=True):
            if value != expected:
                yield of_clip(record, f"{record.clip} has {name} {value}; the dataset's is {expected}")
