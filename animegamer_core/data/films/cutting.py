"""The second pass over a film: cuts its scenes into two-second clips, measures them, and drops useless ones.

Dropped are still and black segments; `assemble` drops credits and duplicates. F frames, H height, W width, C channels,
S samples of a signature, P pixels of a sample.
"""

from __future__ import annotations

import base64
import functools
import itertools
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from ...media.video import write_clip
from ...spec import DecoderSpec
from ..dataset import CLIPS
from ..motion import FlowSettings, motion_value, open_flow
from .film import FilmError, frames_at, read_frames, until_broken
from .framing import Margins, fit
from .scenes import Crop, Scene
from .survey import Survey
from .writing import MOST_TEXT, Line, looked_at, read_text, reading_size

# Seconds before a scene's end: its last frame is still shown at up to 30 frames a second. In faster films, a cut may be
# this much earlier, since not every frame is searched (`scenes`).
INSIDE = 0.03
BEFORE_FLASH = 0.005  # seconds before a flash: times are rounded, so the picture may already show it
FADE_MARGIN = 0.08  # seconds: at either end of a fade, one or two faint frames are not detected
CLOSENESS = 1e-6  # seconds of tolerance, since times are sums of floats

SAMPLES, ROWS, COLUMNS = 9, 8, 12  # of a signature: pictures, and the size of one in pixels
LAGS = range(-5, 6)  # samples that a repeat may begin earlier or later
ALIKE = 4.0  # grey levels; measured: repeats differ by up to 1.2, the most similar different scenes by 12
ALIKE_SHARE = 0.1  # the same as a fraction of the clip's standard deviation, since dark scenes differ less
NEAR = 12.0  # the same for the mean over time, which differs more if a repeat begins earlier or later
# Of `shows_more`: 305 repeats differed by up to 9 grey levels, 232 of 234 clips with a figure more by over 12.
PICTURE, MOVED, PATCH, MORE = (72, 48), 2, 5, 12.0  # size, pixels of a detail's move, side of what is new, grey levels

LOOKED_AT = 5  # frames of a segment that are tested for black
STILL_HEIGHT = 96  # pixels: to separate motion from noise
BLACK = 40.0  # brightest grey level (except one pixel in a hundred) of a black frame
STILL, STILL_SHARE, NOISE_RATIO, STILL_MOST = 1.3, 0.06, 4.0, 4.0  # see is_still


@dataclass(frozen=True)
class Segment:
    """Two seconds of a scene. start: seconds in the film.

    times: start + i / fps for each frame i, clamped so that the last frame still shows the scene. flashed: indices of
    frames with a flash; motion is measured without them.
    """

    start: float
    times: tuple[float, ...]
    flashed: tuple[int, ...] = ()


def segments_of(scene: Scene, frames: int = 17, fps: int = 8) -> list[Segment]:
    """The segments of a scene, one after another from the end of its fade-in to the start of its fade-out.

    frames, fps: of a segment, which lasts (frames - 1) / fps seconds. A scene shorter than that has none.
    """
    seconds = (frames - 1) / fps
    first = scene.start + (scene.fade_in + FADE_MARGIN if scene.fade_in else 0.0)
    end = scene.end - (scene.fade_out + FADE_MARGIN if scene.fade_out else 0.0)
    count = max(0, int((end - first + CLOSENESS) // seconds))
    return [_segment(first + number * seconds, end, frames, fps, scene) for number in range(count)]


def _segment(start: float, end: float, frames: int, fps: int, scene: Scene) -> Segment:
    times = tuple(min(start + index / fps, end - INSIDE) for index in range(frames))
    hit = [any(first - BEFORE_FLASH <= time < last for first, last in scene.flashes) for time in times]
    return Segment(start, times, tuple(index for index, flashed in enumerate(hit) if flashed))


def why_left_out(frames_FHWC: NDArray[np.uint8], motion_value: float) -> str | None:
    """The reason to drop a segment, as dropped.jsonl says it; None to keep it.

    frames_FHWC: uint8 RGB at the clip's size, without frames with a flash. motion_value: of these, in px per frame.
    """
    if is_black(frames_FHWC):
        return "black"
    return "still" if motion_value <= 0 or is_still(frames_FHWC) else None


class Duplicates:
    """Finds duplicate clips by their signatures. frames: gives a clip's frames by its name, if signatures are alike."""

    def __init__(self, frames: Callable[[str], NDArray[np.uint8]]) -> None:
        self._pictures = functools.cache(lambda name: small_pictures(frames(name)))
        self._kept: list[tuple[str, str, NDArray[np.int16]]] = []  # (name, scene, samples)
        self._means: list[NDArray[np.float64]] = []

    def add(self, signature: str, name: str, scene: str) -> str | None:
        """'duplicate of <name>' for a clip that looks like a kept one; else None, and the clip is kept.

        scene: unique name of the clip's scene. Clips of one scene are not compared: with little motion they all look
        alike.
        """
        clip_SP = _unpacked(signature)
        mean_P, alike = clip_SP.mean(axis=0), min(ALIKE, ALIKE_SHARE * float(clip_SP.std()))
        means = np.stack(self._means) if self._means else np.empty((0, ROWS * COLUMNS))
        for index in np.flatnonzero(np.abs(means - mean_P).mean(axis=1) < NEAR):
            kept_name, kept_scene, kept_SP = self._kept[index]
            is_alike = kept_scene != scene and difference(kept_SP, clip_SP) <= alike
            if is_alike and not shows_more(self._pictures(kept_name), self._pictures(name)):
                return f"duplicate of {kept_name}"
        self._kept.append((name, scene, clip_SP))
        self._means.append(mean_P)
        return None


def signature(frames_FHWC: NDArray[np.uint8]) -> str:
    """A clip's signature: nine small grey pictures, evenly spaced in time, as base64 text of 1152 characters."""
    import cv2

    picked = np.linspace(0, len(frames_FHWC) - 1, SAMPLES).round().astype(int)
    small = [cv2.resize(frame, (COLUMNS, ROWS), interpolation=cv2.INTER_AREA) for frame in frames_FHWC[picked]]
    grey = [cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY) for picture in small]
    return base64.b64encode(np.stack(grey).tobytes()).decode("ascii")


def _unpacked(text: str) -> NDArray[np.int16]:
    """The samples (S, P) of a signature."""
    return np.frombuffer(base64.b64decode(text), np.uint8).reshape(SAMPLES, ROWS * COLUMNS).astype(np.int16)


def difference(first_SP: NDArray[np.int16], second_SP: NDArray[np.int16]) -> float:
    """The least mean difference of two clips in grey levels, if one may begin up to 1.25 s later than the other."""
    return min(float(np.abs(one - other).mean()) for one, other in _overlaps(first_SP, second_SP, LAGS))


def _overlaps(first: NDArray, second: NDArray, lags: range) -> Iterator[tuple[NDArray, NDArray]]:
    """What two clips of one length both show, if the second begins so many pictures later or earlier."""
    for lag in lags:
        yield first[max(0, lag) : len(first) + min(0, lag)], second[max(0, -lag) : len(first) - max(0, lag)]


def small_pictures(frames_FHWC: NDArray[np.uint8]) -> NDArray[np.int16]:
    """A clip for `shows_more`."""
    import cv2

    small = [cv2.resize(frame, PICTURE, interpolation=cv2.INTER_AREA) for frame in frames_FHWC]
    return np.stack(small).astype(np.int16)


def shows_more(first_FHWC: NDArray[np.int16], second_FHWC: NDArray[np.int16]) -> bool:
    """Whether one of two similar clips shows more, such as one figure more: a patch unlike all that the other shows
    around it, just before and just after. Edges do not count, since a repeat may be cropped."""
    import cv2

    half, edge, around = len(first_FHWC) // 2, MOVED + 1, np.ones((2 * MOVED + 1, 2 * MOVED + 1), np.uint8)
    pairs = _overlaps(first_FHWC, second_FHWC, range(-half, half + 1))
    one, other = min(pairs, key=lambda pair: np.abs(pair[0] - pair[1]).mean())
    for shown, known in ((one, other), (other, one)):
        near = np.pad(known, ((1, 1), (0, 0), (0, 0), (0, 0)), "edge")
        in_time = near[:-2], near[1:-1], near[2:]
        low = np.stack([cv2.erode(frame, around) for frame in np.minimum.reduce(in_time)])
        high = np.stack([cv2.dilate(frame, around) for frame in np.maximum.reduce(in_time)])
        new = np.maximum(shown - high, low - shown).clip(0).max(axis=-1).astype(np.float32)
        if np.median([cv2.blur(frame, (PATCH, PATCH))[edge:-edge, edge:-edge].max() for frame in new]) > MORE:
            return True
    return False


def is_black(frames_FHWC: NDArray[np.uint8]) -> bool:
    """Whether the frames are black except for noise."""
    picked = frames_FHWC[np.linspace(0, len(frames_FHWC) - 1, LOOKED_AT).round().astype(int)]
    return all(np.percentile(frame.max(axis=-1), 99) < BLACK and frame.max() < 2 * BLACK for frame in picked)


def is_still(frames_FHWC: NDArray[np.uint8]) -> bool:
    """Whether nothing changes but film grain and compression noise, which optical flow alone takes for motion.

    Noise changes all pixels about equally, even the calmest fifth; motion changes some pixels far more. A codec that
    sharpens a picture over several frames changes few pixels, and by a small fraction of the picture's contrast.
    """
    import cv2

    tall, wide = frames_FHWC.shape[1:3]
    size = (max(1, round(wide * STILL_HEIGHT / tall)), STILL_HEIGHT)
    how = cv2.INTER_AREA if STILL_HEIGHT < tall else cv2.INTER_CUBIC
    greys = (cv2.cvtColor(np.ascontiguousarray(frame), cv2.COLOR_RGB2GRAY) for frame in frames_FHWC)
    small = (cv2.resize(grey, size, interpolation=how).astype(np.float32) for grey in greys)
    blurred = np.stack([cv2.GaussianBlur(frame, (0, 0), 1.2) for frame in small])
    calm, most = np.percentile(blurred.std(axis=0), (20, 99.8))
    sharpened = STILL_SHARE * blurred[len(blurred) // 2].std()
    return bool(most <= max(STILL, sharpened, min(NOISE_RATIO * calm, STILL_MOST)))


DAMAGED = "damaged"  # the reason for a segment with a time that could not be read

SPAN_SECONDS = 20.0  # seconds of film that a process cuts at a time; seeking to a span costs about a second


@dataclass(frozen=True)
class ClipShape:
    """The size, frames and frame rate of every clip of a dataset. crop: what is cut away from films."""

    height: int
    width: int
    frames: int = 17
    fps: int = 8
    crop: Margins = Margins()

    @classmethod
    def of(cls, decoder: DecoderSpec, crop: str = "") -> ClipShape:
        """The shape of clips that a world's decoder trains on. crop: see `Margins.parse`."""
        return cls(decoder.height, decoder.width, decoder.frames, decoder.fps, Margins.parse(crop))


@dataclass(frozen=True)
class Cut:
    """One segment of a film: a clip, or why it was dropped.

    start, end: seconds in the film. clip: its path relative to the dataset folder. value: motion value in px per frame.
    signature: of its pictures, to find near-duplicates. dropped: the reason, None for a clip. text: `read_text`.
    """

    start: float
    end: float
    clip: str = ""
    value: float = 0.0
    signature: str = ""
    dropped: str | None = None
    text: tuple[tuple[Line, ...], ...] = ()


@dataclass(frozen=True)
class Span:
    """Consecutive scenes of one film that one process cuts.

    first: the number of the first scene. whole: whether the survey could read the film to its end. most_text: largest
    fraction of the picture that text may cover; from 1 on, the clips are not searched for text.
    """

    film: Path
    name: str
    first: int
    scenes: tuple[Scene, ...]
    whole: bool
    most_text: float = MOST_TEXT


def spans_of(
    film: Path, name: str, survey: Survey, done: Collection[int], most_text: float = MOST_TEXT
) -> Iterator[Span]:
    """Yield the unfinished scenes in spans of about 20 seconds. done: numbers of the finished scenes."""
    held: list[Scene] = []
    for number, scene in enumerate((*survey.scenes, None)):
        full = held and held[-1].end - held[0].start >= SPAN_SECONDS
        if held and (full or scene is None or number in done):
            yield Span(film, name, number - len(held), tuple(held), survey.broken is None, most_text)
            held = []
        if scene is not None and number not in done:
            held.append(scene)


def cut_span(span: Span, out: Path, shape: ClipShape, flow: FlowSettings) -> tuple[Span, list[list[Cut]] | str]:
    """Write the clips of a span; returns the span, and the segments of each scene or a message if reading failed."""
    plans = [segments_of(scene, shape.frames, shape.fps) for scene in span.scenes]
    times = [time for plan in plans for segment in plan for time in segment.times]
    if not times:
        return span, [[] for _ in plans]
    frames = read_frames(span.film, times[0], span.scenes[-1].end)
    pictures = frames_at(frames if span.whole else until_broken(frames), times)
    measure = functools.partial(motion_value, backend=_flow(flow), **flow.left_out)
    cuts: list[list[Cut]] = []
    try:
        for scene, plan in zip(span.scenes, plans, strict=True):
            cuts.append([])
            for segment in plan:
                cuts[-1].append(_cut_segment(pictures, segment, scene.crop, span, shape, measure, out))
    except FilmError as error:
        return span, str(error)
    return span, cuts


def is_cut(clip: str, film: str) -> bool:
    """Whether the clip's name is one that cutting gives; clips that a person added have other names."""
    return clip.startswith(f"{CLIPS}/{film}/") and PurePosixPath(clip).stem.isdecimal()


def _cut_segment(
    frames: Iterator[NDArray[np.uint8] | None],
    segment: Segment,
    crop: Crop,
    span: Span,
    shape: ClipShape,
    measure: Callable[[NDArray[np.uint8]], float],
    out: Path,
) -> Cut:
    """Write the next frames as a clip, or drop them. Their motion is measured without the frames of flashes."""
    size, pictures = (shape.height, shape.width), list(itertools.islice(frames, shape.frames))
    start, end = round(segment.start, 3), round(segment.start + (shape.frames - 1) / shape.fps, 3)
    if any(picture is None for picture in pictures):
        return Cut(start, end, dropped=DAMAGED)
    crop = shape.crop.within(crop, pictures[0].shape, size)
    clip_FHWC = np.stack([fit(picture, crop, size) for picture in pictures])
    read = [pictures[index] for index in looked_at(shape.frames)] if span.most_text < 1 else []
    text = read_text([fit(picture, crop, reading_size(picture, crop, size)) for picture in read])
    judged = np.delete(clip_FHWC, segment.flashed, axis=0) if segment.flashed else clip_FHWC
    value = measure(judged)
    if reason := why_left_out(judged, value):
        return Cut(start, end, dropped=reason, text=text)
    clip = f"{CLIPS}/{span.name}/{round(segment.start * 1000):08d}.mp4"
    write_clip(out / clip, clip_FHWC, shape.fps)
    return Cut(start, end, clip, round(value, 4), signature(judged), text=text)


_flow = functools.lru_cache(maxsize=1)(open_flow)  # the flow backend of this process
