"""Draws figures: a jointed body in a pose, with the clothes and hair of the character's `Look`."""

from __future__ import annotations

from dataclasses import dataclass

from .looks import LOOKS, WHITE, Look
from .pen import RGB, Pen, Point, mix
from .props import draw_scarf
from .shapes import draw_shapes

DARK, BLUSH = (52, 40, 58), (250, 164, 158)
THIGH, SHIN, TORSO, UPPER_ARM, FOREARM = 8.5, 8.5, 19.0, 10.0, 10.0
HIP_HEIGHT = THIGH + SHIN + 1.5


@dataclass(frozen=True)
class Pose:
    """A figure's joint angles in degrees, and its face.

    Arms and legs are (upper, lower) angles, left and right as seen on screen: 0 hangs down, positive turns to the right
    of the screen. lean, tilt: of the body, and of the head relative to it. face: -1 (looks left) to 1 (looks right).
    eyes: "open" or "closed". mouth: how far it is open, 0..1. hair: how far hair and scarf sway.
    """

    lean: float = 0.0
    tilt: float = 0.0
    left_arm: Point = (-18.0, -8.0)
    right_arm: Point = (18.0, 8.0)
    left_leg: Point = (-3.0, 0.0)
    right_leg: Point = (3.0, 0.0)
    face: float = 0.0
    eyes: str = "open"
    mouth: float = 0.0
    hair: float = 0.0


def draw_figure(pen: Pen, name: str, pose: Pose, *, scarf: RGB | None = None, legs: bool = True) -> None:
    """Draw a character whose hips are at the pen's origin. scarf: its colour, None for no scarf."""
    look = LOOKS[name]
    body = pen.at(0, 0, pose.lean)
    head = body.at(0, -TORSO - 1, pose.tilt).at(0, -11.5)
    colours = vars(look)
    draw_shapes(body.at(-5, -3, pose.hair * 0.7), look.tail, colours)
    draw_shapes(head, look.back, colours, pose.hair)
    if legs:
        for x, angles in ((-4.2, pose.left_leg), (4.2, pose.right_leg)):
            _leg(pen.at(x, -1), look, angles)
    _torso(body, look)
    _head(head, look, pose)
    draw_shapes(head, look.front, colours, pose.hair)
    if scarf is not None:
        draw_scarf(body.at(0, -TORSO + 0.5), scarf, pose.hair)
    for x, angles in ((-7.5, pose.left_arm), (7.5, pose.right_arm)):
        _arm(body.at(x, -TORSO + 4), look, angles)


def hand(pen: Pen, pose: Pose, right: bool) -> Pen:
    """Return a pen at a hand, with its y axis along the forearm."""
    upper, lower = pose.right_arm if right else pose.left_arm
    shoulder = pen.at(0, 0, pose.lean).at(7.5 if right else -7.5, -TORSO + 4)
    return shoulder.at(0, 0, -upper).at(0, UPPER_ARM, upper - lower).at(0, FOREARM)


def _arm(pen: Pen, look: Look, angles: Point) -> None:
    upper = pen.at(0, 0, -angles[0])
    lower = upper.at(0, UPPER_ARM, angles[0] - angles[1])
    sleeves = look.sleeves or look.top
    lower.oval(0, FOREARM, 2.9, 2.9, look.skin)
    upper.stroke([(0, 0), (0, UPPER_ARM)], 5.2, sleeves)
    lower.stroke([(0, 0), (0, FOREARM - 2.5)], 5.0, sleeves)
    upper.stroke([(0, 0.5), (0, UPPER_ARM)], 4.0, sleeves, line=False)


def _leg(pen: Pen, look: Look, angles: Point) -> None:
    upper = pen.at(0, 0, -angles[0])
    lower = upper.at(0, THIGH, angles[0] - angles[1])
    upper.stroke([(0, 0), (0, THIGH)], 6.0, look.legs)
    lower.stroke([(0, 0), (0, SHIN - 1)], 5.4, look.legs)
    lower.oval(0.3, SHIN, 4.4, 3.0, look.shoes)


def _torso(pen: Pen, look: Look) -> None:
    wide, low = (13.5, 5.5) if look.skirt else (8.6, 2.0)
    pen.blob(
        [
            (-6, -TORSO),
            (6, -TORSO),
            (8.4, -TORSO + 6),
            (8, -7),
            (wide, low),
            (0, low + 1.5),
            (-wide, low),
            (-8, -7),
            (-8.4, -TORSO + 6),
        ],
        look.top,
    )
    if look.skirt:
        pen.blob([(-8.2, -9), (0, -7.6), (8.2, -9), (8.4, -5.8), (0, -4.4), (-8.4, -5.8)], look.trim, line=False)
    else:
        pen.blob([(-8, -3), (8, -3), (8.6, 2), (0, 3.4), (-8.6, 2)], look.legs, line=False)
    pen.blob(
        [(-6, -TORSO + 1), (6, -TORSO + 1), (3.6, -TORSO + 6), (0, -TORSO + 8), (-3.6, -TORSO + 6)],
        look.trim,
        line=False,
    )
    draw_shapes(pen, look.clothes, vars(look))


def _head(pen: Pen, look: Look, pose: Pose) -> None:
    pen.blob(
        [(-13.6, -3), (-8, -12.5), (8, -12.5), (13.6, -3), (12.4, 6), (6, 11.4), (0, 12.4), (-6, 11.4), (-12.4, 6)],
        look.skin,
    )
    shift = 3.2 * pose.face
    draw_shapes(pen, look.face, vars(look), pose.face)
    for side in (-1, 1):
        pen.oval(side * 9.2 + shift * 0.6, 6.4, 2.8, 1.8, BLUSH, line=False)
        _eye(pen.at(side * 5.7 + shift, 1.8), look, pose)
    if pose.mouth > 0.1:
        pen.oval(shift * 1.1, 8.2, 1.6 + 1.2 * pose.mouth, 0.8 + 2.2 * pose.mouth, (196, 74, 82), line=False)
    else:
        pen.stroke(
            [(shift - 2, 7.8), (shift, 8.8), (shift + 2, 7.8)], 1.1, mix(look.skin, (150, 60, 60), 0.75), line=False
        )


def _eye(pen: Pen, look: Look, pose: Pose) -> None:
    if pose.eyes == "closed":
        pen.stroke([(-2.8, 0), (0, 1.7), (2.8, 0)], 1.5, DARK, line=False)
        return
    pen.oval(0, 0, 2.9, 4.1, DARK, line=False)
    pen.oval(0, 1.1, 2.1, 2.6, look.eyes, line=False)
    pen.oval(-0.8, -1.7, 1.2, 1.4, WHITE, line=False)
