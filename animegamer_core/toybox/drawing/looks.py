"""The twenty characters' looks, which looks.txt states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .pen import RGB
from .pictures import Part, colour_of, lines_of, picture

WHITE, CREAM, DARK = (255, 255, 255), (255, 244, 226), (48, 40, 56)


@dataclass(frozen=True)
class Look:
    """A character's colours, clothes, hair and build.

    clothes: dress, pants, coat, robe, suit, fur, belly, metal or cape. style: of the hair; its picture has parts behind
    the head and in front of it. head: the shape of the head, round, long or box. size, head_size: of the figure and of
    its head. face, extras: names of pictures on the face, and in front of it (glasses, a beard).
    """

    hair: RGB
    eyes: RGB
    top: RGB
    trim: RGB
    legs: RGB
    shoes: RGB
    skin: RGB
    clothes: str
    style: str
    size: float = 1.0
    head_size: float = 1.0
    head: str = "round"
    tail: str = ""
    face: str = ""
    extras: str = ""
    blush: bool = True

    def picture(self, name: str) -> tuple[Part, ...]:
        """A picture of looks.txt; "" has no shapes."""
        return picture("looks", name) if name else ()


def _look(text: str) -> Look:
    values: dict[str, Any] = dict(word.split("=") for word in text.split())
    for name, value in values.items():
        if "," in value:
            values[name] = colour_of(value, {})
        elif name in ("size", "head_size"):
            values[name] = float(value)
        elif name == "blush":
            values[name] = value != "no"
    return Look(**values)


LOOKS = {name: _look(text) for name, text in (line.split(": ") for line in lines_of("looks")["looks"])}
