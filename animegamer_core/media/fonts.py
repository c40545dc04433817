"""Fonts for text in any script, for pictures with names and instructions."""

from __future__ import annotations

import typing
from contextlib import suppress
from functools import lru_cache

if typing.TYPE_CHECKING:
    from PIL import ImageFont

# PIL's own font has Latin letters only. These are file names of Chinese, Japanese and Korean fonts on common systems;
# PIL searches the system's font folders.
_WIDE_FONTS = (
    *("NotoSansCJK-Regular.ttc", "NotoSansCJKsc-Regular.otf", "SourceHanSans-Regular.ttc", "wqy-microhei.ttc"),
    *("DroidSansFallbackFull.ttf", "DroidSansFallback.ttf", "wqy-zenhei.ttc", "ipag.ttf", "unifont.ttf"),
    *("PingFang.ttc", "Hiragino Sans GB.ttc", "STHeiti Light.ttc", "AppleSDGothicNeo.ttc", "Arial Unicode.ttf"),
    *("msyh.ttc", "YuGothM.ttc", "meiryo.ttc", "msgothic.ttc", "simsun.ttc", "malgun.ttf"),
)


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
