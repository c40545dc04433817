"""What pictures of figures share: colours, words on a sheet, round numbers for scales. Drawn with Pillow alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..fonts import drawable, font_of

if TYPE_CHECKING:
    from PIL import ImageDraw

SHARPER = 2  # drawn larger and shrunk, for smooth lines
PAPER, GRID, INK, FAINT = "#ffffff", "#e6e8ec", "#23262f", "#696d78"
_STEPS = (1.0, 2.0, 5.0, 10.0)


def put_words(
    draw: ImageDraw.ImageDraw, xy: tuple[float, float], words: str, ink: str, anchor: str, size: int = 16
) -> None:
    """Write words on a sheet that is SHARPER times as large as `xy` and `size` say, in pixels of the picture."""
    place = (SHARPER * xy[0], SHARPER * xy[1])
    draw.text(place, drawable(words), fill=ink, font=font_of(words, size * SHARPER), anchor=anchor)


def round_numbers(low: float, high: float) -> list[float]:
    """About five multiples of 1, 2 or 5 times a power of ten between two numbers."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    width = next(step * power for step in _STEPS if step * power >= rough)
    return [width * number for number in range(math.ceil(low / width), math.floor(high / width) + 1)]


def round_ratios(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten between two positive numbers; powers of ten alone where those are many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    heads = _STEPS[:3] if len(powers) < 5 else _STEPS[:1]
    return [head * 10.0**power for power in powers for head in heads if low <= head * 10.0**power <= high]
