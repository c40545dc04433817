"""Makes a film of a story to share: its clips in order, with subtitles and sound.

Shots are read one by one, so a film of thousands of turns needs no more memory than one shot.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

from ..files import is_part
from ..media.film_writer import Caption, write_film
from ..media.text import instruction_parts
from ..media.video import read_clip, read_clip_info
from .story import Story

if typing.TYPE_CHECKING:
    import numpy as np

    from ..media.video import Frames

FILMS = "films"  # folder of films within a story's own
OnFrame = Callable[[int, int], object]  # (pictures so far, of)


@dataclass(frozen=True)
class Film:
    """A written film: its files, the film first, and what a viewer should know about it."""

    files: tuple[Path, ...]
    size: tuple[int, int]
    fps: float
    seconds: float
    notes: tuple[str, ...]


def export_film(
    story: Story,
    path: Path,
    turns: int = -1,
    subtitles: bool = False,
    sound: np.ndarray | None = None,
    opening: bool = False,
    on_frame: OnFrame | None = None,
) -> Film:
    """Write the story's branch as an mp4.

    turns: how many of its turns, -1: all; turns that were not drawn are skipped. subtitles: number and instruction of
    each turn, as a track in the mp4 and as .srt next to it. sound: float32 (2, samples) at 48,000 a second. opening:
    start with the clip of turn 0, if the story has it. on_frame may raise to stop; an older film of this name is then
    kept. ValueError: no drawn turn, clips of different sizes, a name of unfinished files.
    """
    if is_part(path.name):
        raise ValueError(f"{path.name} would be taken for an unfinished file and removed; choose another name")
    session = story.session(len(story.entries) if turns < 0 else turns, 0)
    played = [turn for turn in session.turns if turn.number > 0]
    shots = ((turn, story.entries[turn.number - 1].shot) for turn in played)
    scenes = [(turn, story.shots.path(shot)) for turn, shot in shots if shot is not None]
    if not scenes:
        raise ValueError(f"story {story.name!r} has no drawn turns; play one first")
    skipped = len(played) - len(scenes)
    notes = (f"skipped {skipped} turns without a shot",) if skipped else ()
    if opening and (clip := story.opening_clip(session)) is not None:
        scenes.insert(0, (session.turns[0], clip))
    infos = [read_clip_info(clip) for _, clip in scenes]
    size, fps = infos[0].size, infos[0].fps
    for (_, clip), info in zip(scenes, infos, strict=True):
        if (info.size, info.fps) != (size, fps):
            raise ValueError(
                f"{clip}: {info.size} pixels at {info.fps:g} frames per second, but the film starts with {size} at "
                f"{fps:g}; all shots of a film need the same"
            )
    starts = [0, *accumulate(info.frames for info in infos)]
    captions = [
        Caption(start / fps, end / fps, f"{turn.number}. " + " \u00b7 ".join(instruction_parts(turn.instruction)))
        for (turn, _), (start, end) in zip(scenes, pairwise(starts), strict=True)
    ]
    frames = _frames([clip for _, clip in scenes], starts[-1], on_frame)
    tags = {**story.file_tags, "title": story.name}
    files = write_film(path, frames, fps, starts[-1], tags, captions if subtitles else (), sound)
    return Film(tuple(files), size, fps, starts[-1] / fps, notes)


def _frames(clips: list[Path], total: int, on_frame: OnFrame | None) -> Iterator[Frames]:
    """Yield the film's frames, one shot at a time in memory."""
    done = 0
    for clip in clips:
        for frame in read_clip(clip).frames:
            yield frame
            done += 1
            if on_frame is not None:
                on_frame(done, total)
