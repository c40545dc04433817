"""The second reading of a film: its scenes as clips of two seconds, measured, and the reasons for those left out."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from ...video import clip_suffix, write_clip
from ..dataset import CLIPS
from ..flow import Flow, FlowSettings, open_flow
from ..motion import motion_value
from .film import frames_at, read_frames
from .filmfile import FilmError
from .framing import fit
from .segments import Segment, segments_of, signature, why_left_out
from .survey import FilmScene, Readable, Survey

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...spec import DecoderSpec

SPAN_SECONDS = 20.0  # of a film that a process takes at a time: the way to the first frame of a span costs a second


@dataclass(frozen=True)
class ClipShape:
    """What every clip of a dataset is: pixels, frames, frames a second."""

    height: int
    width: int
    frames: int = 17
    fps: int = 8

    def __post_init__(self) -> None:
        if self.height < 16 or self.width < 16 or self.height % 2 or self.width % 2:
            raise ValueError(f"clips of {self.width} x {self.height} cannot be written; give even numbers from 16 on")

    @classmethod
    def of(cls, decoder: DecoderSpec) -> ClipShape:
        """The clips that a world's decoder is trained on."""
        return cls(decoder.height, decoder.width, decoder.frames, decoder.fps)


@dataclass(frozen=True)
class Cut:
    """One segment of a film: a clip, or why it is none.

    start, end: seconds in the film. clip: its path in the folder. value: motion value. signature: for near-duplicates.
    """

    start: float
    end: float
    clip: str = ""
    value: float = 0.0
    signature: str = ""
    dropped: str | None = None


@dataclass(frozen=True)
class Span:
    """Scenes of one film, side by side, that one process cuts. first: the number of the first of them. whole: whether
    the film could be read to its end before."""

    film: Path
    name: str
    first: int
    scenes: tuple[FilmScene, ...]
    whole: bool


def spans_of(film: Path, name: str, survey: Survey, done: Collection[int]) -> Iterator[Span]:
    """The scenes that are not done yet, in spans of about 20 seconds."""
    held: list[FilmScene] = []
    for number, item in enumerate((*survey.scenes, None)):
        full = held and held[-1].scene.end - held[0].scene.start >= SPAN_SECONDS
        if held and (full or item is None or number in done):
            yield Span(film, name, number - len(held), tuple(held), survey.broken is None)
            held = []
        if item is not None and number not in done:
            held.append(item)


def cut_span(span: Span, out: Path, shape: ClipShape, flow: FlowSettings) -> tuple[Span, list[list[Cut]] | str]:
    """Write the clips of a span; returns it and the segments of each of its scenes, or why it cannot be read now."""
    plans = [segments_of(item.scene, shape.frames, shape.fps) for item in span.scenes]
    times = [time for plan in plans for segment in plan for time in segment.times]
    if not times:
        return span, [[] for _ in plans]
    frames = read_frames(span.film, times[0], span.scenes[-1].scene.end, threads=1)
    pictures = frames_at(frames if span.whole else Readable(frames), times)
    measure = functools.partial(motion_value, backend=_flow(flow), threshold=flow.threshold)
    cuts: list[list[Cut]] = []
    try:
        for item, plan in zip(span.scenes, plans, strict=True):
            cuts.append([])
            for segment in plan:
                clip = np.stack([fit(next(pictures), item.crop, (shape.height, shape.width)) for _ in segment.times])
                described = _described(segment, span.name, shape)
                cuts[-1].append(_keep(clip, segment, described, measure, out, shape.fps))
    except FilmError as error:
        return span, str(error)
    return span, cuts


def _described(segment: Segment, name: str, shape: ClipShape) -> Cut:
    end = segment.start + (shape.frames - 1) / shape.fps
    clip = f"{clips_of(name)}{round(segment.start * 1000):08d}{clip_suffix()}"
    return Cut(round(segment.start, 3), round(end, 3), clip)


def clips_of(film: str) -> str:
    """What the paths of a film's clips begin with."""
    return f"{CLIPS}/{film}/"


def is_cut(clip: str, film: str) -> bool:
    """Whether a film's clip has such a name as cutting gives; people call theirs otherwise."""
    return clip.startswith(clips_of(film)) and PurePosixPath(clip).stem.isdecimal()


def _keep(
    clip_FHWC: NDArray[np.uint8],
    segment: Segment,
    cut: Cut,
    measure: Callable[[NDArray[np.uint8]], float],
    out: Path,
    fps: int,
) -> Cut:
    """The segment as a clip on disk, or dropped. Frames that a flash hit are not measured."""
    judged = np.delete(clip_FHWC, segment.flashed, axis=0) if segment.flashed else clip_FHWC
    value = measure(judged)
    reason = why_left_out(judged, value)
    if reason is not None:
        return dataclasses.replace(cut, clip="", dropped=reason)
    write_clip(out / cut.clip, clip_FHWC, fps)
    return dataclasses.replace(cut, value=round(value, 4), signature=signature(judged))


@functools.lru_cache(maxsize=1)
def _flow(settings: FlowSettings) -> Flow:
    """The backend of this process, opened once and closed as the process ends."""
    held = contextlib.ExitStack()
    atexit.register(held.close)
    return held.enter_context(open_flow(settings))


def to_line(number: int, cuts: Sequence[Cut]) -> dict[str, Any]:
    """A scene's segments as json keeps them."""
    return {"scene": number, "segments": [dataclasses.asdict(cut) for cut in cuts]}


def from_line(values: Mapping[str, Any]) -> tuple[int, list[Cut]]:
    """(number of the scene, its segments). ValueError, KeyError or TypeError for what is no such line."""
    return int(values["scene"]), [Cut(**row) for row in values["segments"]]
