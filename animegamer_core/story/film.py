"""Makes a film of a story to share: its clips in order, with subtitles and sound.

Shots are read one by one, so a film of thousands of turns needs no more memory than one shot.
"""

from __future__ import annotations

import importlib.util
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..files import is_part
from ..game.state import Turn
from ..media.film_writer import Caption, write_film
from ..media.text import parts_of
from ..media.video import ClipInfo, read_clip_info
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


@dataclass(frozen=True)
class _Scene:
    """A drawn turn with its clip."""

    turn: Turn
    path: Path
    facts: ClipInfo


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
    if importlib.util.find_spec("av") is None:
        raise ValueError("a film needs PyAV; run `pip install av`")
    if is_part(path.name):
        raise ValueError(f"{path.name} would be taken for an unfinished file and removed; choose another name")
    session = story.session(len(story.entries) if turns < 0 else turns, 0)
    played = [turn for turn in session.turns if turn.number > 0]
    scenes = list(_scenes(story, played))
    notes = [f"skipped {len(played) - len(scenes)} turns without a shot"] if len(scenes) < len(played) else []
    if not scenes:
        raise ValueError(f"story {story.name!r} has no drawn turns; play one first")
    if opening and (clip := story.opening_clip(session)) is not None:
        scenes.insert(0, _Scene(session.turns[0], clip, _facts_of(clip)))
    first = scenes[0].facts
    for scene in scenes:
        if (scene.facts.size, scene.facts.fps) != (first.size, first.fps):
            raise ValueError(
                f"{scene.path}: {scene.facts.size} pixels at {scene.facts.fps:g} frames per second, but turn "
                f"{scenes[0].turn.number} has {first.size} at {first.fps:g}; all shots of a film need the same"
            )
    total = sum(scene.facts.frames for scene in scenes)
    captions = list(_captions(scenes, first.fps)) if subtitles else []
    files = write_film(path, _frames(scenes, total, on_frame), first.fps, total, story.name, captions, sound)
    return Film(tuple(files), first.size, first.fps, total / first.fps, tuple(notes))


def _scenes(story: Story, turns: list[Turn]) -> Iterator[_Scene]:
    """Drawn turns with their clips; ValueError if a clip is missing."""
    for turn in turns:
        shot = story.entries[turn.number - 1].shot
        if shot is None:
            continue
        if story.shots.record(shot) is None:
            raise ValueError(
                f"{story.folder}: the shot of turn {turn.number} is missing; play the game again to draw it"
            )
        path = story.shots.path(shot)
        yield _Scene(turn, path, _facts_of(path))


def _facts_of(path: Path) -> ClipInfo:
    try:
        return read_clip_info(path)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _captions(scenes: list[_Scene], fps: float) -> Iterator[Caption]:
    start = 0
    for scene in scenes:
        end = start + scene.facts.frames
        words = " \u00b7 ".join(parts_of(scene.turn.instruction))
        yield Caption(start / fps, end / fps, f"{scene.turn.number}. {words}")
        start = end


def _frames(scenes: list[_Scene], total: int, on_frame: OnFrame | None) -> Iterator[Frames]:
    """Yield the film's frames, one shot at a time in memory."""
    from ..media.video import read_clip

    done = 0
    for scene in scenes:
        for frame in read_clip(scene.path).frames:
            yield frame
            done += 1
            if on_frame is not None:
                on_frame(done, total)
