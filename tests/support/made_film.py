"""Generates a film with known content: Toybox scenes joined by cuts and fades, with borders, credits and flashes.

What the film pipeline should find is written next to the film: `<film>.truth.json` for tests, and
`<film>.captions.jsonl`, the spans that the captioner `script` reads. H height, W width, C channels.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from film_parts import FilmPlan, Part, parts_of
from film_pictures import MARGIN, crop_of, film_frames, picture_size, starts_of

from animegamer_core.files import replacing, write_text
from animegamer_core.toybox.world import ADVERBS, HEIGHT, MOTIONS, WIDTH, adverb, characters, motion_text

if typing.TYPE_CHECKING:
    from numpy.typing import NDArray

# Lossy, with B-frames, like published films. One thread and no macroblock tree, so that the same plan gives the same
# file (see media/video.py).
_X264 = {"crf": "20", "preset": "veryfast", "threads": "1", "x264-params": "mbtree=0"}


@dataclass(frozen=True)
class Cut:
    """How one scene becomes the next. kind is "cut", "black", "white" or "cross"; a fade lasts from start to end.

    seconds: the time of the next scene's first frame; for a fade through a colour, of its darkest (whitest) frame; for
    a cross-fade, its middle.
    """

    seconds: float
    kind: str
    start: float
    end: float


@dataclass(frozen=True)
class SceneTruth:
    """One part of the film, from start to end (seconds); from clear_start to clear_end there is no fade.

    kind is "scene", "still", "dark" or "credits". crop is (top, bottom, left, right) in pixels, None for credits.
    amplitude: pixels per frame at 8 frames per second, in a clip of 480 px height with the drawings' aspect (3 : 2).
    repeats: the number of the part whose pictures are shown again. flashes: (start in seconds, number of frames) of
    each.
    """

    start: float
    end: float
    clear_start: float
    clear_end: float
    kind: str
    crop: tuple[int, int, int, int] | None
    amplitude: float
    scene: dict[str, typing.Any] | None
    repeats: int | None
    flashes: tuple[tuple[float, int], ...]


@dataclass(frozen=True)
class FilmTruth:
    """What a generated film contains. size: (height, width). frames: how many frames the file has."""

    path: str
    fps: float
    seconds: float
    size: tuple[int, int]
    frames: int
    cuts: tuple[Cut, ...]
    scenes: tuple[SceneTruth, ...]

    def scene_at(self, seconds: float) -> SceneTruth:
        """The part that is shown at a time; during a cross-fade, the later one."""
        return next((row for row in reversed(self.scenes) if row.start <= seconds + 1e-6), self.scenes[0])


def make_film(path: Path, plan: FilmPlan) -> FilmTruth:
    """Draw the film and write it (H.264) with its truth and its captions.

    The same plan gives the same film. ValueError if the path is a folder.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give a file, such as {path / 'film.mp4'}")
    parts = parts_of(plan)
    starts = starts_of(parts)
    with replacing(path) as unfinished:
        count = _write(unfinished, film_frames(parts, plan), plan)
    truth = _truth(path, parts, starts, count, plan)
    write_text(path.with_suffix(".truth.json"), json.dumps(dataclasses.asdict(truth), indent=1) + "\n")
    spans = [_caption(row, part) for row, part in zip(truth.scenes, parts, strict=True) if part.scene is not None]
    write_text(path.with_suffix(".captions.jsonl"), "".join(json.dumps(span) + "\n" for span in spans))
    return truth


def _truth(path: Path, parts: Sequence[Part], starts: Sequence[int], count: int, plan: FilmPlan) -> FilmTruth:
    def at(frame: float) -> float:
        return round(frame / plan.fps, 6)

    cuts, scenes = [], []
    for index, (part, start) in enumerate(zip(parts, starts, strict=False)):
        follower = parts[index + 1] if index + 1 < len(parts) else Part("credits", 0)
        scene = None if part.scene is None else dataclasses.asdict(part.scene)
        ends = start + part.frames
        row = SceneTruth(
            start=at(start),
            end=at(ends),
            clear_start=at(start + part.overlap),
            clear_end=at(ends - follower.overlap),
            kind=part.kind,
            crop=None if part.scene is None else crop_of(part.border, plan.size),
            amplitude=_amplitude(part, plan.size),
            scene=scene,
            repeats=part.repeats,
            flashes=tuple((at(start + flash.first), flash.frames) for flash in part.flashes),
        )
        scenes.append(row)
        if index:
            cuts.append(_cut(part, start, at))
    return FilmTruth(path.name, plan.fps, at(starts[-1]), plan.size, count, tuple(cuts), tuple(scenes))


def _cut(part: Part, start: int, at: typing.Callable[[float], float]) -> Cut:
    if part.begins == "cut":
        return Cut(at(start), "cut", at(start), at(start))
    if part.begins == "cross":
        return Cut(at(start + part.overlap / 2), "cross", at(start), at(start + part.overlap))
    return Cut(at(start), part.begins, at(start - part.overlap), at(start + part.overlap))


def _amplitude(part: Part, size: tuple[int, int]) -> float:
    """The motion as a 3 : 2 clip shows it; cropping the clip from a wider or narrower picture enlarges the motion."""
    if part.scene is None:
        return 0.0
    height, width = picture_size(part.border, size)
    nearer = max(width / height * HEIGHT / WIDTH, height / width * WIDTH / HEIGHT)
    return round(part.scene.amplitude * part.rate * nearer * (1 + MARGIN), 4)


def _caption(row: SceneTruth, part: Part) -> dict[str, typing.Any]:
    """A scene's caption for the captioner `script`."""
    scene = part.scene
    assert scene is not None
    motion = MOTIONS[scene.motion]
    return {
        "start": row.start,
        "end": row.end,
        "character": list(characters(scene)),
        "motion": motion_text(scene),
        "background": f"{scene.time} {scene.place}",
        "adverbs": {str(level): adverb(scene, level) for level in ADVERBS},
        "stats": motion.change,
    }


def _write(path: Path, frames: Iterator[tuple[int, NDArray[np.uint8]]], plan: FilmPlan) -> int:
    """Encode the frames as they are drawn; returns their number."""
    import av

    rate = Fraction(plan.fps).limit_denominator(1001)
    count = 0
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=rate, options=_X264)
        stream.height, stream.width = plan.size
        stream.pix_fmt, stream.codec_context.time_base = "yuv420p", 1 / rate
        for number, picture in frames:
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = number, 1 / rate
            container.mux(stream.encode(frame))
            count += 1
        container.mux(stream.encode())
    return count
