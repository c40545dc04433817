"""The second pass over a film: cuts its scenes into two-second clips, measures them, and drops useless ones."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...media.video import clip_suffix, write_clip
from ...spec import DecoderSpec
from ..dataset import CLIPS
from ..flow import FlowSettings, open_flow
from ..motion import motion_value
from .film import frames_at, read_frames
from .film_file import FilmError
from .framing import Crop, fit
from .segments import Candidate, Segment, segments_of, signature, why_left_out
from .sound import sounds_at
from .survey import FilmScene, ReadableFrames, Survey
from .writing import MOST_TEXT, looked_at, reading_size

SPAN_SECONDS = 20.0  # seconds of film that a process cuts at a time; seeking to a span costs about a second


@dataclass(frozen=True)
class ClipShape:
    """The size, frames and frame rate of every clip of a dataset."""

    height: int
    width: int
    frames: int = 17
    fps: int = 8

    def __post_init__(self) -> None:
        if self.height < 16 or self.width < 16 or self.height % 2 or self.width % 2:
            raise ValueError(f"clips of {self.width} x {self.height} cannot be written; give even numbers from 16")

    @classmethod
    def of(cls, decoder: DecoderSpec) -> ClipShape:
        """The shape of clips that a world's decoder trains on."""
        return cls(decoder.height, decoder.width, decoder.frames, decoder.fps)


@dataclass(frozen=True)
class Cut:
    """One segment of a film: a clip, or why it was dropped.

    start, end: seconds in the film. clip: its path relative to the dataset folder. value: motion value in px per frame.
    signature: of its pictures, to find near-duplicates. dropped: the reason, None for a clip.
    """

    start: float
    end: float
    clip: str = ""
    value: float = 0.0
    signature: str = ""
    dropped: str | None = None


@dataclass(frozen=True)
class Span:
    """Consecutive scenes of one film that one process cuts.

    first: the number of the first scene. whole: whether the survey could read the film to its end. most_text: largest
    fraction of the picture that text may cover; from 1 on, the clips are not searched for text.
    """

    film: Path
    name: str
    first: int
    scenes: tuple[FilmScene, ...]
    whole: bool
    most_text: float = MOST_TEXT


def spans_of(
    film: Path, name: str, survey: Survey, done: Collection[int], most_text: float = MOST_TEXT
) -> Iterator[Span]:
    """Yield the unfinished scenes in spans of about 20 seconds. done: numbers of the finished scenes."""
    held: list[FilmScene] = []
    for number, item in enumerate((*survey.scenes, None)):
        full = held and held[-1].scene.end - held[0].scene.start >= SPAN_SECONDS
        if held and (full or item is None or number in done):
            yield Span(film, name, number - len(held), tuple(held), survey.broken is None, most_text)
            held = []
        if item is not None and number not in done:
            held.append(item)


def cut_span(span: Span, out: Path, shape: ClipShape, flow: FlowSettings) -> tuple[Span, list[list[Cut]] | str]:
    """Write the clips of a span; returns the span, and the segments of each scene or a message if reading failed."""
    plans = [segments_of(item.scene, shape.frames, shape.fps) for item in span.scenes]
    times = [time for plan in plans for segment in plan for time in segment.times]
    if not times:
        return span, [[] for _ in plans]
    frames = read_frames(span.film, times[0], span.scenes[-1].scene.end)
    pictures = frames_at(frames if span.whole else ReadableFrames(frames), times)
    measure = functools.partial(motion_value, backend=_flow(flow), **flow.left_out)
    sounds = sounds_at(span.film, [segment.start for plan in plans for segment in plan], shape.frames / shape.fps)
    cuts: list[list[Cut]] = []
    try:
        for item, plan in zip(span.scenes, plans, strict=True):
            cuts.append([])
            for segment in plan:
                shown = _shown(pictures, next(sounds), item.crop, shape, span.most_text < 1)
                cuts[-1].append(_cut_segment(shown, segment, span, shape, measure, out))
    except FilmError as error:
        return span, str(error)
    return span, cuts


def clips_of(film: str) -> str:
    """The path prefix of a film's clips."""
    return f"{CLIPS}/{film}/"


def is_cut(clip: str, film: str) -> bool:
    """Whether the clip's name is one that cutting gives; clips that a person added have other names."""
    return clip.startswith(clips_of(film)) and PurePosixPath(clip).stem.isdecimal()


class _Shown(NamedTuple):
    """A segment's frames at the clip's size, a few of them at the text detector's size, and its sound."""

    clip_FHWC: NDArray[np.uint8]
    pages: list[NDArray[np.uint8]]
    sound: NDArray[np.float32] | None


def _shown(
    pictures: Iterator[NDArray[np.uint8]], sound: NDArray[np.float32] | None, crop: Crop, shape: ClipShape, read: bool
) -> _Shown:
    """Take the next segment's frames from `pictures`. read: whether the segment will be searched for text."""
    size, clip, pages = (shape.height, shape.width), [], []
    chosen = looked_at(shape.frames) if read else ()
    for index, picture in enumerate(itertools.islice(pictures, shape.frames)):
        clip.append(fit(picture, crop, size))
        if index in chosen:
            pages.append(fit(picture, crop, reading_size(picture, crop, size)))
    return _Shown(np.stack(clip), pages, sound)


def _cut_segment(
    shown: _Shown,
    segment: Segment,
    span: Span,
    shape: ClipShape,
    measure: Callable[[NDArray[np.uint8]], float],
    out: Path,
) -> Cut:
    """Write a segment as a clip, or drop it. Its motion is measured without the frames of flashes."""
    start, end = round(segment.start, 3), round(segment.start + (shape.frames - 1) / shape.fps, 3)
    judged = np.delete(shown.clip_FHWC, segment.flashed, axis=0) if segment.flashed else shown.clip_FHWC
    value = measure(judged)
    reason = why_left_out(Candidate(judged, value, shown.pages, span.most_text))
    if reason is not None:
        return Cut(start, end, dropped=reason)
    clip = f"{clips_of(span.name)}{round(segment.start * 1000):08d}{clip_suffix()}"
    write_clip(out / clip, shown.clip_FHWC, shape.fps, sound=shown.sound)
    return Cut(start, end, clip, round(value, 4), signature(judged))


_flow = functools.lru_cache(maxsize=1)(open_flow)  # the flow backend of this process
