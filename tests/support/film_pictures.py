"""The pictures of a generated film's parts: enlarged drawings, fades, flashes, borders, grain, credits.

H height, W width, C channels; sizes are (height, width).
"""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from film_parts import BORDERS, FilmPlan, Part
from numpy.typing import NDArray

from animegamer_core.toybox.drawing.draw import draw_frame
from animegamer_core.toybox.world import FPS, HEIGHT, WIDTH

MARGIN = 0.06  # fraction of the drawing that is outside of the picture, so that it can drift
DRIFT = 2.4  # the fastest drift, in pixels per second at 480 px height: too slow to count as motion
DARK = 0.14  # brightness of a dark scene, except for its lamp


def starts_of(parts: Sequence[Part]) -> list[int]:
    """The number of each part's first frame, followed by the film's number of frames."""
    shared = [part.overlap if part.begins == "cross" else 0 for part in parts]
    ends = itertools.accumulate(part.frames - own for part, own in zip(parts, shared, strict=True))
    starts = [0, *ends]
    return [start - own for start, own in zip(starts, [*shared, 0], strict=True)]


def crop_of(border: str, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The widths in pixels (top, bottom, left, right) of a border of BORDERS, for a film of this size."""
    top, left = (round(fraction * length) for fraction, length in zip(BORDERS[border], size, strict=True))
    return top, top, left, left


def film_frames(parts: Sequence[Part], plan: FilmPlan) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Yield (frame number at the film's rate, uint8 RGB frame (H, W, C)) for every frame that the file stores."""
    starts = starts_of(parts)
    grain = np.random.default_rng(plan.seed)
    for index, part in enumerate(parts):
        follower = parts[index + 1] if index + 1 < len(parts) else None
        for frame in range(part.overlap if part.begins == "cross" else 0, part.frames):
            if not plan.variable or _shown(part, frame) or (follower is None and frame == part.frames - 1):
                picture = _with_fades(part, follower, frame, plan)
                yield starts[index] + frame, _grained(picture, part, plan, grain)


def _shown(part: Part, frame: int) -> bool:
    """Whether a film with a variable frame rate stores this frame."""
    flashing = any(flash.first <= frame <= flash.first + flash.frames for flash in part.flashes)
    return frame % part.step == 0 or flashing


def _with_fades(part: Part, follower: Part | None, frame: int, plan: FilmPlan) -> NDArray[np.float32]:
    picture = _picture(part, frame, plan)
    if part.begins in ("black", "white") and frame < part.overlap:
        picture = _faded(picture, part, plan, part.begins, 1 - frame / part.overlap)
    if follower is None or frame < part.frames - follower.overlap:
        return picture
    number = frame - (part.frames - follower.overlap)
    fraction = (number + 1) / (follower.overlap + 1)
    if follower.begins == "cross":
        return (1 - fraction) * picture + fraction * _picture(follower, number, plan)
    return _faded(picture, part, plan, follower.begins, fraction)


def _faded(picture_HWC: NDArray[np.float32], part: Part, plan: FilmPlan, colour: str, fraction: float):
    """A step of a fade, in place; borders stay black, as in published films."""
    inside = _inside(picture_HWC, part, plan)
    inside[:] = _toned(inside, colour, fraction)
    return picture_HWC


def _inside(picture_HWC: NDArray[np.float32], part: Part, plan: FilmPlan) -> NDArray[np.float32]:
    top, bottom, left, right = crop_of(part.border, plan.size)
    return picture_HWC[top : len(picture_HWC) - bottom, left : picture_HWC.shape[1] - right]


def _toned(picture_HWC: NDArray[np.float32], colour: str, fraction: float) -> NDArray[np.float32]:
    return (1 - fraction) * picture_HWC + fraction * (255.0 if colour == "white" else 0.0)


def _grained(picture_HWC: NDArray[np.float32], part: Part, plan: FilmPlan, rng: np.random.Generator):
    """The frame as bytes, with grain on the picture but not on its borders."""
    if plan.grain and part.scene is not None:
        inside = _inside(picture_HWC, part, plan)
        inside += plan.grain * rng.standard_normal((*inside.shape[:2], 1), dtype=np.float32)
    return np.clip(np.rint(picture_HWC), 0, 255).astype(np.uint8)


def _picture(part: Part, frame: int, plan: FilmPlan) -> NDArray[np.float32]:
    """One frame (H, W, C) of a part, with its borders and flashes but without fades."""
    if part.scene is None:
        return _credits_picture(part, frame, plan).astype(np.float32)
    picture = _scene_picture(part, frame, plan)
    for flash in part.flashes:
        if flash.first <= frame < flash.first + flash.frames:
            picture = 255 - picture if flash.kind == "negative" else _toned(picture, flash.kind, 0.85)
    top, bottom, left, right = crop_of(part.border, plan.size)
    return np.pad(picture, ((top, bottom), (left, right), (0, 0)))


def _scene_picture(part: Part, frame: int, plan: FilmPlan) -> NDArray[np.float32]:
    """The drawing, enlarged to fill the picture and moved by its drift."""
    import cv2

    seconds = frame // part.step * part.step / plan.fps
    drawing = draw_frame(part.scene, seconds * FPS * part.rate)
    top, bottom, left, right = crop_of(part.border, plan.size)
    height, width = plan.size[0] - top - bottom, plan.size[1] - left - right
    scale = max(height / HEIGHT, width / WIDTH) * (1 + MARGIN)
    reach = MARGIN / 2 * height
    moved = min(DRIFT * seconds * height / 480, reach)
    x, y = (
        moved * fraction + (length - scale * own) / 2
        for fraction, length, own in zip(part.drift, (width, height), (WIDTH, HEIGHT), strict=True)
    )
    matrix = np.float32([[scale, 0, x], [0, scale, y]])
    picture = cv2.warpAffine(
        drawing, matrix, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
    ).astype(np.float32)
    return _by_lamplight(picture) if part.kind == "dark" else picture


def _by_lamplight(picture_HWC: NDArray[np.float32]) -> NDArray[np.float32]:
    """The picture darkened, except for a small lamp at the upper right."""
    height, width = picture_HWC.shape[:2]
    rows, columns = np.ogrid[:height, :width]
    distance = np.hypot(rows - 0.35 * height, columns - 0.7 * width) / (0.06 * height)
    lamp = np.exp(-(distance**2)).astype(np.float32)[..., None]
    return DARK * picture_HWC + lamp * np.float32([250, 220, 150])


def _credits_picture(part: Part, frame: int, plan: FilmPlan) -> NDArray[np.uint8]:
    height, width = plan.size
    strip = _lettering(part.lines, width, height)
    if not part.rolls:
        top = (height - len(strip)) // 2
        return np.pad(strip, ((top, height - len(strip) - top), (0, 0), (0, 0)))
    offset = round((height + len(strip)) * frame / part.frames)  # by how many pixels the strip has moved up
    padded = np.pad(strip, ((height, height), (0, 0), (0, 0)))
    return padded[offset : offset + height]


@functools.lru_cache(maxsize=4)
def _lettering(lines: tuple[str, ...], width: int, height: int) -> NDArray[np.uint8]:
    """Lines of white text on black, (their height, width, 3)."""
    import cv2

    size = height / 600
    spacing = math.ceil(60 * size)
    strip = np.zeros((spacing * len(lines), width, 3), np.uint8)
    for number, line in enumerate(lines):
        (wide, high), _ = cv2.getTextSize(line, cv2.FONT_HERSHEY_DUPLEX, size, 1)
        place = ((width - wide) // 2, number * spacing + (spacing + high) // 2)
        cv2.putText(strip, line, place, cv2.FONT_HERSHEY_DUPLEX, size, (235, 235, 235), 1, cv2.LINE_AA)
    return strip
