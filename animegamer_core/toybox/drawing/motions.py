"""The twenty motions: one function each, in units of the frame, with the feet at y = 90.

A motion draws a pose that is recognisable by itself. `Beat` moves everything around that pose, scaled by the shot's
strength, so that the weakest motion can still be recognised and the strongest stays in the picture.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from .figures import HIP_HEIGHT, Pose, draw_figure, hand, palm
from .pen import BACKDROP, RGB, Pen
from .pictures import lines_of, paint, picture

GROUND = 90.0  # feet
HIP = GROUND - HIP_HEIGHT
WHITE, WOOD, ROPE = (255, 255, 255), (176, 118, 72), (224, 188, 122)
HEART, BLANKET, BLANKET_SPOT = (246, 92, 120), (146, 172, 228), (240, 240, 252)
STRAW, NOTE, WATER, FOAM, GOLD = (240, 200, 96), (108, 92, 186), (74, 172, 222), (222, 246, 253), (255, 214, 84)
# A number of a pose: 3+10w2@0.1-5s1 is 3 + wave(10, 2, 0.1) - step(5, 1).
TERM = re.compile(r"([+-]?[\d.]+)(?:([ws])(\d+)(?:@([\d.]+))?)?")
POSES = {
    name: dict(field.split("=") for field in fields.split())
    for name, fields in (line.split(": ") for line in lines_of("motions")["poses"])
}


@dataclass(frozen=True)
class Beat:
    """A moment of a shot. turn: the time, 0..1 over the shot. strength: how strongly the shot moves, 0..1.

    vary: three numbers, -1..1, that vary the pose; the same over a shot.
    """

    turn: float
    strength: float
    vary: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def wave(self, size: float, cycles: float, shift: float = 0.0) -> float:
        """Return a sine of time with `cycles` per shot; its amplitude is `size` at full strength. shift: in cycles."""
        return size * self.strength * math.sin(2 * math.pi * (cycles * self.turn + shift))

    def step(self, size: float, cycles: float, shift: float = 0.0) -> float:
        """Return 0 at time 0, rising to `size` (at full strength) and back, `cycles` times per shot."""
        return size * self.strength * (1 - math.cos(2 * math.pi * (cycles * self.turn + shift))) / 2

    def pose(self, name: str, **fields: Any) -> Pose:
        """A pose of motions.txt at this moment. fields: those that it leaves open."""
        for field, text in POSES[name].items():
            if field in ("eyes", "mood"):
                fields[field] = text
            else:
                angles = tuple(map(self._sum, text.split(",")))
                fields[field] = angles if len(angles) > 1 else angles[0]
        return Pose(**fields)

    def _sum(self, text: str) -> float:
        moves = {"w": self.wave, "s": self.step, "": lambda size, cycles, shift: size}
        terms = (term.groups("") for term in TERM.finditer(text))
        return sum(
            moves[kind](float(size), float(cycles or 0), float(shift or 0)) for size, kind, cycles, shift in terms
        )


@dataclass(frozen=True)
class Cast:
    """Who is in the shot: the main character, the second one if there is one, the colour of the main one's scarf."""

    main: str
    partner: str | None
    scarf: RGB | None

    def draw(self, pen: Pen, beat: Beat, pose: Pose, *, second: bool = False, legs: bool = True) -> Pose:
        """Draw one of them in a pose, varied by the beat, with the hips at the pen; returns the pose."""
        lean, tilt, arms = beat.vary if not second else (-beat.vary[1], beat.vary[2], beat.vary[0])
        pose = replace(
            pose,
            lean=pose.lean + 2.5 * lean,
            tilt=pose.tilt + 5 * tilt,
            left_arm=(pose.left_arm[0] + 4 * arms, pose.left_arm[1] + 6 * lean),
            right_arm=(pose.right_arm[0] - 4 * arms, pose.right_arm[1] + 6 * tilt),
        )
        scarf = None if second else self.scarf
        draw_figure(replace(pen, owner=BACKDROP + 1 + second), self._name(second), pose, scarf=scarf, legs=legs)
        return pose

    def palm(self, pen: Pen, pose: Pose, right: bool, *, second: bool = False, legs: bool = True) -> None:
        """Draw a hand once more, over what it holds. pen: as for `draw`."""
        pen = replace(pen, owner=BACKDROP + 1 + second)
        palm(hand(pen, pose, right, self._name(second), legs), self._name(second))

    def held(self, pen: Pen, pose: Pose, right: bool, *, second: bool = False, legs: bool = True) -> Pen:
        """Return a pen at a hand, for what it holds. pen: as for `draw`."""
        return hand(pen, pose, right, self._name(second), legs)

    def _name(self, second: bool) -> str:
        return self.partner if second else self.main


def shadow(pen: Pen, x: float, wide: float = 19.0) -> None:
    """Draw a figure's shadow on the ground at x. wide: its radius in units."""
    pen.shade(x, GROUND + 1.0, wide, 3.2, 80)


def _thing(pen: Pen, name: str) -> None:
    paint({"": pen}, picture("motions", name), {})


def _star(pen: Pen, size: float, colour: RGB) -> None:
    points = [
        (part * math.sin(math.pi * i / 5), -part * math.cos(math.pi * i / 5))
        for i in range(10)
        for part in (size if i % 2 == 0 else size * 0.42,)
    ]
    pen.shape(points, colour)


def _sleep(pen: Pen, cast: Cast, beat: Beat) -> None:
    breath = beat.step(10, 2)
    _thing(pen, "bed")
    pose = beat.pose("sleep")
    cast.draw(pen.at(70, 78 + beat.wave(2.4, 2), -86), beat, pose, legs=False)
    top = 62 - breath
    pen.blob(
        [(55, 73), (60, top + 3), (78, top), (100, top + 4 + breath / 2), (118, 68), (129, 76), (129, 92), (60, 92)]
        + [(54, 84)],
        BLANKET,
    )
    pen.blob([(55, 73), (60, top + 3), (70, top + 1), (66, 78), (66, 91), (58, 91), (54, 84)], WHITE, line=False)
    for x, y, r in ((78, 74, 4.4), (95, 80, 5), (112, 76, 4.4), (82, 87, 3.6), (104, 69, 3)):
        pen.oval(x, y - breath * 0.5, r, r * 0.9, BLANKET_SPOT, line=False)
    size = 5 + beat.wave(3.5, 2)
    for x, y, part in ((52, 40, 1.0), (60, 27, 0.7)):
        bubble = pen.at(x + size * 0.5, y - size, 0, part)
        half = size * 0.6
        bubble.stroke([(-half, -half), (half, -half), (-half, half), (half, half)], 2.0, (120, 140, 214))


def _eat(pen: Pen, cast: Cast, beat: Beat) -> None:
    lift = beat.step(1, 2)
    pose = beat.pose("eat")
    actor = pen.at(72, 77 + beat.wave(3, 2))
    cast.draw(actor, beat, pose, legs=False)
    _thing(pen, "table")
    for x, shift in ((62, 0.0), (80, 0.4)):
        pen.oval(x + beat.wave(3, 2, shift), 61 + beat.wave(2, 2, shift), 2.2, 4.2, (252, 252, 252), line=False)
    _thing(pen, "bowl")
    for strand in (-3.2, 0, 3.2):
        actor.stroke([(strand * 0.5, -22 + 8 * lift), (strand, -13), (strand * 1.3, -7)], 1.8, (255, 226, 140))
    for tip in (-24, -20.5):
        actor.stroke([(13 + 5 * lift + 3, -17 + 10 * lift + 2), (-5, tip + 9 * lift)], 1.4, (150, 84, 50))


def _talk(pen: Pen, cast: Cast, beat: Beat) -> None:
    for x, side, shift in ((44, 1, 0.0), (102, -1, 0.35)):
        shadow(pen, x, 16)
        speaks = side == 1
        pose = beat.pose(f"talk {side}", mouth=0.55 + 0.4 * math.sin(6.3 * (2 * beat.turn + shift)) if speaks else 0.0)
        cast.draw(pen.at(x, HIP + 1.5 + beat.wave(3, 2, shift)), beat, pose, second=not speaks)
    bubble = pen.at(76, 13 + beat.wave(3, 2), beat.wave(6, 2), 1 + beat.wave(0.16, 2))
    _thing(bubble, "bubble")
    for x in (-8, 0, 8):
        bubble.oval(x, beat.wave(2.5, 2, x / 40), 2.2, 2.2, (96, 104, 140), line=False)


def _hug(pen: Pen, cast: Cast, beat: Beat) -> None:
    shadow(pen, 72, 26)
    for x, side in ((89, -1), (55, 1)):
        pose = beat.pose(f"hug {side}")
        cast.draw(pen.at(x, HIP + 1 + beat.wave(3, 2, 0.1 * side)), beat, pose, second=side < 0)
    for x, y, size, shift in ((72, 10, 0.9, 0.0), (86, 17, 0.45, 0.3), (60, 19, 0.4, 0.6)):
        heart = pen.at(x, y + beat.wave(3, 2, shift), beat.wave(10, 2, shift), size + beat.wave(0.2, 2, shift))
        _thing(heart, "heart")


def _fly(pen: Pen, cast: Cast, beat: Beat) -> None:
    pen.shade(72, GROUND + 1, 22, 2.8, 60)
    broom = pen.at(72 + beat.wave(4, 1), 63 + beat.wave(7, 2), -9 + beat.wave(9, 2, 0.2))
    broom.stroke([(-30, 4), (46, 0)], 3.0, WOOD)
    flick = beat.wave(5, 2)
    broom.blob([(-24, 0), (-34, -5), (-52, -7 + flick), (-50, 3), (-53, 14 + flick), (-34, 10), (-24, 7)], STRAW)
    for y in (-3, 3, 8):
        broom.stroke([(-30, 3 + y * 0.3), (-48, y + flick * 0.8)], 0.9, (196, 142, 60), line=False)
    broom.stroke([(-27, -1), (-27, 8)], 2.6, (206, 90, 70))
    pose = beat.pose("fly")
    actor = broom.at(-4, -2)
    cast.draw(actor, beat, pose)
    broom.stroke([(20, 1.4), (46, 0)], 3.0, WOOD)


def _run(pen: Pen, cast: Cast, beat: Beat) -> None:
    swap = 0.5 + beat.wave(0.5, 2) if beat.strength > 0.2 else beat.step(1, 2)
    shadow(pen, 70, 20)
    for x, y, r, shift in ((34, 86, 5.5, 0.0), (24, 81, 4.2, 0.3), (44, 89, 4, 0.6)):
        pen.oval(x + beat.wave(5, 2, shift), y + beat.wave(2, 2, shift), r, r * 0.85, (246, 240, 230))
    pose = beat.pose(
        "run",
        left_arm=(-72 + 110 * swap, -24 + 100 * swap),
        right_arm=(72 - 110 * swap, 146 - 130 * swap),
        left_leg=(-48 + 100 * swap, -98 + 104 * swap),
        right_leg=(62 - 104 * swap, 8 - 90 * swap),
    )
    cast.draw(pen.at(72, HIP - 1 - beat.step(6, 2)), beat, pose)


def _dance(pen: Pen, cast: Cast, beat: Beat) -> None:
    shadow(pen, 71, 17)
    pose = beat.pose("dance", eyes="laugh" if beat.vary[0] > 0.2 else "open")
    cast.draw(pen.at(70 + beat.wave(5, 1), HIP - beat.step(7, 2)), beat, pose)
    for x, y, shift in ((114, 30, 0.0), (24, 44, 0.4)):
        _star(pen.at(x + beat.wave(4, 1, shift), y + beat.wave(6, 2, shift), beat.wave(24, 2, shift)), 7, GOLD)
        _star(pen.at(x + 10, y + 16 + beat.wave(5, 2, shift + 0.3)), 3.6, (255, 246, 200))


def _wave(pen: Pen, cast: Cast, beat: Beat) -> None:
    shadow(pen, 72)
    pose = beat.pose("wave", eyes="laugh" if beat.vary[1] > 0.5 else "open")
    actor = pen.at(68, HIP - beat.step(5, 2))
    pose = cast.draw(actor, beat, pose)
    cast.palm(actor, pose, True)
    held = cast.held(actor, pose, True)
    for reach in (9, 13):
        arc = [(-reach * math.sin(a), 1 + reach * math.cos(a)) for a in (0.2, 0.5, 0.8, 1.1)]
        held.stroke(arc, 1.6, (255, 250, 224))


def _read(pen: Pen, cast: Cast, beat: Beat) -> None:
    shadow(pen, 72, 27)
    _thing(pen, "cushion")
    sway = beat.wave(7, 2)
    pose = beat.pose("read")
    actor = pen.at(72, 79 + beat.wave(3.5, 2))
    pose = cast.draw(actor, beat, pose)
    book = actor.at(0, -1 + beat.wave(3, 2), sway * 2)
    _thing(book, "book")
    page = 13 * math.cos(math.pi * (0.22 + beat.step(0.56, 2)))
    book.blob([(0, -7.5), (page * 0.7, -13), (page, -12), (page, 2), (page * 0.7, 1.5), (0, 7)], (255, 253, 246))
    for right in (False, True):
        cast.palm(actor, pose, right)


def _swing(pen: Pen, cast: Cast, beat: Beat) -> None:
    shadow(pen, 72 + beat.wave(6, 1), 22)
    pen.stroke([(20, 2), (124, 2)], 5, WOOD)
    pen.stroke([(22, 1), (122, 1)], 1.2, (214, 160, 106), line=False)
    pose = beat.pose("swing")
    seat = pen.at(72, -26, -5 + beat.wave(17, 1)).at(0, 97)
    for side in (-1, 1):
        seat.stroke([(side * 19, 1), (side * 19, -72)], 2.4, ROPE)
    actor = seat.at(0, -3)
    cast.draw(actor, beat, pose)
    seat.blob([(-23, -2), (23, -2), (23, 3), (-23, 3)], (206, 120, 76))


def _climb(pen: Pen, cast: Cast, beat: Beat) -> None:
    _thing(pen, "ladder")
    pose = beat.pose("climb")
    cast.draw(pen.at(72, 66 - beat.wave(10, 2)), beat, pose)


def _swim(pen: Pen, cast: Cast, beat: Beat) -> None:
    _water(pen, 66, beat, 0.0, (58, 150, 208))
    pose = beat.pose("swim")
    body = pen.at(71 + beat.wave(5, 1), 73 + beat.wave(5, 2))
    body.oval(0, -4, 24, 8, (250, 250, 246))
    cast.draw(body, beat, pose, legs=False)
    _thing(body, "ring")
    _water(pen, 80, beat, 0.45, WATER)
    for x, y, shift in ((36, 74, 0.1), (108, 72, 0.6), (118, 79, 0.3)):
        drop = pen.at(x, y - beat.step(8, 2) + beat.wave(3, 2, shift))
        drop.blob([(0, -6), (3.4, 0), (0, 3.4), (-3.4, 0)], FOAM)


def _water(pen: Pen, y: float, beat: Beat, shift: float, colour: RGB) -> None:
    slide = 24 * shift + beat.wave(10, 1, shift)
    crest = [(x, y + 2.2 * math.sin((x + slide) / 6.0) + beat.wave(3, 2, x / 96)) for x in range(-60, 210, 4)]
    pen.shape([*crest, (210, 130), (-60, 130)], colour, line=False)
    pen.stroke(crest, 1.8, FOAM, line=False)
    for x in range(-50, 200, 34):
        pen.stroke(
            [(x + slide, y + 7), (x + 5 + slide, y + 8), (x + 10 + slide, y + 7)], 0.9, (150, 212, 240), line=False
        )


def _paint(pen: Pen, cast: Cast, beat: Beat) -> None:
    shadow(pen, 56, 18)
    _thing(pen, "easel")
    pose = beat.pose("paint")
    actor = pen.at(52 + beat.wave(3, 2), HIP - beat.step(4, 2))
    pose = cast.draw(actor, beat, pose)
    _thing(cast.held(actor, pose, True), "brush")
    cast.palm(actor, pose, True)
    _thing(cast.held(actor, pose, False), "pallet")


def _sing(pen: Pen, cast: Cast, beat: Beat) -> None:
    shadow(pen, 72)
    pose = beat.pose(
        "sing", mouth=0.85 + 0.15 * math.sin(12.6 * beat.turn), eyes="closed" if beat.vary[2] > 0 else "open"
    )
    actor = pen.at(72, HIP - beat.step(4, 2))
    pose = cast.draw(actor, beat, pose)
    _thing(cast.held(actor, pose, True).at(0, 0, -10), "mike")
    cast.palm(actor, pose, True)
    for x, y, shift in ((116, 32, 0.0), (24, 34, 0.4), (104, 14, 0.7)):
        _thing(pen.at(x + beat.wave(4, 1, shift), y + beat.wave(6, 2, shift), beat.wave(16, 2, shift), 0.85), "note")


def _jump(pen: Pen, cast: Cast, beat: Beat) -> None:
    up = beat.step(1, 2)
    shadow(pen, 72, 19 - 5 * up)
    angle = 2 * math.pi * (2 * beat.turn) if beat.strength > 0.25 else beat.wave(2.4, 2)
    low = math.cos(angle)  # 1: the rope is under the feet, -1: over the head
    actor = pen.at(72, HIP - 3 - 13 * up)
    pose = beat.pose("jump")
    high = 36 * low if low > 0 else 52 * low
    arc = [math.pi * part / 14 for part in range(15)]
    loop = [(-(25 + 9 * math.sin(t)) * math.cos(t), -9 + high * max(0.0, math.sin(t)) ** 0.8) for t in arc]
    behind = math.sin(angle) < 0
    if behind:
        actor.stroke(loop, 1.9, (250, 120, 110))
    cast.draw(actor, beat, pose)
    if not behind:
        actor.stroke(loop, 1.9, (250, 120, 110))
    for right in (False, True):
        cast.held(actor, pose, right).stroke([(0, -3), (0, 5)], 2.6, WOOD)
        cast.palm(actor, pose, right)


def _waltz(pen: Pen, cast: Cast, beat: Beat) -> None:
    shadow(pen, 72, 30)
    turn = beat.wave(9, 1)
    for x, side in ((95 + turn * 0.6, -1), (48 + turn, 1)):
        pose = beat.pose(f"waltz {side}")
        cast.draw(pen.at(x, HIP - beat.step(5, 2)), beat, pose, second=side < 0)
    for x, y, shift in ((16, 26, 0.0), (128, 30, 0.3), (72, 8, 0.6), (24, 62, 0.5), (122, 66, 0.8)):
        petal = pen.at(x + beat.wave(6, 1, shift), y + beat.wave(7, 2, shift), 40 + beat.wave(50, 1, shift))
        petal.blob([(0, -4), (3, 0), (0, 4), (-3, 0)], (255, 158, 190))


def _clap(pen: Pen, cast: Cast, beat: Beat) -> None:
    apart = beat.step(1, 2)
    shadow(pen, 72, 34)
    for x, side in ((101, -1), (43, 1)):
        reach = 104 - 40 * apart
        arm, rest = (side * reach, side * (126 - 36 * apart)), (-side * 24, -side * 6)
        pose = beat.pose(
            f"clap {side}",
            eyes="laugh" if beat.vary[0] * side > 0.4 else "open",
            left_arm=arm if side < 0 else (arm[0] - 40, arm[1] - 60) if beat.vary[1] > 0 else rest,
            right_arm=arm if side > 0 else (arm[0] + 40, arm[1] + 60) if beat.vary[1] > 0 else rest,
        )
        cast.draw(pen.at(x - side * 5 * apart, HIP - 2 + beat.wave(4, 2, 0.2)), beat, pose, second=side < 0)
    burst = pen.at(72, 36)
    size = 1 - 0.5 * apart
    for angle in range(0, 360, 45):
        ray = burst.at(0, 0, angle)
        ray.stroke([(0, -6 * size), (0, -11 * size)], 1.4, GOLD)


def _cards(pen: Pen, cast: Cast, beat: Beat) -> None:
    for x, side, shift in ((36, 1, 0.0), (108, -1, 0.5)):
        pose = beat.pose(f"cards {side}", mood="keen" if (side > 0) == (beat.vary[0] > 0) else "glad")
        actor = pen.at(x, 77 + beat.wave(3, 2, shift))
        pose = cast.draw(actor, beat, pose, second=side < 0, legs=False)
        fan = cast.held(actor, pose, side > 0, second=side < 0, legs=False)
        fan = fan.at(0, 0, -side * 90)
        for angle in (-24, 0, 24):
            card = fan.at(0, 2, angle)
            card.blob([(-3.6, -13), (3.6, -13), (3.6, -2), (-3.6, -2)], (214, 70, 92) if angle else (66, 108, 206))
            card.shape([(0, -10), (1.8, -7.5), (0, -5), (-1.8, -7.5)], WHITE, line=False)
        cast.palm(actor, pose, side > 0, second=side < 0, legs=False)
    _thing(pen, "card table")
    for x, y, angle, colour in ((64, 80, -14, WHITE), (80, 80.6, 20, WHITE), (72, 78.6, 4, (66, 108, 206))):
        card = pen.at(x + beat.wave(2, 2, x / 20), y, angle)
        card.shape([(-5, -2.2), (5, -2.2), (6, 2.2), (-6, 2.2)], colour)
    _thing(pen.at(72 + beat.wave(24, 1), 62 - beat.step(12, 2), beat.wave(120, 1)), "card")


def _pillows(pen: Pen, cast: Cast, beat: Beat) -> None:
    shadow(pen, 72, 36)
    for x, side, shift in ((102, -1, 0.5), (42, 1, 0.0)):
        blow = beat.step(1, 2, shift)
        up, lower = side * (150 - 70 * blow), side * (190 - 104 * blow)
        pose = beat.pose(
            f"pillows {side}",
            lean=side * (-8 + 18 * blow),
            eyes="laugh" if side * beat.vary[2] > 0.3 else "open",
            left_arm=(up, lower) if side < 0 else (-40, 20),
            right_arm=(up, lower) if side > 0 else (40, -20),
        )
        actor = pen.at(x + side * 5 * blow, HIP - beat.step(4, 2, shift))
        pose = cast.draw(actor, beat, pose, second=side < 0)
        pillow = cast.held(actor, pose, side > 0, second=side < 0)
        colour = (250, 250, 255) if side > 0 else (255, 214, 222)
        pillow.blob([(-8, 0), (0, 1.6), (8, 0), (7.4, 9), (9, 20), (0, 18), (-9, 20), (-7.4, 9)], colour)
        pillow.stroke([(-4, 5), (0, 6), (4, 5)], 0.9, (196, 196, 222), line=False)
        cast.palm(actor, pose, side > 0, second=side < 0)
    for x, y, shift in ((60, 12, 0.0), (84, 16, 0.35), (72, 28, 0.7), (100, 8, 0.5), (44, 6, 0.2)):
        feather = pen.at(x + beat.wave(8, 1, shift), y + beat.wave(8, 2, shift), 30 + beat.wave(60, 1, shift))
        feather.blob([(0, -5), (2, 0), (0, 5), (-2, 0)], WHITE)


def _carry(pen: Pen, cast: Cast, beat: Beat) -> None:
    shadow(pen, 70, 24)
    base = pen.at(76 + beat.wave(4, 2), HIP - beat.step(5, 2))
    rider = beat.pose("carry rider", eyes="laugh" if beat.vary[0] > 0 else "open")
    cast.draw(base.at(-19, -19 + beat.wave(2, 2), 0), beat, rider, second=True)
    bearer = beat.pose("carry bearer")
    cast.draw(base, beat, bearer)


MOTION_DRAWINGS: dict[str, Callable[[Pen, Cast, Beat], None]] = {
    "sleep": _sleep, "eat": _eat, "talk": _talk, "hug": _hug, "fly": _fly, "run": _run, "dance": _dance, "wave": _wave,
    "read": _read, "swing": _swing, "climb": _climb, "swim": _swim, "paint": _paint, "sing": _sing, "jump": _jump,
    "waltz": _waltz, "clap": _clap, "cards": _cards, "pillows": _pillows, "carry": _carry,
}  # fmt: skip
