"""The characters' looks, read from looks.json: colours, clothes and hair."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...json_files import read_json
from .pen import RGB

SKIN = (255, 224, 196)
WHITE = (255, 255, 255)


@dataclass(frozen=True)
class Look:
    """A character's colours, clothes and hair; the shapes (see shapes.py) may use the colours by their names.

    back, front: shapes behind and in front of a head at (0, 0); they and the tail sway with the hair. face: on the
    face, moved by the direction in which it looks. clothes: on the trunk, whose hips are at (0, 0). tail: behind it.
    """

    hair: RGB
    eyes: RGB
    top: RGB
    trim: RGB
    legs: RGB
    shoes: RGB
    back: tuple[str, ...]
    front: tuple[str, ...]
    skin: RGB = SKIN
    sleeves: RGB | None = None
    skirt: bool = False
    clothes: tuple[str, ...] = ()
    face: tuple[str, ...] = ()
    tail: tuple[str, ...] = ()


LOOKS: dict[str, Look] = read_json(Path(__file__).with_name("looks.json"), dict[str, Look])
