"""The six characters' looks: colours, clothes, and hair that is drawn behind and in front of a head at (0, 0)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .pen import RGB, Pen, points

SKIN = (255, 224, 196)
WHITE = (255, 255, 255)


@dataclass(frozen=True)
class Look:
    """A character's colours, clothes and hair.

    back, front: draw what is behind and in front of a head at (0, 0), given the pen, the look and the hair's sway.
    """

    hair: RGB
    eyes: RGB
    top: RGB
    trim: RGB
    legs: RGB
    shoes: RGB
    skirt: bool
    back: Callable[[Pen, Look, float], None]
    front: Callable[[Pen, Look, float], None]
    skin: RGB = SKIN
    tail: bool = False


def _long_back(pen: Pen, look: Look, sway: float) -> None:
    d = sway * 0.22
    pen.blob(
        [
            (-16, -4),
            (-17, 10),
            (-18 - d, 26),
            (-12 - d, 36),
            (-d, 33),
            (12 - d, 36),
            (18 - d, 26),
            (17, 10),
            (16, -4),
            (0, -17),
        ],
        look.hair,
    )


def _swept_front(pen: Pen, look: Look, sway: float) -> None:
    pen.blob(
        points("-15.6,4 -16,-7 -8,-16 4,-17 14,-11 16,4 12.4,-1 8,-6 0,-5 -7,-4 -12,0"),
        look.hair,
    )
    for side in (-1, 1):
        pen.at(9, -15, 20).blob([(0, 0), (side * 8, -6), (side * 10, 0), (side * 8, 5)], (255, 248, 232))
    pen.oval(9, -15, 2.6, 2.6, (255, 236, 190))


def _spiky_back(pen: Pen, look: Look, sway: float) -> None:
    pen.shape(
        points("-13,8 -20,5 -16,-1 -22,-8 -15,-11 -17,-20 -7,-17 -2,-25 5,-18 14,-22 14,-12 22,-9 16,-1 20,5 13,8"),
        look.hair,
    )


def _spiky_front(pen: Pen, look: Look, sway: float) -> None:
    pen.shape(
        points("-15,2 -16,-9 -8,-17 8,-17 16,-9 15,2 12,-5 8,0 4,-6 -1,-1 -5,-6 -9,0 -12,-5"),
        look.hair,
        line=False,
    )


def _bun_back(pen: Pen, look: Look, sway: float) -> None:
    for side in (-1, 1):
        pen.oval(side * 15.5, -11 + side * sway * 0.05, 8.6, 8.6, look.hair)
        pen.oval(side * 11.2, -7, 2.6, 4.4, look.trim, line=False)
    pen.blob([(-16, -4), (-16.5, 8), (-11, 13), (11, 13), (16.5, 8), (16, -4), (0, -17)], look.hair)


def _bun_front(pen: Pen, look: Look, sway: float) -> None:
    pen.blob(
        points("-15.4,6 -16,-6 -9,-15.5 0,-17 9,-15.5 16,-6 15.4,6 12,3 11.6,-3.5 0,-4.4 -11.6,-3.5 -12,3"),
        look.hair,
    )


def _cap_back(pen: Pen, look: Look, sway: float) -> None:
    pen.blob([(-15, -4), (-16.5, 4), (-12, 9), (12, 9), (16.5, 4), (15, -4), (0, -16)], look.hair)


def _cap_front(pen: Pen, look: Look, sway: float) -> None:
    pen.blob(
        [(-15.4, 3), (-15, -8), (0, -14), (15, -8), (15.4, 3), (11, -3), (6, -1.6), (0, -4), (-6, -1.6), (-11, -3)],
        look.hair,
    )
    pen.blob([(-17, -12), (-19, -19), (-10, -25), (10, -25), (19, -19), (17, -12), (0, -14)], (250, 250, 246))
    pen.blob([(-16, -7.5), (-17, -13), (0, -15.5), (17, -13), (16, -7.5), (0, -10)], look.top)
    pen.oval(0, -12.2, 2.6, 2.6, (250, 214, 92), line=False)


def _bob_back(pen: Pen, look: Look, sway: float) -> None:
    pen.blob(
        [
            (-16, -4),
            (-19, 6),
            (-17 - sway * 0.08, 15),
            (-8, 14),
            (8, 14),
            (17 - sway * 0.08, 15),
            (19, 6),
            (16, -4),
            (0, -15),
        ],
        look.hair,
    )


def _hat_front(pen: Pen, look: Look, sway: float) -> None:
    pen.blob(
        [(-15.6, 7), (-16, -6), (0, -14), (16, -6), (15.6, 7), (12, 2), (9, -3), (3, 0), (-3, -3.5), (-9, 0), (-12, 3)],
        look.hair,
    )
    pen.blob([(-12, -10), (-8, -21), (-1, -29), (11, -33), (8, -26), (10, -19), (12.5, -10)], look.top)
    pen.blob([(-11.5, -10), (-10, -15), (0, -16.5), (10.6, -15), (12, -10), (0, -11)], look.trim, line=False)
    pen.blob([(-23, -6), (-14, -11), (0, -12.6), (14, -11), (23, -6), (10, -7.4), (-10, -7.4)], look.top)


def _ear_back(pen: Pen, look: Look, sway: float) -> None:
    for side in (-1, 1):
        pen.shape([(side * 3, -11), (side * 14, -27), (side * 15.5, -4)], look.hair)
        pen.shape([(side * 8, -12), (side * 13, -22), (side * 13.2, -8)], (255, 214, 190), line=False)


def _ear_front(pen: Pen, look: Look, sway: float) -> None:
    pen.blob([(-7, -12), (0, -16), (7, -12), (3, -6), (0, -9), (-3, -6)], (255, 246, 232), line=False)


LOOKS: dict[str, Look] = {
    "Miko": Look(
        (206, 92, 48),
        (64, 132, 84),
        (246, 132, 124),
        (255, 236, 206),
        SKIN,
        (150, 74, 62),
        True,
        _long_back,
        _swept_front,
    ),
    "Taro": Look(
        (58, 48, 60),
        (96, 66, 44),
        (226, 132, 74),
        (255, 244, 214),
        (84, 108, 150),
        (104, 66, 54),
        False,
        _spiky_back,
        _spiky_front,
    ),
    "Yuzu": Look(
        (70, 184, 194),
        (52, 96, 180),
        (150, 194, 236),
        (48, 76, 142),
        SKIN,
        (48, 60, 110),
        True,
        _bun_back,
        _bun_front,
    ),
    "Nori": Look(
        (244, 206, 108),
        (44, 120, 150),
        (52, 72, 132),
        (250, 250, 246),
        (226, 222, 210),
        (92, 62, 60),
        False,
        _cap_back,
        _cap_front,
    ),
    "Beni": Look(
        (246, 142, 180),
        (150, 70, 160),
        (92, 62, 136),
        (250, 196, 92),
        (70, 56, 96),
        (64, 46, 76),
        True,
        _bob_back,
        _hat_front,
    ),
    "Pico": Look(
        (240, 138, 52),
        (70, 48, 40),
        (100, 122, 164),
        (250, 220, 150),
        (100, 122, 164),
        (120, 78, 58),
        False,
        _ear_back,
        _ear_front,
        (244, 148, 62),
        True,
    ),
}
