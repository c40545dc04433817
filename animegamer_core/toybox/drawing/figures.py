"""Draws figures: a jointed body in a pose, with the clothes, hair and face of the character's `Look`.

A figure is drawn in its own film's line, shading and eyes wherever it appears, in the light of the shot's film.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..world import CHARACTERS
from .films import STYLES
from .looks import DARK, LOOKS, WHITE, Look
from .pen import RGB, Pen, Point, mix
from .pictures import Part, colour_of, paint
from .props import draw_prop

BLUSH, MOUTH, TONGUE = (250, 150, 146), (150, 44, 62), (246, 124, 124)
THIGH, SHIN, TORSO, UPPER_ARM, FOREARM = 8.5, 8.5, 19.0, 10.0, 10.0
HIP_HEIGHT = THIGH + SHIN + 1.5
MOODS: dict[str, tuple[float, float, str]] = {  # (slant of the brows in degrees, how high they are, mouth)
    "happy": (-8, 0.6, "smile"),
    "glad": (-10, 1.0, "grin"),
    "calm": (-4, 0.0, "line"),
    "keen": (14, -0.4, "smirk"),
    "brave": (16, -0.6, "grin"),
    "shy": (-16, 0.4, "small"),
    "wow": (-8, 1.8, "round"),
}


@dataclass(frozen=True)
class Pose:
    """A figure's joint angles in degrees, and its face.

    Arms and legs are (upper, lower) angles, left and right as seen on screen: 0 hangs down, positive turns to the right
    of the screen. lean, tilt: of the body, and of the head relative to it. face: -1 (looks left) to 1 (looks right).
    eyes: "open", "closed" or "laugh". mouth: how far it is open, 0..1. mood: one of MOODS. hair: how far hair and scarf
    sway.
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
    mood: str = "happy"
    hair: float = 0.0


def own_pen(pen: Pen, name: str, legs: bool = True) -> Pen:
    """A pen for a character whose hips are at the pen's origin: in its line and size, its feet where the pen's are."""
    size = LOOKS[name].size
    pen = replace(pen, line=STYLES[CHARACTERS[name].film].line, cel=True)
    return pen.at(0, (1 - size) * HIP_HEIGHT if legs else 0, 0, size)


def draw_figure(pen: Pen, name: str, pose: Pose, *, scarf: RGB | None = None, legs: bool = True) -> None:
    """Draw a character whose hips are at the pen's origin. scarf: its colour, None for no scarf."""
    look = LOOKS[name]
    pen = own_pen(pen, name, legs)
    body = pen.at(0, 0, pose.lean)
    head = body.at(0, -TORSO - 1, pose.tilt).at(0, -11.5 * look.head_size, 0, look.head_size)
    if look.tail:
        paint({"": body.at(-5, -3, pose.hair * 0.7)}, look.picture(f"{look.tail} tail"), vars(look))
    _parts(head, look.picture(f"{look.style} back"), look, pose.hair)
    if look.clothes in ("coat", "cape"):
        _coat_tails(body, look, pose.hair)
    if legs:
        for x, angles in ((-4.2, pose.left_leg), (4.2, pose.right_leg)):
            _leg(pen.at(x, -1), look, angles)
    _torso(body, look)
    _head(head, name, look, pose)
    _parts(head, look.picture(f"{look.style} front"), look, pose.hair)
    if look.head != "box":
        _brows(head, look, pose)
    if scarf is not None:
        draw_prop(body.at(0, -TORSO + 2.2, 0, 0.88), "scarf", scarf, pose.hair)
    for x, angles in ((-7.5, pose.left_arm), (7.5, pose.right_arm)):
        _arm(body.at(x, -TORSO + 4), look, angles)


def hand(pen: Pen, pose: Pose, right: bool, name: str, legs: bool = True) -> Pen:
    """Return a pen at a hand, with its y axis along the forearm, in the scene's own line."""
    upper, lower = pose.right_arm if right else pose.left_arm
    body = own_pen(pen, name, legs).at(0, 0, pose.lean)
    shoulder = body.at(7.5 if right else -7.5, -TORSO + 4)
    found = shoulder.at(0, 0, -upper).at(0, UPPER_ARM, upper - lower).at(0, FOREARM)
    return replace(found, line=pen.line, cel=False)


def palm(pen: Pen, name: str, size: float = 3.2) -> None:
    """Draw a character's hand at the pen, over what it holds."""
    line = STYLES[CHARACTERS[name].film].line
    replace(pen, line=line, cel=True).oval(0, 0.6, size, size, LOOKS[name].skin)


def _parts(pen: Pen, parts: tuple[Part, ...], look: Look, sway: float) -> None:
    """Draw parts of hair, hats or faces; what hangs below the ears sways."""
    names = {**vars(look), "shine": shine(look)}
    for part in parts:
        fill, line = colour_of(part.colour, names), "plain" not in part.words
        for mirror in (1, -1) if "both" in part.words else (1,):
            if part.kind in ("oval", "ring"):
                x, y, rx, ry = part.points.ravel()
                if part.kind == "ring":
                    angles = np.linspace(0, 2 * np.pi, 17)
                    ring = np.stack([x + rx * np.cos(angles), y + ry * np.sin(angles)], axis=1) * (mirror, 1)
                    pen.stroke(ring, 0.9, fill, line=False)
                else:
                    pen.oval(x * mirror - _swing(sway, y), y, rx, ry, fill, line=line)
                continue
            moved = [(x * mirror - _swing(sway, y), y) for x, y in part.points]
            draw = pen.blob if part.kind == "blob" else pen.shape
            draw(moved, fill, line=line, cel=line and len(moved) < 11)


def _swing(sway: float, y: float) -> float:
    return sway * 0.007 * max(0.0, y - 2)


def shine(look: Look) -> RGB:
    """The colour of the light on a character's hair."""
    return mix(look.hair, WHITE, 0.42)


def _arm(pen: Pen, look: Look, angles: Point) -> None:
    upper = pen.at(0, 0, -angles[0])
    lower = upper.at(0, UPPER_ARM, angles[0] - angles[1])
    sleeve = {"fur": look.skin, "belly": look.skin, "cape": look.skin}.get(look.clothes, look.top)
    wide = 6.6 if look.clothes == "robe" else 4.9
    lower.oval(0, FOREARM, 3.1, 3.1, look.skin)
    lower.stroke([(0, 0), (0, FOREARM - 2.6)], wide, sleeve)
    upper.stroke([(0, 0), (0, UPPER_ARM)], 5.2, sleeve)
    lower.stroke([(0, -1), (0, 2)], wide - 1.2, sleeve, line=False, cel=False)
    if look.clothes in ("dress", "coat", "suit", "robe", "pants"):
        lower.stroke([(-wide / 2 + 0.6, FOREARM - 2.4), (wide / 2 - 0.6, FOREARM - 2.4)], 1.7, look.trim, line=False)
    elif look.clothes == "metal":
        upper.oval(0, UPPER_ARM, 2.5, 2.5, look.legs)


def _leg(pen: Pen, look: Look, angles: Point) -> None:
    upper = pen.at(0, 0, -angles[0])
    lower = upper.at(0, THIGH, angles[0] - angles[1])
    bare = look.clothes in ("fur", "cape", "belly")
    colour = look.skin if bare else look.legs
    upper.stroke([(0, 0), (0, THIGH)], 6.2, colour)
    lower.stroke([(0, 0), (0, SHIN - 1)], 5.4, colour)
    upper.stroke([(0, THIGH - 2), (0, THIGH)], 4.6, colour, line=False, cel=False)
    if look.clothes == "dress":
        lower.stroke([(-2, SHIN - 4), (2, SHIN - 4)], 1.8, WHITE, line=False)
    lower.blob(
        [(-3.6, SHIN - 3), (2.6, SHIN - 3), (5.4, SHIN + 0.6), (4.6, SHIN + 2.6), (-3.8, SHIN + 2.6)], look.shoes
    )


def _torso(pen: Pen, look: Look) -> None:
    wide, low = {"dress": (14, 6), "robe": (10.5, 10), "coat": (10.4, 8), "belly": (11, 3)}.get(
        look.clothes, (8.8, 2.4)
    )
    waist = 9.6 if look.clothes in ("belly", "metal", "fur") else 7.4
    pen.blob(
        [(-6, -TORSO), (6, -TORSO), (8.4, -TORSO + 6), (waist, -7), (wide, low), (0, low + 1.6), (-wide, low)]
        + [(-waist, -7), (-8.4, -TORSO + 6)],
        look.top if look.clothes != "cape" else look.skin,
    )
    paint({"": pen}, look.picture(look.clothes), vars(look))


def _coat_tails(pen: Pen, look: Look, sway: float) -> None:
    d = sway * 0.12
    bottom = 13 if look.clothes == "coat" else 15
    pen.blob([(-7, -TORSO + 3), (7, -TORSO + 3), (12, 4), (12 - d, bottom), (-d, bottom - 2)]
             + [(-12 - d, bottom), (-12, 4)],
             mix(look.top, DARK, 0.16))  # fmt: skip


def _head(pen: Pen, name: str, look: Look, pose: Pose) -> None:
    paint({"": pen}, look.picture(f"{look.head} head"), vars(look))
    shift = 3.2 * pose.face
    beast = look.clothes in ("fur", "cape", "belly")
    _parts(pen.at(shift * 0.7, 0), look.picture(look.face), look, 0)
    if look.head == "box":
        _screen_face(pen.at(shift * 0.6, 0), look, pose)
        return
    if look.blush:
        for side in (-1, 1):
            pen.oval(side * 9.4 + shift * 0.6, 6.4, 2.7, 1.7, mix(look.skin, BLUSH, 0.8), line=False)
            for dx in (-1, 0.6):
                x = side * 9.4 + shift * 0.6 + dx
                pen.stroke([(x + 0.5, 5.6), (x - 0.5, 7.2)], 0.45, (236, 110, 116), line=False)
    for side in (-1, 1):
        narrow = 1 - 0.22 * max(0.0, pose.face * side)
        _eye(pen.at(side * (5.9 - 0.3 * abs(pose.face)) + shift, 1.6), name, look, pose, side, narrow)
    if look.clothes == "belly":
        pen.shape([(shift - 3.4, 5.4), (shift + 3.4, 5.4), (shift * 1.3, 9.4 + 1.6 * pose.mouth)], (250, 160, 50))
        return
    if beast:
        pen.oval(shift * 1.2, 4.9, 1.9, 1.4, DARK, line=False)
    else:
        pen.oval(shift * 1.3 + 0.3, 5.2, 0.75, 0.5, mix(look.skin, (200, 96, 84), 0.55), line=False)
    _mouth(pen.at(shift * 1.1, 8.2), look, pose)
    _parts(pen.at(shift * 0.8, 0), look.picture(look.extras), look, pose.hair * 0.5)


def _mouth(pen: Pen, look: Look, pose: Pose) -> None:
    kind = MOODS[pose.mood][2]
    ink = mix(look.skin, (120, 40, 48), 0.85)
    opened = pose.mouth
    if opened > 0.12 or kind == "round":
        if kind == "grin":
            wide, deep = 3.4, 1.4 + 2.6 * opened
            low = deep * 0.75
            pen.blob([(-wide, -1), (0, -0.6), (wide, -1), (wide * 0.6, low), (0, deep), (-wide * 0.6, low)],
                     MOUTH, line=False)  # fmt: skip
            pen.oval(0, deep * 0.66, wide * 0.42, deep * 0.26, TONGUE, line=False)
            pen.stroke([(-wide * 0.7, -0.4), (wide * 0.7, -0.4)], 0.8, WHITE, line=False)
        else:
            opened = max(opened, 0.5)
            pen.oval(0, 0.4, 1.3 + 1.1 * opened, 0.8 + 2.1 * opened, MOUTH, line=False)
            pen.oval(0, 1.2 + 0.9 * opened, 0.7 + 0.6 * opened, 0.4 + 0.6 * opened, TONGUE, line=False)
        return
    curves = {
        "smile": [(-2.6, -0.6), (-1.2, 0.5), (0, 0.8), (1.2, 0.5), (2.6, -0.6)],
        "grin": [(-3.4, -0.8), (-1.6, 0.8), (0, 1.1), (1.6, 0.8), (3.4, -0.8)],
        "line": [(-1.8, 0), (0, 0.5), (1.8, 0)],
        "smirk": [(-2.2, 0.4), (0, 0.7), (2.8, -0.7)],
        "small": [(-1.2, 0.5), (0, 0), (1.2, 0.5)],
    }
    pen.stroke(curves[kind], 1.0, ink, line=False)


def _brows(pen: Pen, look: Look, pose: Pose) -> None:
    slant, high, _ = MOODS[pose.mood]
    colour = mix(look.hair, DARK, 0.45)
    for side in (-1, 1):
        brow = pen.at(side * 6.1 + 3.2 * pose.face, -4.5 - high, -side * slant)
        brow.stroke([(-2.4, 0.4), (0, -0.3), (2.4, 0.4)], 1.0, colour, line=False)


def _eye(pen: Pen, name: str, look: Look, pose: Pose, side: int, narrow: float) -> None:
    style = STYLES[CHARACTERS[name].film].eyes
    wide, high = style.wide * narrow, style.high
    dark = mix(mix(look.eyes, DARK, 0.72), (30, 20, 40), 0.3)
    if pose.eyes != "open":
        bend = 1.7 if pose.eyes == "closed" else -1.9
        arc = [
            (-3.2 * narrow, 0.4),
            (-1.6 * narrow, 0.4 + bend * 0.75),
            (0, 0.4 + bend),
            (1.6 * narrow, 0.4 + bend * 0.75),
        ]
        pen.stroke([*arc, (3.2 * narrow, 0.4)], 1.25, dark, line=False)
        if style.lash:
            pen.stroke([(side * 3.0 * narrow, 0.5), (side * (3.2 + style.lash * 0.6), -0.2)], 0.9, dark, line=False)
        return
    if style.white:
        if style.sharp:
            pen.shape([(-side * wide, -high * 0.4), (side * wide, -high), (side * wide * 0.9, high * 0.7), (0, high)]
                      + [(-side * wide * 0.85, high * 0.5)], WHITE, line=False)  # fmt: skip
        else:
            pen.oval(0, 0, wide, high, WHITE, line=False)
        pen.oval(pose.face * 0.6, 0.1, wide * 0.74, high * 0.9, dark, line=False)
        pen.oval(
            pose.face * 0.6, high * 0.24, wide * style.iris * 0.82, high * style.iris * 0.82, look.eyes, line=False
        )
    else:
        pen.oval(0, 0, wide, high, dark, line=False)
        pen.oval(0, high * 0.3, wide * style.iris, high * style.iris * 0.82, look.eyes, line=False)
    light = mix(look.eyes, WHITE, 0.5)
    pen.oval(pose.face * 0.5, high * 0.58, wide * style.iris * 0.62, high * 0.24, light, line=False)
    pen.oval(pose.face * 0.5, 0.1, wide * 0.3, high * 0.3, dark, line=False)
    pen.oval(-wide * 0.28 + pose.face * 0.4, -high * 0.42, wide * 0.38, high * 0.32, WHITE, line=False)
    pen.oval(wide * 0.34 + pose.face * 0.4, high * 0.36, wide * 0.19, high * 0.16, WHITE, line=False)
    if style.sharp:
        pen.stroke(
            [(-side * wide * 1.05, -high * 0.36), (0, -high * 0.92), (side * wide * 1.15, -high)], 1.4, dark, line=False
        )
    else:
        lid = [(-wide * 1.02, -high * 0.5), (-wide * 0.55, -high * 0.92), (0, -high), (wide * 0.55, -high * 0.92)]
        pen.stroke([*lid, (wide * 1.02, -high * 0.5)], 1.15, dark, line=False)
    if style.lash:
        tip = (side * (wide + style.lash * 0.75), -high * 0.75 - 0.4)
        pen.stroke([(side * wide * 0.95, -high * 0.6), tip], 1.0, dark,
                   line=False)  # fmt: skip


def _screen_face(pen: Pen, look: Look, pose: Pose) -> None:
    for side in (-1, 1):
        if pose.eyes == "open":
            pen.oval(side * 5, 0.4, 2.6, 3.2, look.eyes, line=False)
            pen.oval(side * 5 - 0.8, -0.8, 0.9, 1.1, WHITE, line=False)
        else:
            bend = 1.6 if pose.eyes == "closed" else -1.8
            pen.stroke(
                [(side * 5 - 2.8, 0.4), (side * 5, 0.4 + bend), (side * 5 + 2.8, 0.4)], 1.3, look.eyes, line=False
            )
    deep = 1.0 + 2.4 * pose.mouth
    if pose.mouth > 0.12:
        pen.blob([(-3, 5.6), (0, 6), (3, 5.6), (2, 5.6 + deep), (0, 6 + deep), (-2, 5.6 + deep)], look.eyes, line=False)
    else:
        pen.stroke([(-3, 5.8), (0, 7.2), (3, 5.8)], 1.2, look.eyes, line=False)
