"""The motions that need room: one function each, in frame coordinates with the feet at y = 90."""

from __future__ import annotations

import math
from collections.abc import Callable

from .figures import Pose, draw_figure
from .pen import RGB, Pen
from .stage import GROUND, HIP, Beat, Characters, shadow

WOOD, STRAW, NOTE = (170, 116, 70), (240, 200, 96), (98, 84, 168)
WATER, FOAM = (74, 172, 222), (214, 242, 252)


def _fly(pen: Pen, characters: Characters, beat: Beat) -> None:
    pen.shade(72, GROUND + 1, 22, 2.8, 60)
    broom = pen.at(72 + beat.wave(4, 1), 63 + beat.wave(6, 2), -9 + beat.wave(9, 2, 0.2))
    broom.stroke([(-30, 4), (46, 0)], 3.4, WOOD)
    flick = beat.wave(4, 4)
    broom.blob([(-24, 0), (-34, -5), (-52, -7 + flick), (-50, 3), (-53, 14 + flick), (-34, 10), (-24, 7)], STRAW)
    broom.stroke([(-27, -1), (-27, 8)], 3.0, (206, 90, 70))
    pose = Pose(
        lean=8 + beat.wave(7, 2),
        tilt=-4 + beat.wave(7, 2, 0.15),
        face=1,
        left_arm=(34, 62),
        right_arm=(44, 66),
        left_leg=(62 + beat.wave(20, 2), -14 + beat.wave(34, 2)),
        right_leg=(70, -6 + beat.wave(34, 2, 0.4)),
        hair=12 + beat.wave(26, 2),
    )
    draw_figure(broom.at(-4, -2), characters.main, pose, scarf=characters.scarf)
    broom.stroke([(22, 1.3), (46, 0)], 3.4, WOOD)


def _run(pen: Pen, characters: Characters, beat: Beat) -> None:
    swap = beat.step(1, 2)
    shadow(pen, 70, 20)
    for x, y, r, shift in ((34, 86, 5.5, 0.0), (24, 81, 4.2, 0.3), (44, 89, 4, 0.6)):
        pen.oval(x + beat.wave(5, 2, shift), y + beat.wave(2, 2, shift), r, r * 0.85, (246, 240, 230))
    pose = Pose(
        lean=15 + beat.wave(4, 4),
        tilt=-8 + beat.wave(6, 4),
        face=1,
        mouth=0.4,
        hair=14 + beat.wave(24, 4),
        left_arm=(-72 + 110 * swap, -24 + 100 * swap),
        right_arm=(72 - 110 * swap, 146 - 130 * swap),
        left_leg=(-48 + 100 * swap, -98 + 104 * swap),
        right_leg=(62 - 104 * swap, 8 - 90 * swap),
    )
    draw_figure(pen.at(72, HIP - 1 - beat.step(6, 4)), characters.main, pose, scarf=characters.scarf)


def _dance(pen: Pen, characters: Characters, beat: Beat) -> None:
    shadow(pen, 71, 17)
    sway = beat.wave(14, 2)
    pose = Pose(
        lean=-5 + sway,
        tilt=9 - 1.2 * sway,
        mouth=0.7,
        hair=beat.wave(34, 2),
        left_arm=(-128 + beat.wave(34, 2), -164 + beat.wave(50, 2)),
        right_arm=(98 + beat.wave(40, 2), 74 + beat.wave(60, 2)),
        left_leg=(-4 - sway * 0.5, -2),
        right_leg=(58 + beat.wave(30, 2), 12 + beat.wave(40, 2)),
    )
    draw_figure(pen.at(70 + beat.wave(4, 1), HIP - beat.step(7, 4)), characters.main, pose, scarf=characters.scarf)
    for x, y, shift in ((112, 30, 0.0), (26, 44, 0.4)):
        _note(pen.at(x + beat.wave(4, 1, shift), y + beat.wave(5, 2, shift), beat.wave(16, 2, shift)))


def _note(pen: Pen) -> None:
    pen.stroke([(4, 8), (4, -8)], 2.2, NOTE)
    pen.blob([(3, -9), (9, -7), (13, -2), (11, 1), (8, -3), (4, -4)], NOTE)
    pen.oval(0, 8.5, 5, 4, NOTE)


def _swing(pen: Pen, characters: Characters, beat: Beat) -> None:
    shadow(pen, 72 + beat.wave(6, 1), 22)
    pen.stroke([(22, 3), (122, 3)], 5.5, WOOD)
    pose = Pose(
        lean=-6 + beat.wave(8, 1),
        tilt=4 + beat.wave(8, 1, 0.1),
        face=0.4,
        mouth=0.6,
        left_arm=(-124, -166),
        right_arm=(124, 166),
        left_leg=(58 + beat.wave(28, 1), 30 + beat.wave(52, 1)),
        right_leg=(68 + beat.wave(28, 1), 44 + beat.wave(52, 1)),
        hair=beat.wave(30, 1, 0.4),
    )
    seat = pen.at(72, -26, -5 + beat.wave(15, 1)).at(0, 97)
    for side in (-1, 1):
        seat.stroke([(side * 19, 1), (side * 19, -72)], 2.8, (222, 186, 120))
    draw_figure(seat.at(0, -3), characters.main, pose, scarf=characters.scarf)
    seat.blob([(-23, -2), (23, -2), (23, 3), (-23, 3)], (206, 120, 76))


def _climb(pen: Pen, characters: Characters, beat: Beat) -> None:
    rise = beat.step(1, 2)
    for y in range(-6, 104, 13):
        pen.stroke([(56, y), (88, y)], 3.6, (226, 170, 100))
    for x in (54, 90):
        pen.stroke([(x, -8), (x, 106)], 5, (206, 146, 84))
    pose = Pose(
        lean=beat.wave(7, 2),
        tilt=-8 + beat.wave(10, 2),
        face=0.3,
        mouth=0.3,
        left_arm=(-128 + 60 * rise, -166 + 44 * rise),
        right_arm=(76 + 52 * rise, 142 + 24 * rise),
        left_leg=(-24 - 46 * rise, 6 + 14 * rise),
        right_leg=(70 - 46 * rise, -16 + 14 * rise),
        hair=beat.wave(22, 2),
    )
    draw_figure(pen.at(72, 66 - beat.wave(9, 2)), characters.main, pose, scarf=characters.scarf)


def _swim(pen: Pen, characters: Characters, beat: Beat) -> None:
    _water(pen, 66, beat, 0.0, (58, 150, 208))
    stroke = beat.step(1, 2)
    pose = Pose(
        lean=12 + beat.wave(9, 2),
        tilt=-8 + beat.wave(9, 2),
        face=1,
        mouth=0.6,
        left_arm=(-96 + 60 * stroke, -70 + 40 * stroke),
        right_arm=(112 - 60 * stroke, 84 - 30 * stroke),
        hair=beat.wave(24, 2),
    )
    body = pen.at(71 + beat.wave(4, 1), 73 + beat.wave(5, 2))
    body.oval(0, -4, 24, 8, (250, 250, 246))
    draw_figure(body, characters.main, pose, scarf=characters.scarf, legs=False)
    ring = [(-24, -4), (-18, 1.5), (0, 4), (18, 1.5), (24, -4), (23, 3), (14, 9.5), (0, 11), (-14, 9.5), (-23, 3)]
    body.blob(ring, (250, 250, 246))
    for x in (-16, 0, 16):
        body.blob(
            [
                (x - 4, 2.5 - abs(x) * 0.07),
                (x + 4, 2.5 - abs(x) * 0.07),
                (x * 0.92 + 4, 10 - abs(x) * 0.1),
                (x * 0.92 - 4, 10 - abs(x) * 0.1),
            ],
            (244, 138, 70),
            line=False,
        )
    _water(pen, 80, beat, 0.45, WATER)
    for x, y, shift in ((36, 74, 0.1), (108, 72, 0.6), (118, 79, 0.3)):
        pen.oval(x, y - beat.step(8, 2) + beat.wave(3, 2, shift), 4, 4.4, FOAM)


def _water(pen: Pen, y: float, beat: Beat, shift: float, colour: RGB) -> None:
    slide = 24 * shift + beat.wave(10, 1, shift)
    crest = [(x, y + 2.2 * math.sin((x + slide) / 6.0) + beat.wave(3, 2, x / 96)) for x in range(-8, 160, 6)]
    pen.shape([*crest, (160, 110), (-8, 110)], colour, line=False)
    pen.stroke(crest, 2.2, FOAM, line=False)


LIVELY_MOTIONS: dict[str, Callable[[Pen, Characters, Beat], None]] = {
    "fly": _fly,
    "run": _run,
    "dance": _dance,
    "swing": _swing,
    "climb": _climb,
    "swim": _swim,
}
