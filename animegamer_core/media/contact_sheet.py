"""The contact sheet: a picture of a story with one card per turn, frames on the left and the game on the right.

Also strips of clips that are compared.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence

import numpy as np

from ..game.life import STATS, Stat
from ..game.state import Turn, scope_name
from .text import NOTICE, Pen, drawable, fitted, instruction_parts, wrapped

if typing.TYPE_CHECKING:
    from PIL import Image

TILES = 4  # frames per card
TILE_HEIGHT = 252
_PANEL = 560  # width of the text and gauges next to the frames
_MARGIN, _PAD, _GAP = 40, 24, 8
_HEADER = 130
_PAPER, _CARD, _EDGE = "#f3f1ec", "#ffffff", "#dedad0"
_INK, _FAINT, _TRACK = "#23262f", "#696d78", "#e8e6e1"
_MOTION = "#6d4fc4"
_GAIN, _LOSS = ("#d9f2e3", "#11683d"), ("#fbe0dc", "#9c2a1b")  # (background, ink) of a change of a stat
_WORDS = (30, 25)  # font sizes of the first line of an instruction and of the others
_GAUGES, _ROW = 172, 34  # where the stats begin, and the height of one
_BAR = 15  # height of gauges and motion steps


def contact_sheet(
    turns: Sequence[Turn], clips: Sequence[np.ndarray] | np.ndarray, title: str, stats: Sequence[Stat] = STATS
) -> Image.Image:
    """A picture with a card per turn: evenly spaced frames, the instruction, the motion scope, the stats and changes.

    clips: uint8 (F, H, W, 3), one per turn, all of one size.
    """
    from PIL import Image, ImageDraw

    tile_width = round(TILE_HEIGHT * clips[0].shape[2] / clips[0].shape[1])
    strip = TILES * tile_width + (TILES - 1) * _GAP
    card = (_PAD + strip + _PAD + _PANEL + _PAD, max(TILE_HEIGHT, _GAUGES + _ROW * len(stats) - 22) + 2 * _PAD)
    size = (card[0] + 2 * _MARGIN, _HEADER + len(turns) * (card[1] + _PAD) + _MARGIN - _PAD)
    sheet = Image.new("RGB", size, _PAPER)
    pen = Pen(ImageDraw.Draw(sheet))
    _draw_header(pen, title, turns, size[0])
    for row, (turn, frames) in enumerate(zip(turns, clips, strict=True)):
        x, y = _MARGIN, _HEADER + row * (card[1] + _PAD)
        pen.draw.rounded_rectangle((x, y, x + card[0], y + card[1]), radius=18, fill=_CARD, outline=_EDGE, width=2)
        _paste_strip(sheet, frames, (x + _PAD, y + _PAD), tile_width)
        _draw_panel(pen, turn, (x + _PAD + strip + _PAD, y + _PAD), stats)
    return sheet


def _draw_header(pen: Pen, title: str, turns: Sequence[Turn], width: int) -> None:
    pen.text((_MARGIN, 66), fitted(title, 46, width // 2), 46, _INK)
    first, last = turns[0].number, turns[-1].number
    pen.text((width - _MARGIN, 70), f"turns {first} to {last}", 28, _FAINT, "rm")
    if any(drawable(words) != words for words in (title, *(turn.instruction for turn in turns))):
        pen.text((_MARGIN, 112), NOTICE, 22, _FAINT)


def _paste_strip(sheet: Image.Image, frames: np.ndarray, corner: tuple[int, int], tile_width: int) -> None:
    """Paste TILES frames from the first to the last, with rounded corners."""
    from PIL import Image, ImageDraw

    mask = Image.new("L", (tile_width, TILE_HEIGHT), 0)
    ImageDraw.Draw(mask).rounded_rectangle((0, 0, tile_width - 1, TILE_HEIGHT - 1), radius=10, fill=255)
    for tile, index in enumerate(np.linspace(0, len(frames) - 1, TILES).round().astype(int)):
        picture = Image.fromarray(frames[index]).resize((tile_width, TILE_HEIGHT), Image.Resampling.LANCZOS)
        sheet.paste(picture, (corner[0] + tile * (tile_width + _GAP), corner[1]), mask)


def _draw_panel(pen: Pen, turn: Turn, corner: tuple[int, int], stats: Sequence[Stat]) -> None:
    x, y = corner
    pen.draw.ellipse((x, y, x + 46, y + 46), fill=_INK)
    pen.text((x + 23, y + 23), str(turn.number), 24 if turn.number < 100 else 18, _CARD, "mm")
    for index, line in enumerate(_instruction_lines(turn.instruction, _PANEL - 64)):
        pen.text((x + 64, y + 22 + 35 * index), line, _WORDS[index > 0], _FAINT if index else _INK)
    _draw_motion(pen, turn.state.motion, x, y + 136)
    for index, stat in enumerate(stats):
        level = turn.character[stat.name], turn.moved[stat.name]
        _draw_gauge(pen, (x, y + _GAUGES + _ROW * index), stat.label or stat.name, stat.colour, level)


def _instruction_lines(instruction: str, width: int) -> list[str]:
    """At most three lines: the parts of an instruction without their labels, or plain text, wrapped."""
    parts = instruction_parts(instruction)[:3]
    lines = parts if len(parts) > 1 else wrapped(parts[0], _WORDS[0], width, 3)
    return [fitted(line, _WORDS[index > 0], width) for index, line in enumerate(lines)]


def _draw_motion(pen: Pen, motion: int, x: int, y: int) -> None:
    pen.text((x, y), "motion", 22, _FAINT)
    for step in range(5):
        left = x + 162 + step * 46
        pen.pill((left, y - _BAR / 2, left + 40, y + _BAR / 2), _MOTION if step < motion else _TRACK)
    pen.text((x + 410, y), scope_name(motion), 24, _INK)


def _draw_gauge(pen: Pen, corner: tuple[int, int], name: str, colour: str, level: tuple[int, int]) -> None:
    """Draw a bar of 0..100 with its number and, in a badge, the change in this turn."""
    x, y = corner
    value, change = level
    left, width = x + 162, 224
    pen.text((x, y), name, 22, _FAINT)
    pen.pill((left, y - _BAR / 2, left + width, y + _BAR / 2), _TRACK)
    if value > 0:
        pen.pill((left, y - _BAR / 2, left + max(_BAR, width * value / 100), y + _BAR / 2), colour)
    pen.text((x + 446, y), str(value), 24, _INK, "rm")
    if change:
        paper, ink = _GAIN if change > 0 else _LOSS
        pen.pill((x + 468, y - 13, x + 528, y + 13), paper)
        pen.text((x + 498, y), f"{change:+d}", 20, ink, "mm")


def strips(*films: Sequence[np.ndarray] | np.ndarray) -> Image.Image:
    """Clips side by side: one row a scene, and of each film's clip of it the first, the middle and the last frame."""
    from PIL import Image

    height, width = films[0][0].shape[1:3]
    rows = []
    for clips in zip(*films, strict=True):
        frames = [clip[at] for clip in clips for at in (0, len(clip) // 2, -1)]
        rows.append(np.hstack([np.asarray(Image.fromarray(frame).resize((width, height))) for frame in frames]))
    return Image.fromarray(np.vstack(rows))
