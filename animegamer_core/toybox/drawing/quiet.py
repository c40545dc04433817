"""The motions that stay in place: one function each, in frame coordinates with the feet at y = 90."""

from __future__ import annotations

import math
from collections.abc import Callable

from .figures import Pose, draw_figure, hand
from .looks import LOOKS, WHITE
from .pen import Pen
from .props import draw_thing
from .stage import HIP, Beat, Characters, arm, shadow

ARC = (255, 250, 224)


def _sleep(pen: Pen, characters: Characters, beat: Beat) -> None:
    breath = beat.step(9, 2)
    draw_thing(pen, "bed")
    pose = Pose(tilt=58 + beat.wave(16, 2), eyes="closed", mouth=0.2 + breath / 12, hair=beat.wave(14, 2))
    draw_figure(pen.at(70, 78 + beat.wave(2, 2), -86), characters.main, pose, scarf=characters.scarf, legs=False)
    draw_thing(pen, "blanket", breath)
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
    draw_thing(pen, "table")
    for x, shift in ((62.0, 0.0), (80.0, 0.4)):
        pen.oval(x + beat.wave(3, 2, shift), 61 + beat.wave(2, 2, shift), 3, 4.5, (250, 250, 250), line=False)
    draw_thing(pen, "bowl")
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
    draw_thing(bubble, "bubble")
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
    draw_thing(heart, "heart")


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
        palm.stroke(arc, 2.2, ARC)


def _read(pen: Pen, characters: Characters, beat: Beat) -> None:
    shadow(pen, 72, 27)
    draw_thing(pen, "cushion")
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
    draw_thing(book, "book")
    page = 13 * math.cos(math.pi * (0.22 + beat.step(0.56, 2)))
    book.blob([(0, -7.5), (page * 0.7, -13), (page, -12), (page, 2), (page * 0.7, 1.5), (0, 7)], (255, 253, 246))
    _hands(actor, characters, pose)


def _hands(actor: Pen, characters: Characters, pose: Pose) -> None:
    """Draw the main character's hands again, in front of what they hold."""
    for right in (False, True):
        hand(actor, pose, right).oval(0, 1.5, 3, 3, LOOKS[characters.main].skin)


def _ball(pen: Pen, characters: Characters, beat: Beat) -> None:
    across = math.sin(2 * math.pi * beat.turn) * min(1.0, 1.4 * beat.strength)
    x, y = 69 + 10 * across, 22 + 26 * across**2
    for stand, name, side, scarf in ((38, characters.main, 1, characters.scarf), (100, characters.partner, -1, None)):
        shadow(pen, stand, 16)
        hips = HIP + 1.5 - beat.step(4, 2)
        outer = (-side * 64, -side * 104 - 24 * across)
        left, right = (outer, arm(side, (x - stand) / 0.92, (y - hips) / 0.92))[::side]
        pose = Pose(
            lean=-4 * across,
            tilt=-6 * side + 8 * across,
            face=side,
            mouth=0.8,
            left_arm=left,
            right_arm=right,
            hair=beat.wave(18, 2, 0.1),
        )
        draw_figure(pen.at(stand, hips, 0, 0.92), name, pose, scarf=scarf)
    draw_thing(pen.at(x, y, 20 + 120 * across), "ball")


def _shake(pen: Pen, characters: Characters, beat: Beat) -> None:
    x, y, hips = 66, 61 + beat.wave(6, 2), HIP + 1.5 + beat.wave(2, 2, 0.3)
    for stand, name, side, scarf in ((92, characters.partner, -1, None), (40, characters.main, 1, characters.scarf)):
        shadow(pen, stand, 16)
        left, right = ((-side * 44, side * 28), arm(side, (x - stand) / 0.92, (y - hips) / 0.92))[::side]
        tilt = side * (6 + beat.wave(9, 2))
        pose = Pose(tilt=tilt, face=side, mouth=0.5, left_arm=left, right_arm=right, hair=beat.wave(16, 2))
        draw_figure(pen.at(stand, hips, 0, 0.92), name, pose, scarf=scarf)
        pen.oval(x - 2 * side, y, 4.2, 3.8, LOOKS[name].skin)
    for reach in (-15, -10, 10, 15):
        edge = y + reach * 0.88
        pen.stroke([(x - 5, edge), (x, y + reach), (x + 5, edge)], 2.2, ARC)


def _guitar(pen: Pen, characters: Characters, beat: Beat) -> None:
    shadow(pen, 72)
    strum = beat.wave(5, 2)
    pose = Pose(
        lean=4 + beat.wave(7, 1),
        tilt=-8 + beat.wave(10, 2),
        face=-0.4,
        mouth=0.7,
        left_arm=arm(-1, -22, -17),
        right_arm=arm(1, 9, -5 + strum),
        left_leg=(-8, -2),
        right_leg=(12, 6),
        hair=beat.wave(20, 2),
    )
    actor = pen.at(74, HIP - beat.step(3, 2))
    draw_figure(actor, characters.main, pose, scarf=characters.scarf)
    draw_thing(actor.at(0, 0, pose.lean).at(2, -7, 20), "guitar")
    _hands(actor, characters, pose)


def _paint(pen: Pen, characters: Characters, beat: Beat) -> None:
    draw_thing(pen.at(3, 0), "easel")
    shadow(pen, 91)
    x, y = 65 + beat.wave(4, 1), 46 + beat.wave(7, 2)
    actor = pen.at(91, HIP)
    pose = Pose(
        lean=-5 + beat.wave(4, 1),
        tilt=4 + beat.wave(8, 2),
        face=-1,
        left_arm=arm(-1, x - 91, y - HIP),
        right_arm=(34, -30),
        hair=beat.wave(16, 2),
    )
    draw_figure(actor, characters.main, pose, scarf=characters.scarf)
    draw_thing(hand(actor, pose, True).at(0, 2), "palette")
    grip = hand(actor, pose, False).at(0, 1)
    grip.stroke([(3, -3), (-6, 12)], 2.4, (140, 92, 58))
    grip.oval(-7.5, 14.5, 2.6, 3.4, (240, 90, 90))
    grip.oval(0, 0, 3.2, 3.2, LOOKS[characters.main].skin)


def _drink(pen: Pen, characters: Characters, beat: Beat) -> None:
    shadow(pen, 76, 27)
    lift = beat.step(8, 2)
    draw_thing(pen.at(32, 90, beat.wave(3, 2)), "teapot")
    draw_thing(pen.at(4, 0), "cushion")
    pose = Pose(
        lean=beat.wave(5, 1),
        tilt=-beat.step(8, 2),
        left_arm=arm(-1, -7, -7 - lift),
        right_arm=arm(1, 7, -7 - lift),
        left_leg=(-62, 28),
        right_leg=(62, -28),
        hair=beat.wave(16, 2),
    )
    actor = pen.at(76, 80)
    draw_figure(actor, characters.main, pose, scarf=characters.scarf)
    draw_thing(actor.at(0, 0, pose.lean).at(0, -9 - lift), "cup")
    _hands(actor, characters, pose)


QUIET_MOTIONS: dict[str, Callable[[Pen, Characters, Beat], None]] = {
    "sleep": _sleep,
    "eat": _eat,
    "talk": _talk,
    "hug": _hug,
    "wave": _wave,
    "read": _read,
    "ball": _ball,
    "shake": _shake,
    "guitar": _guitar,
    "paint": _paint,
    "drink": _drink,
}
