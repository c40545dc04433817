"""The motions that stay in place: one function each, in frame coordinates with the feet at y = 90."""

from __future__ import annotations

import math
from collections.abc import Callable

from .figures import Pose, draw_figure, hand
from .looks import LOOKS, WHITE
from .pen import Pen
from .stage import HIP, Beat, Characters, shadow

HEART, BLANKET, BLANKET_SPOT = (246, 92, 120), (150, 176, 226), (240, 240, 252)


def _sleep(pen: Pen, characters: Characters, beat: Beat) -> None:
    breath = beat.step(9, 2)
    pen.blob([(16, 82), (24, 78), (120, 78), (130, 82), (128, 93), (18, 93)], (246, 238, 226))
    pen.blob([(16, 72), (24, 64), (42, 62), (50, 70), (48, 82), (20, 83)], WHITE)
    pose = Pose(tilt=58 + beat.wave(16, 2), eyes="closed", mouth=0.2 + breath / 12, hair=beat.wave(14, 2))
    draw_figure(pen.at(70, 78 + beat.wave(2, 2), -86), characters.main, pose, scarf=characters.scarf, legs=False)
    top = 62 - breath
    pen.blob(
        [
            (55, 73),
            (60, top + 3),
            (78, top),
            (100, top + 4 + breath / 2),
            (118, 68),
            (128, 76),
            (128, 92),
            (60, 92),
            (54, 84),
        ],
        BLANKET,
    )
    for x, y, r in ((72, 73, 5), (92, 80, 5.5), (110, 76, 5), (75, 86, 4)):
        pen.oval(x, y - breath * 0.5, r, r * 0.9, BLANKET_SPOT, line=False)
    size = 6 + beat.wave(4, 2)
    pen.oval(50 + size * 0.7, 40 - size, size, size, (214, 238, 252))
    pen.oval(48 + size * 0.7, 37 - size, size * 0.3, size * 0.3, WHITE, line=False)


def _eat(pen: Pen, characters: Characters, beat: Beat) -> None:
    lift = beat.step(1, 2)
    pose = Pose(
        lean=beat.wave(6, 2),
        tilt=beat.wave(8, 2, 0.1),
        left_arm=(-14, 38),
        right_arm=(62, 208 - 60 * lift),
        mouth=0.9 - 0.5 * lift,
        hair=beat.wave(16, 2),
    )
    actor = pen.at(72, 77 + beat.wave(3, 2))
    draw_figure(actor, characters.main, pose, scarf=characters.scarf, legs=False)
    pen.blob([(26, 79), (72, 76.5), (118, 79), (118, 86), (72, 87), (26, 86)], (206, 142, 92))
    for x in (36.0, 108.0):
        pen.shape([(x - 4, 86), (x + 4, 86), (x + 3, 96), (x - 3, 96)], (178, 116, 74))
    for x, shift in ((62, 0.0), (80, 0.4)):
        pen.oval(x + beat.wave(3, 2, shift), 61 + beat.wave(2, 2, shift), 3, 4.5, (250, 250, 250), line=False)
    pen.blob([(56, 69), (72, 66), (88, 69), (84, 79), (78, 83), (66, 83), (60, 79)], (232, 108, 60))
    pen.oval(72, 69.5, 15.5, 3.6, (255, 226, 140))
    pen.shape([(58.5, 75), (85.5, 75), (84, 78.5), (60, 78.5)], (255, 244, 226), line=False)
    x, y = 13 + 5 * lift, -17 + 10 * lift
    for strand in (-3.2, 0, 3.2):
        actor.stroke([(strand * 0.5, -22 + 8 * lift), (strand, -13), (strand * 1.3, -7)], 2.2, (255, 226, 140))
    for tip in (-24, -20.5):
        actor.stroke([(x + 3, y + 2), (-5, tip + 9 * lift)], 1.7, (150, 84, 50))


def _talk(pen: Pen, characters: Characters, beat: Beat) -> None:
    for x, name, side, shift, scarf in (
        (44, characters.main, 1, 0.0, characters.scarf),
        (102, characters.partner, -1, 0.35, None),
    ):
        shadow(pen, x, 16)
        pose = Pose(
            lean=side * 2 + beat.wave(8, 2, shift),
            tilt=beat.wave(12, 2, shift),
            face=side,
            mouth=0.7 + 0.3 * math.sin(6.3 * (2 * beat.turn + shift)) * beat.strength if side == 1 else 0.0,
            left_arm=(side * 40 + beat.wave(34, 2, shift), side * 76 + beat.wave(46, 2, shift))
            if side == 1
            else (-44 + beat.wave(30, 2, shift), -70 + beat.wave(30, 2, shift)),
            right_arm=(50 + beat.wave(30, 2, shift), 84 + beat.wave(40, 2, shift)) if side == 1 else (16, 10),
            hair=beat.wave(18, 2, shift),
        )
        draw_figure(pen.at(x, HIP + 1.5 + beat.wave(3, 4, shift), 0, 0.92), name, pose, scarf=scarf)
    bubble = pen.at(74, 15 + beat.wave(3, 2), beat.wave(6, 2), 1 + beat.wave(0.16, 2))
    bubble.shape([(-10, 5), (-17, 16), (-1, 9)], WHITE)
    bubble.oval(0, 0, 19, 10.5, WHITE)
    bubble.shape([(-10, 4), (-14.5, 12.5), (-2, 8)], WHITE, line=False)
    for x in (-9, 0, 9):
        bubble.oval(x, beat.wave(2.5, 4, x / 40), 2.6, 2.6, (96, 104, 140), line=False)


def _hug(pen: Pen, characters: Characters, beat: Beat) -> None:
    rock = beat.wave(9, 2)
    shadow(pen, 72, 26)
    for x, name, side, scarf in ((90, characters.partner, -1, None), (54, characters.main, 1, characters.scarf)):
        pose = Pose(
            lean=side * 9 + rock,
            tilt=side * 7 + beat.wave(8, 2, 0.1),
            face=side,
            eyes="closed",
            hair=beat.wave(18, 2),
            left_arm=(side * 64 + rock, side * 92 + beat.wave(14, 4)),
            right_arm=(side * 58 - rock, side * 80 + beat.wave(14, 4, 0.3)),
        )
        draw_figure(pen.at(x, HIP + 1 + beat.wave(3.5, 4, 0.1 * side), 0, 0.94), name, pose, scarf=scarf)
    heart = pen.at(72, 14 + beat.wave(3, 2), beat.wave(10, 2), 1 + beat.wave(0.25, 4))
    heart.blob([(0, -3), (5, -8), (11, -5), (9, 3), (0, 11), (-9, 3), (-11, -5), (-5, -8)], HEART)


def _wave(pen: Pen, characters: Characters, beat: Beat) -> None:
    shadow(pen, 72)
    pose = Pose(
        lean=-2 + beat.wave(6, 2),
        tilt=6 + beat.wave(9, 2),
        mouth=0.8,
        left_arm=(-52, 34),
        right_arm=(116 + beat.wave(10, 2), 148 + beat.wave(34, 2)),
        hair=beat.wave(22, 2),
    )
    actor = pen.at(68, HIP - beat.step(5, 4))
    draw_figure(actor, characters.main, pose, scarf=characters.scarf)
    palm = hand(actor, pose, True)
    palm.oval(0, 2, 4.6, 5, LOOKS[characters.main].skin)
    for reach in (11, 16):
        arc = [(-reach * math.sin(a), 1 + reach * math.cos(a)) for a in (0.2, 0.5, 0.8, 1.1)]
        palm.stroke(arc, 2.2, (255, 250, 224))


def _read(pen: Pen, characters: Characters, beat: Beat) -> None:
    shadow(pen, 72, 27)
    pen.blob([(46, 85), (54, 80), (90, 80), (98, 85), (96, 92), (48, 92)], (226, 150, 150))
    sway = beat.wave(6, 2)
    pose = Pose(
        lean=sway,
        tilt=beat.wave(12, 2),
        mouth=0.0,
        left_arm=(-26, 34),
        right_arm=(26, -34),
        left_leg=(-62, 28),
        right_leg=(62, -28),
        hair=beat.wave(16, 2),
    )
    actor = pen.at(72, 80 + beat.wave(3.5, 4))
    draw_figure(actor, characters.main, pose, scarf=characters.scarf)
    book = actor.at(0, -3 + beat.wave(3, 2), sway * 2)
    book.blob([(-21, -10), (0, -7), (21, -10), (21, 7), (0, 10), (-21, 7)], (66, 130, 140))
    for side in (-1, 1):
        book.blob(
            [(0, -7.5), (side * 10, -11.5), (side * 19, -10), (side * 19, 4), (side * 9, 3.5), (0, 7)], (255, 250, 236)
        )
        for y in (-5.5, -1.5):
            book.stroke([(side * 5, y - 0.5), (side * 15, y - 2)], 1.7, (206, 196, 190), line=False)
    page = 13 * math.cos(math.pi * (0.22 + beat.step(0.56, 2)))
    book.blob([(0, -7.5), (page * 0.7, -13), (page, -12), (page, 2), (page * 0.7, 1.5), (0, 7)], (255, 253, 246))
    for right in (False, True):
        hand(actor, pose, right).oval(0, 1.5, 3, 3, LOOKS[characters.main].skin)


QUIET_MOTIONS: dict[str, Callable[[Pen, Characters, Beat], None]] = {
    "sleep": _sleep,
    "eat": _eat,
    "talk": _talk,
    "hug": _hug,
    "wave": _wave,
    "read": _read,
}
