"""What is drawn over a film's pictures: captions, stats, and a title card. Sizes follow the picture's height."""

from __future__ import annotations

import typing
from dataclasses import dataclass

import numpy as np

from ..state import Turn, scope_name
from .text import Pen, fitted, is_drawable, parts_of, width_of, wrapped

if typing.TYPE_CHECKING:
    from PIL import Image

    from .video import Frames

LEGIBLE_HEIGHT = 384  # pixels that a picture needs for text; smaller ones are enlarged by default
_CAPTION, _STAT, _TITLE, _SUBTITLE = 0.058, 0.036, 0.11, 0.05  # sizes of text, as parts of the height
_EDGE = 0.035  # space around text
_CAPTION_LINES = 2
_BOX = (12, 14, 20, 150)  # RGBA behind the stats
_TRACK, _INK, _FAINT = "#4a4e58", "#ffffff", "#d5d8de"
_GAIN, _LOSS, _MOTION = "#7fe0a6", "#ff9a8b", "#a48bf0"
_DARKEN = 0.35  # brightness of the picture behind a title


def caption_of(turn: Turn) -> str:
    """A turn's number and instruction, without the labels of the published form."""
    return f"{turn.number}. " + " \u00b7 ".join(parts_of(turn.instruction))


@dataclass(frozen=True)
class Overlay:
    """A picture with transparency that is laid over frames of its size."""

    colour_HW3: np.ndarray  # float32, already multiplied by its opacity
    clear_HW1: np.ndarray  # float32, 0 where nothing of the frame is seen

    def over(self, frame_HW3: Frames) -> Frames:
        """The frame with the overlay, uint8."""
        return (frame_HW3 * self.clear_HW1 + self.colour_HW3 + 0.5).astype(np.uint8)


def turn_overlay(turn: Turn, size: tuple[int, int], caption: bool, stats: bool) -> Overlay:
    """The overlay of a turn. size: (width, height) of the frames."""
    picture, pen = _canvas(size)
    if stats:
        _draw_stats(pen, turn, size[1])
    if caption:
        _draw_caption(pen, caption_of(turn), size)
    return _overlay_of(picture)


def title_frame(frame: Frames, title: str, below: str) -> Frames:
    """A title card: the title, and a smaller line below, on a darkened frame (H, W, 3)."""
    height, width = frame.shape[:2]
    picture, pen = _canvas((width, height))
    edge = 2 * round(_EDGE * height)
    size, small = _pixels(_TITLE, height), _pixels(_SUBTITLE, height)
    lines = [fitted(line, size, width - 2 * edge) for line in wrapped(title, size, width - 2 * edge, 2)]
    y = height / 2 - size * 0.6 * len(lines)
    for index, line in enumerate(lines):
        pen.text((width / 2, y + 1.2 * size * index), line, size, _INK, "mm")
    y += 1.2 * size * len(lines)
    pen.text((width / 2, y), fitted(below, small, width - 2 * edge), small, _FAINT, "mm")
    return _overlay_of(picture).over((frame * _DARKEN).astype(np.uint8))


def undrawable(texts: typing.Iterable[str]) -> bool:
    """Whether some text has letters that no font of this computer has."""
    return not all(map(is_drawable, texts))


def _canvas(size: tuple[int, int]) -> tuple[Image.Image, Pen]:
    from PIL import Image, ImageDraw

    picture = Image.new("RGBA", size, (0, 0, 0, 0))
    return picture, Pen(ImageDraw.Draw(picture))


def _overlay_of(picture: Image.Image) -> Overlay:
    rgba = np.asarray(picture, np.float32)
    opacity = rgba[..., 3:] / 255
    return Overlay(rgba[..., :3] * opacity, 1 - opacity)


def _pixels(part: float, height: int) -> int:
    return max(6, round(part * height))


def _draw_caption(pen: Pen, words: str, size: tuple[int, int]) -> None:
    width, height = size
    letter, edge = _pixels(_CAPTION, height), round(_EDGE * height)
    room, outline = width - 2 * edge, max(1, round(letter / 9))
    lines = [fitted(line, letter, room) for line in wrapped(words, letter, room, _CAPTION_LINES)]
    for index, line in enumerate(reversed(lines)):
        y = height - edge - letter * (0.6 + 1.3 * index)
        pen.text((width / 2, y), line, letter, _INK, "mm", outline)


def _draw_stats(pen: Pen, turn: Turn, height: int) -> None:
    """Draw motion and stats in the upper left corner."""
    letter, edge = _pixels(_STAT, height), round(_EDGE * height)
    names = ("motion", *turn.character)
    label = max(width_of(name, letter) for name in names) + letter
    bar, row = 5.5 * letter, 1.6 * letter
    box = (edge, edge, edge + label + bar + 6.5 * letter, edge + row * len(names) + 0.6 * letter)
    pen.draw.rounded_rectangle(box, radius=0.6 * letter, fill=_BOX)
    left = edge + 0.7 * letter
    for index, name in enumerate(names):
        y = edge + 0.3 * letter + row * (index + 0.5)
        pen.text((left, y), name, letter, _FAINT)
        if name == "motion":
            _draw_motion(pen, turn.state.motion, (left + label, y), letter)
        else:
            _draw_gauge(pen, turn, name, (left + label, y), letter)


def _draw_motion(pen: Pen, level: int, corner: tuple[float, float], letter: int) -> None:
    x, y = corner
    step = 5.5 * letter / 5
    for index in range(5):
        colour = _MOTION if index < level else _TRACK
        pen.pill((x + step * index, y - letter / 4, x + step * (index + 0.8), y + letter / 4), colour)
    pen.text((x + 6 * letter, y), scope_name(level), letter, _INK)


def _draw_gauge(pen: Pen, turn: Turn, name: str, corner: tuple[float, float], letter: int) -> None:
    """Draw a bar of 0..100 with its number and the change in this turn."""
    (x, y), width, half = corner, 5.5 * letter, letter / 4
    value, change = turn.character[name], turn.moved[name]
    pen.pill((x, y - half, x + width, y + half), _TRACK)
    if value > 0:
        pen.pill((x, y - half, x + max(2 * half, width * value / 100), y + half), _GAIN)
    pen.text((x + 6 * letter, y), str(value), letter, _INK)
    if change:
        pen.text((x + 8.2 * letter, y), f"{change:+d}", letter, _GAIN if change > 0 else _LOSS)
