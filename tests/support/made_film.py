"""Generates a film with known content: Toybox scenes joined by cuts and fades, with borders, credits and flashes.

Next to it are the spans that the captioner `script` reads, `<film>.captions.jsonl`.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from film_parts import FilmPlan, Part, parts_of
from film_pictures import crop_of, film_frames, starts_of
from numpy.typing import NDArray

from animegamer_core.files import write_text
from animegamer_core.toybox.world import ADVERBS, MOTIONS, adverb, characters, motion_text

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

    kind, repeats: the part's. crop: (top, bottom, left, right) in pixels, None for credits. flashes: (start in seconds,
    number of frames) of each.
    """

    start: float
    end: float
    clear_start: float
    clear_end: float
    kind: str
    crop: tuple[int, int, int, int] | None
    repeats: int | None
    flashes: tuple[tuple[float, int], ...]


@dataclass(frozen=True)
class FilmTruth:
    """What a generated film contains. size: (height, width). frames: how many frames the file has."""

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
    """Draw the film and write it (H.264) with its captions. The same plan gives the same film."""
    parts = parts_of(plan)
    count = write_film(path, film_frames(parts, plan), plan.size, plan.fps)
    truth = _truth(parts, count, plan)
    spans = [_caption(row, part) for row, part in zip(truth.scenes, parts, strict=True) if part.scene is not None]
    write_text(path.with_suffix(".captions.jsonl"), "".join(json.dumps(span) + "\n" for span in spans))
    return truth


def _truth(parts: tuple[Part, ...], count: int, plan: FilmPlan) -> FilmTruth:
    def at(frame: float) -> float:
        return round(frame / plan.fps, 6)

    starts, cuts, scenes = starts_of(parts), [], []
    for index, (part, start) in enumerate(zip(parts, starts, strict=False)):
        tail = parts[index + 1].overlap if index + 1 < len(parts) else 0
        row = SceneTruth(
            start=at(start),
            end=at(start + part.frames),
            clear_start=at(start + part.overlap),
            clear_end=at(start + part.frames - tail),
            kind=part.kind,
            crop=None if part.scene is None else crop_of(part.border, plan.size),
            repeats=part.repeats,
            flashes=tuple((at(start + flash.first), flash.frames) for flash in part.flashes),
        )
        scenes.append(row)
        if index:
            cuts.append(_cut(part, start, at))
    return FilmTruth(plan.fps, at(starts[-1]), plan.size, count, tuple(cuts), tuple(scenes))


def _cut(part: Part, start: int, at: Callable[[float], float]) -> Cut:
    if part.begins == "cross":
        return Cut(at(start + part.overlap / 2), "cross", at(start), at(start + part.overlap))
    return Cut(at(start), part.begins, at(start - part.overlap), at(start + part.overlap))  # a cut has no overlap


def _caption(row: SceneTruth, part: Part) -> dict[str, Any]:
    """A scene's caption for the captioner `script`."""
    scene = part.scene
    return {
        "start": row.start,
        "end": row.end,
        "character": list(characters(scene)),
        "motion": motion_text(scene),
        "background": f"{scene.time} {scene.place}",
        "adverbs": {str(level): adverb(scene, level) for level in ADVERBS},
        "stats": MOTIONS[scene.motion].change,
    }


def write_film(path: Path, pictures: Iterable[tuple[int, NDArray[np.uint8]]], size: tuple[int, int], fps: float) -> int:
    """Encode numbered pictures (height, width, 3) of this size as they are drawn; returns how many there were."""
    import av

    rate, count = Fraction(fps).limit_denominator(1001), 0
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=rate, options=_X264)
        stream.height, stream.width = size
        stream.pix_fmt, stream.codec_context.time_base = "yuv420p", 1 / rate
        for number, picture in pictures:
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = number, 1 / rate
            container.mux(stream.encode(frame))
            count += 1
        container.mux(stream.encode())
    return count
