"""The motions that need room: one function each, in frame coordinates with the feet at y = 90."""

from __future__ import annotations

import math
from collections.abc import Callable

from .figures import SHIN, Pose, draw_figure
from .pen import RGB, Pen
from .props import draw_thing
from .stage import GROUND, HIP, Beat, Characters, limb, shadow

WOOD, WATER, FOAM = (170, 116, 70), (74, 172, 222), (214, 242, 252)


def _fly(pen: Pen, characters: Characters, beat: Beat) -> None:
    pen.shade(72, GROUND + 1, 22, 2.8, 60)
    broom = pen.at(72 + beat.wave(4, 1), 71 + beat.wave(6, 2), -9 + beat.wave(9, 2, 0.2))
    draw_thing(broom, "broom", beat.wave(4, 4))
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
    shadow(pen, 70, 20)
    for x, y, r, shift in ((34, 86, 5.5, 0.0), (24, 81, 4.2, 0.3), (44, 89, 4, 0.6)):
        pen.oval(x + beat.wave(5, 2, shift), y + beat.wave(2, 2, shift), r, r * 0.85, (246, 240, 230))
    draw_figure(pen.at(72, HIP - 1 - beat.step(6, 4)), characters.main, _running(beat), scarf=characters.scarf)


def _running(beat: Beat) -> Pose:
    swap = beat.step(1, 2)
    return Pose(
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


def _race(pen: Pen, characters: Characters, beat: Beat) -> None:
    draw_thing(pen, "track")
    ahead = beat.wave(6, 1)
    for x, name, scarf, shift in (
        (36 - ahead, characters.partner, None, 0.25),
        (90 + ahead, characters.main, characters.scarf, 0.0),
    ):
        pen.oval(x, GROUND + 1, 16, 3, (158, 92, 70), line=False)
        own = Beat(beat.turn + shift, beat.strength)
        draw_figure(pen.at(x, HIP + 1 - own.step(4, 4), 0, 0.88), name, _running(own), scarf=scarf)


def _jump(pen: Pen, characters: Characters, beat: Beat) -> None:
    down = beat.step(1, 2)
    draw_thing(pen, "trampoline")
    pen.oval(72, 84 + 2 * down, 40, 5 + 1.5 * down, (58, 66, 96))
    pose = Pose(
        tilt=beat.wave(8, 2),
        mouth=1,
        left_arm=(-128 + 40 * down, -150 + 30 * down),
        right_arm=(128 - 40 * down, 150 - 30 * down),
        left_leg=(-58 + 30 * down, -30 + 20 * down),
        right_leg=(58 - 30 * down, 30 - 20 * down),
        hair=beat.wave(20, 2, 0.25),
    )
    draw_figure(pen.at(72, 58 + 10 * down, 0, 0.86), characters.main, pose, scarf=characters.scarf)


def _ride(pen: Pen, characters: Characters, beat: Beat) -> None:
    turned = 360 * beat.turn * min(1.0, 2 * beat.strength)
    bike = pen.at(0, beat.wave(2, 2))
    shadow(pen, 72, 44)
    for x in (42, 103):
        draw_thing(bike.at(x, 77, 15 + turned), "wheel")
    draw_thing(bike, "bicycle")
    x, y = 59, 58 + beat.wave(1.5, 4)
    angle = math.radians(2 * turned)
    down, aside = 4 * math.sin(angle), 5 * math.cos(angle)
    pose = Pose(
        lean=14 + beat.wave(4, 2),
        tilt=-10 + beat.wave(6, 2),
        face=1,
        mouth=0.5,
        left_arm=(40, 66),
        right_arm=(52, 74),
        left_leg=limb((69 - aside - x) / 0.86 + 4.2, (71 - down - y) / 0.86 + 1, SHIN, 1),
        right_leg=limb((69 + aside - x) / 0.86 - 4.2, (71 + down - y) / 0.86 + 1, SHIN, 1),
        hair=12 + beat.wave(20, 2),
    )
    draw_figure(bike.at(x, y, 0, 0.86), characters.main, pose, scarf=characters.scarf)


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
        draw_thing(pen.at(x + beat.wave(4, 1, shift), y + beat.wave(5, 2, shift), beat.wave(16, 2, shift)), "note")


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
    draw_figure(pen.at(72, 75 - beat.wave(9, 2)), characters.main, pose, scarf=characters.scarf)


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
    draw_thing(body, "ring")
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
    "race": _race,
    "jump": _jump,
    "ride": _ride,
}
