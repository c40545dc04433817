"""Text in pictures, in any script: fonts, a pen, and what fits into a width. Sizes and widths in pixels."""

from __future__ import annotations

import re
import typing
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

if typing.TYPE_CHECKING:
    from PIL import ImageDraw, ImageFont

NOTICE = "? replaces letters that no font on this computer has; install Noto Sans CJK to see them"
_LETTERS = 600  # more than fits into any picture; measuring all of a long text would take minutes
_PIECES = re.compile(r"\s*(?:[\u1100-\uffdc]|[^\s\u1100-\uffdc]+)")  # lines break at spaces and at wide letters
# PIL's own font has Latin letters only. These are file names of Chinese, Japanese and Korean fonts on common systems;
# PIL searches the system's font folders.
_WIDE_FONTS = (
    *("NotoSansCJK-Regular.ttc", "NotoSansCJKsc-Regular.otf", "SourceHanSans-Regular.ttc", "wqy-microhei.ttc"),
    *("DroidSansFallbackFull.ttf", "DroidSansFallback.ttf", "wqy-zenhei.ttc", "ipag.ttf", "unifont.ttf"),
    *("PingFang.ttc", "Hiragino Sans GB.ttc", "STHeiti Light.ttc", "AppleSDGothicNeo.ttc", "Arial Unicode.ttf"),
    *("msyh.ttc", "YuGothM.ttc", "meiryo.ttc", "msgothic.ttc", "simsun.ttc", "malgun.ttf"),
)


@dataclass(frozen=True)
class Pen:
    """Draws text with PIL's own font or, if that lacks a letter, with a font of the system."""

    draw: ImageDraw.ImageDraw

    def text(
        self, xy: tuple[float, float], words: str, size: int, ink: str, anchor: str = "lm", outline: int = 0
    ) -> None:
        """Draw text at a point. anchor: as in Pillow; `lm` is left, middle. outline: width of the black outline."""
        style = {"stroke_width": outline, "stroke_fill": "black"} if outline else {}
        self.draw.text(xy, drawable(words), fill=ink, font=font_of(words, size), anchor=anchor, **style)

    def pill(self, box: tuple[float, float, float, float], colour: str) -> None:
        """Draw a bar with round ends."""
        self.draw.rounded_rectangle(box, radius=(box[3] - box[1]) / 2, fill=colour)


def width_of(words: str, size: int) -> float:
    """How wide the words are in this size."""
    return font_of(words, size).getlength(drawable(words))


def fitted(words: str, size: int, width: float) -> str:
    """The words, cut short with dots if they do not fit."""
    if len(words) <= _LETTERS and width_of(words, size) <= width:
        return words
    lengths = range(min(len(words), _LETTERS) + 1)
    longer = bisect_right(lengths, width, key=lambda length: width_of(words[:length] + "...", size))
    return words[: max(0, longer - 1)].rstrip() + "..."


def wrapped(words: str, size: int, width: float, most: int) -> list[str]:
    """The words in at most this many lines, broken at spaces and wide letters; the last line may still be too long."""
    lines = [""]
    for piece in _PIECES.findall(words[:_LETTERS]):
        longer = (lines[-1] + piece).strip()
        if len(lines) < most and lines[-1] and width_of(longer, size) > width:
            lines.append(piece.strip())
        else:
            lines[-1] = longer
    return lines


def instruction_parts(instruction: str) -> Sequence[str]:
    """The parts of an instruction in the published form without their labels; of other texts, the whole."""
    if not instruction.startswith("Character: "):
        return (instruction,)
    return tuple(part.split(": ", 1)[-1].rstrip(".") for part in instruction.split("; "))


def font_of(words: str, size: int) -> ImageFont.FreeTypeFont:
    """PIL's own font or, if it lacks letters, the font that has most of them."""
    from PIL import ImageFont

    name = _font_for("".join(sorted(set(words))))
    return ImageFont.load_default(size) if name is None else ImageFont.truetype(name, size)


@lru_cache(maxsize=1000)
def _font_for(letters: str) -> str | None:
    names = (None, *_wide_fonts())
    return min(names, key=lambda name: sum(not _draws(name, letter) for letter in letters))


def drawable(words: str) -> str:
    """The words with a question mark for each letter that their font lacks, which would be drawn as an empty box."""
    name = _font_for("".join(sorted(set(words))))
    return "".join(letter if _draws(name, letter) else "?" for letter in words)


@lru_cache(maxsize=10_000)
def _draws(name: str | None, letter: str) -> bool:
    """Whether a font has the letter: a missing one is drawn like a code point that is not a character."""
    from PIL import ImageFont

    font = ImageFont.load_default(20) if name is None else ImageFont.truetype(name, 20)
    return letter.isspace() or bytes(font.getmask(letter)) != bytes(font.getmask("\U0010ffff"))


@lru_cache(maxsize=1)
def _wide_fonts() -> tuple[str, ...]:
    """The wide fonts of this system."""
    from PIL import ImageFont

    found = []
    for name in _WIDE_FONTS:
        with suppress(OSError):
            ImageFont.truetype(name, 20)
            found.append(name)
    return tuple(found)
