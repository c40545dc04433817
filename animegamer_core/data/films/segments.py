"""The two-second segments of a scene, and the reasons to drop one: still, black, credits, duplicate.

F frames, H height, W width, C channels, S samples of a signature, P pixels of a sample.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...messages import brief
from .scenes import Scene
from .writing import is_credits

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

    frames, fps: of a segment, which lasts (frames - 1) / fps seconds. A scene shorter than that has none. ValueError
    for fewer than two frames, or fps below 1.
    """
    if frames < 2 or fps < 1:
        raise ValueError(
            f"a segment of {frames} frames at {fps} per second cannot be cut; give at least 2 frames and "
            "1 frame per second"
        )
    seconds = (frames - 1) / fps
    first = scene.start + (scene.fade_in + FADE_MARGIN if scene.fade_in else 0.0)
    end = scene.end - (scene.fade_out + FADE_MARGIN if scene.fade_out else 0.0)
    count = max(0, int((end - first + CLOSENESS) // seconds))
    return [_segment(first + number * seconds, end, frames, fps, scene) for number in range(count)]


def _segment(start: float, end: float, frames: int, fps: int, scene: Scene) -> Segment:
    times = tuple(min(start + index / fps, end - INSIDE) for index in range(frames))
    hit = [any(first - BEFORE_FLASH <= time < last for first, last in scene.flashes) for time in times]
    return Segment(start, times, tuple(index for index, flashed in enumerate(hit) if flashed))


@dataclass(frozen=True)
class Candidate:
    """What a filter sees of a segment. frames_FHWC: uint8 RGB at the clip's size, without frames with a flash.
    motion_value: of these frames, in px per frame. pages: a few frames at the size in which text is searched for, none
    if it is not; most_text: the largest fraction of them that it may cover (`is_credits`)."""

    frames_FHWC: NDArray[np.uint8]
    motion_value: float
    pages: Sequence[NDArray[np.uint8]] = ()
    most_text: float = 1.0


def why_left_out(clip: Candidate) -> str | None:
    """The reason to drop a segment: the first of FILTERS that is true; None to keep it."""
    return next((reason for reason, is_unwanted in FILTERS.items() if is_unwanted(clip)), None)


class Duplicates:
    """Finds duplicate clips by their signatures."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, str, NDArray[np.int16]]] = []  # (name, scene, samples)
        self._means: list[NDArray[np.float64]] = []

    def add(self, signature: str, name: str, scene: str) -> str | None:
        """'duplicate of <name>' for a clip that looks like a kept one; else None, and the clip is kept.

        scene: unique name of the clip's scene. Clips of one scene are not compared: with little motion they all look
        alike. ValueError for an invalid signature.
        """
        clip_SP = _unpacked(signature)
        mean_P, alike = clip_SP.mean(axis=0), min(ALIKE, ALIKE_SHARE * float(clip_SP.std()))
        means = np.stack(self._means) if self._means else np.empty((0, ROWS * COLUMNS))
        for index in np.flatnonzero(np.abs(means - mean_P).mean(axis=1) < NEAR):
            kept_name, kept_scene, kept_SP = self._kept[index]
            if kept_scene != scene and difference(kept_SP, clip_SP) <= alike:
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
    """The samples (S, P) of a signature; ValueError for any other text."""
    try:
        pixels = np.frombuffer(base64.b64decode(text, validate=True), np.uint8)
        return pixels.reshape(SAMPLES, ROWS * COLUMNS).astype(np.int16)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{brief(text, 40)!r} is not a clip's signature; build the film again") from error


def difference(first_SP: NDArray[np.int16], second_SP: NDArray[np.int16]) -> float:
    """The least mean difference of two clips in grey levels, if one may begin up to 1.25 s later than the other."""
    spans = [(slice(max(0, lag), SAMPLES + min(0, lag)), slice(max(0, -lag), SAMPLES + min(0, -lag))) for lag in LAGS]
    return min(float(np.abs(first_SP[one] - second_SP[other]).mean()) for one, other in spans)


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

    blurred = np.stack([cv2.GaussianBlur(frame, (0, 0), 1.2) for frame in _grey(frames_FHWC)])
    calm, most = np.percentile(blurred.std(axis=0), (20, 99.8))
    sharpened = STILL_SHARE * blurred[len(blurred) // 2].std()
    return bool(most <= max(STILL, sharpened, min(NOISE_RATIO * calm, STILL_MOST)))


def _grey(frames_FHWC: NDArray[np.uint8]) -> list[NDArray[np.float32]]:
    """The frames in grey, resized to 96 lines."""
    import cv2

    tall, wide = frames_FHWC.shape[1:3]
    size = (max(1, round(wide * STILL_HEIGHT / tall)), STILL_HEIGHT)
    how = cv2.INTER_AREA if STILL_HEIGHT < tall else cv2.INTER_CUBIC
    greys = (cv2.cvtColor(np.ascontiguousarray(frame), cv2.COLOR_RGB2GRAY) for frame in frames_FHWC)
    return [cv2.resize(grey, size, interpolation=how).astype(np.float32) for grey in greys]


# Adding a filter is a row here. The reason is what dropped.jsonl says. dataset.json and films/<film>.json list the
# names, so that a build says which films were cut with other filters.
FILTERS: dict[str, Callable[[Candidate], bool]] = {
    "black": lambda clip: is_black(clip.frames_FHWC),
    "credits": lambda clip: bool(clip.pages) and is_credits(clip.pages, clip.most_text),
    "still": lambda clip: clip.motion_value <= 0 or is_still(clip.frames_FHWC),
}
