"""Makes a film of a story to share: its turns in order, with captions, stats, a title card and sound, at any size.

Shots are read one by one, so an mp4 or GIF of thousands of turns needs no more memory than one shot.
"""

from __future__ import annotations

import importlib.util
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..data.clip_info import ClipInfo, read_clip_info
from ..data.interpolation import at_rate, frame_count
from ..files import is_part
from ..media.film_writer import MOST_FPS, Caption, FilmFacts, write_film
from ..state import GameSession, Turn, clean_text
from .story import Story

if typing.TYPE_CHECKING:
    from ..media.overlay import Overlay
    from ..media.soundtrack import Soundtrack
    from ..media.video import Frames

SUBTITLES = ("none", "burned", "soft")
SCALINGS = ("lanczos", "nearest")
LARGEST_SCALE = 8
TITLE_SECONDS = 2.5
_PALETTE_SHOTS = 24  # shots from which a GIF takes its colours, a frame each
FILMS = "films"  # folder of films within a story's own


@dataclass(frozen=True)
class FilmOptions:
    """How a film looks.

    subtitles: what the player typed: none, burned (drawn into the frames) or soft (a track in the mp4, and the same as
    .srt next to it). stats: motion and stats in a corner. title: of a card in front; empty for none. scale: whole
    number by which frames are enlarged, 0: as much as text needs to be legible. scaling: lanczos or nearest. fps:
    frames per second, 0: as drawn; others are interpolated, which needs OpenCV. sound: of the film. opening: start
    with the clip of turn 0, if the story has it.
    """

    subtitles: str = "none"
    stats: bool = False
    title: str = ""
    scale: int = 0
    scaling: str = "lanczos"
    fps: float = 0
    sound: Soundtrack | None = None
    opening: bool = False

    def __post_init__(self) -> None:
        for name, value, known in (("subtitles", self.subtitles, SUBTITLES), ("scaling", self.scaling, SCALINGS)):
            if value not in known:
                raise ValueError(f"unknown {name} {value!r}; choose {', '.join(known)}")
        if not 0 <= self.scale <= LARGEST_SCALE:
            raise ValueError(f"scale is {self.scale}; expected 1 to {LARGEST_SCALE}, or 0 to make text legible")
        most = max(MOST_FPS.values())
        if not 0 <= self.fps <= most:
            raise ValueError(f"fps is {self.fps:g}; expected 1 to {most}, or 0 for the original rate")

    @property
    def draws_text(self) -> bool:
        """Whether there is text in the frames."""
        return self.subtitles == "burned" or self.stats or bool(self.title)


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
    """A drawn turn with its clip; its instruction is what the player typed."""

    turn: Turn
    path: Path
    facts: ClipInfo


OnFrame = Callable[[int, int], object]  # (pictures so far, of)


def export_film(
    story: Story, path: Path, options: FilmOptions, turns: int = -1, on_frame: OnFrame | None = None
) -> Film:
    """Write the story's branch as a film; .mp4, .gif or .webp by the path's suffix.

    turns: how many of its turns, -1: all; turns that were not drawn are skipped. on_frame may raise to stop; an older
    film of this name is then kept. ValueError: no drawn turn, clips of different sizes, options that do not fit, a name
    of unfinished files.
    """
    if is_part(path.name):
        raise ValueError(f"{path.name} would be taken for an unfinished file and removed; choose another name")
    session = story.session(len(story.entries) if turns < 0 else turns, 0)
    reel = _Reel(story, session, options)
    facts = reel.facts()
    palette = reel.palette() if path.suffix == ".gif" else ()
    files = write_film(path, _watched(reel.frames(), reel.total, on_frame), facts, palette)
    return Film(tuple(files), reel.size, facts.fps, facts.seconds, tuple(reel.notes(facts)))


class _Reel:
    """The frames of a film and their times."""

    def __init__(self, story: Story, session: GameSession, options: FilmOptions) -> None:
        from ..media.overlay import LEGIBLE_HEIGHT

        self.story, self.options = story, replace(options, title=clean_text(options.title))
        options = self.options
        turns = [story.as_typed(turn, drawn=options.subtitles == "burned") for turn in session.turns]
        self.scenes, self.undrawn = _scenes(story, turns)
        self.drawn = len(self.scenes)
        if options.opening and (clip := story.opening_clip(session)) is not None:
            self.scenes.insert(0, _Scene(session.turns[0], clip, _facts_of(clip)))
        first = self.scenes[0].facts
        other = next((scene for scene in self.scenes if scene.facts.size != first.size), None)
        if other is not None:
            raise ValueError(
                f"{other.path}: {other.facts.size} pixels, but turn {self.scenes[0].turn.number} has {first.size}; "
                "all shots of a film need one size"
            )
        text_scale = -(-LEGIBLE_HEIGHT // first.size[1]) if options.draws_text else 1
        self.scale = options.scale or min(text_scale, LARGEST_SCALE)
        self.size = (first.size[0] * self.scale, first.size[1] * self.scale)
        self.fps = options.fps or first.fps
        _check_packages(self.scenes, self.fps)
        self.title_frames = round(TITLE_SECONDS * self.fps) if options.title else 0
        self.counts = [frame_count(scene.facts.frames, scene.facts.fps, self.fps) for scene in self.scenes]
        self.total = self.title_frames + sum(self.counts)

    def facts(self) -> FilmFacts:
        """The film's rate, length, title, captions and sound."""
        captions = tuple(self._captions()) if self.options.subtitles == "soft" else ()
        title = self.options.title or self.story.name
        return FilmFacts(self.fps, self.total / self.fps, title, captions, self.options.sound)

    def frames(self) -> Iterator[Frames]:
        """Yield the film's frames, one shot at a time in memory."""
        for index, scene in enumerate(self.scenes):
            frames = self._enlarged(scene)
            if index == 0 and self.title_frames:
                card = self._title_card(frames[0])
                yield from (card for _ in range(self.title_frames))
            overlay = self._overlay(scene.turn)
            for frame in at_rate(frames, scene.facts.fps, self.fps):
                yield frame if overlay is None else overlay.over(frame)

    def palette(self) -> list[Frames]:
        """Representative frames: the middle ones of evenly spaced shots, with their text."""
        step = -(-len(self.scenes) // _PALETTE_SHOTS)
        chosen = []
        for scene in self.scenes[::step]:
            frame, overlay = self._enlarged(scene)[scene.facts.frames // 2], self._overlay(scene.turn)
            chosen.append(frame if overlay is None else overlay.over(frame))
        return chosen

    def notes(self, facts: FilmFacts) -> Iterator[str]:
        """What a viewer should know."""
        from ..media.overlay import caption_of, undrawable
        from ..media.text import NOTICE

        if self.undrawn:
            yield f"skipped {self.undrawn} turns without a shot"
        burned = self.options.subtitles == "burned"
        texts = [self.options.title, *(caption_of(scene.turn) for scene in self.scenes if burned)]
        if undrawable(texts):
            yield NOTICE
        if facts.sound is not None:
            yield facts.sound.says(facts.seconds)

    def _captions(self) -> Iterator[Caption]:
        from ..media.overlay import caption_of

        start = self.title_frames
        for scene, count in zip(self.scenes, self.counts, strict=True):
            yield Caption(start / self.fps, (start + count) / self.fps, caption_of(scene.turn))
            start += count

    def _enlarged(self, scene: _Scene) -> list[Frames]:
        """The frames of a shot at the film's size."""
        import numpy as np
        from PIL import Image

        from ..media.video import read_clip

        frames = read_clip(scene.path).frames
        if self.scale == 1:
            return list(frames)
        how = Image.Resampling.NEAREST if self.options.scaling == "nearest" else Image.Resampling.LANCZOS
        return [np.asarray(Image.fromarray(frame).resize(self.size, how)) for frame in frames]

    def _overlay(self, turn: Turn) -> Overlay | None:
        from ..media.overlay import turn_overlay

        burned = self.options.subtitles == "burned"
        return turn_overlay(turn, self.size, burned, self.options.stats) if burned or self.options.stats else None

    def _title_card(self, frame: Frames) -> Frames:
        from ..media.overlay import title_frame

        count = self.drawn
        return title_frame(frame, self.options.title, f"{self.story.world_name} \u00b7 {count} turn{'s' * (count > 1)}")


def _scenes(story: Story, turns: Sequence[Turn]) -> tuple[list[_Scene], int]:
    """Drawn turns with their clips, and the number of undrawn ones. ValueError: none is drawn, or a clip is missing."""
    scenes, undrawn = [], 0
    for turn in (turn for turn in turns if turn.number > 0):
        shot = story.entries[turn.number - 1].shot
        if shot is None:
            undrawn += 1
            continue
        if story.shots.record(shot) is None:
            raise ValueError(
                f"{story.folder}: the shot of turn {turn.number} is missing; play the game again to draw it"
            )
        scenes.append(_Scene(turn, story.shots.path(shot), _facts_of(story.shots.path(shot))))
    if not scenes:
        raise ValueError(f"story {story.name!r} has no drawn turns; play one first")
    return scenes, undrawn


def _facts_of(path: Path) -> ClipInfo:
    try:
        return read_clip_info(path)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _check_packages(scenes: Sequence[_Scene], fps: float) -> None:
    """ValueError if a package is missing that the film needs."""
    if importlib.util.find_spec("av") is None:
        raise ValueError("a film needs PyAV; run `pip install av`")
    if any(scene.facts.fps != fps for scene in scenes) and importlib.util.find_spec("cv2") is None:
        raise ValueError(
            f"{fps:g} frames per second need interpolation with OpenCV; run `pip install opencv-python-headless`, or "
            "keep the original rate"
        )


def _watched(frames: Iterator[Frames], total: int, on_frame: OnFrame | None) -> Iterator[Frames]:
    for number, frame in enumerate(frames, start=1):
        yield frame
        if on_frame is not None:
            on_frame(number, total)
