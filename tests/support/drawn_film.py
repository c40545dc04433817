"""Draws films like cheap television anime, with their truth: outlined figures over painted backgrounds, at 24 frames/s.

Figures are drawn on ones, twos or threes and held; the camera moves on ones. Positions are in pixels of a picture.
"""

from __future__ import annotations

import colorsys
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import cv2
import numpy as np
from numpy.typing import NDArray

HEIGHT, WIDTH, FPS = 270, 480, 24.0
INK = (38, 28, 40)
Picture = NDArray[np.uint8]  # (HEIGHT, WIDTH, 3)

ACTIONS = "talk, walk, pose, smear, run, slow pan, quick pan, shake, zoom, pass, turn, hold, cycle".split(", ")
CHANGES = ("cut",) * 8 + ("reverse",) * 7 + ("closer",) * 3 + ("dissolve",) * 3 + ("wipe",) * 4 + ("whip pan",) * 3
LASTING = {"dissolve": (12, 30), "wipe": (10, 26), "whip pan": (5, 9)}  # frames of a change
IMPACTS = ("white", "inverted", "coloured", "ink", "glare")


@dataclass(frozen=True)
class Span:
    """A change of shot or a flash: its first frame, and the first one after it; for a cut both are the next shot's."""

    kind: str
    first: int
    end: int


@dataclass(frozen=True)
class Pose:
    """A figure's drawing: arms, elbows are angles; mouth is how far it opens; turn, where the face looks."""

    x: float = 0.0
    lean: float = 0.0
    arms: tuple[float, float] = (0.3, 0.3)
    elbows: tuple[float, float] = (0.2, 0.2)
    mouth: float = 0.0
    turn: float = 0.0
    blink: bool = False
    stretch: float = 1.0


@dataclass(frozen=True)
class Shot:
    """One shot; `picture` draws its frames. step: for how many frames a drawing is held.

    eye: the middle of what the camera sees of the background; size: of the figures' heads, standing at `spots`.
    """

    frames: int
    action: str
    step: int
    place: Picture = field(repr=False)
    eye: tuple[float, float]
    scale: float
    spots: tuple[float, ...]
    size: float
    looks: tuple[int, int]
    seed: int
    impacts: tuple[tuple[str, int, int], ...] = ()

    def picture(self, frame: int) -> Picture:
        """Frame number `frame` of the shot, with its impact frames."""
        drawn = self._drawn(frame)
        for kind, first, frames in self.impacts:
            if first <= frame < first + frames:
                return impact(kind, drawn, (frame - first) / frames, self.seed)
        return drawn

    def _drawn(self, frame: int) -> Picture:
        drawing, rng = frame // self.step, random.Random(self.seed)
        (x, y), scale, at = self.eye, self.scale, frame / self.frames
        way = rng.choice((-1, 1))
        if self.action in ("slow pan", "quick pan"):
            speed = rng.uniform(1, 4) if self.action == "slow pan" else rng.uniform(14, 40)
            x += way * speed * np.clip(frame - 10, 0, 300 / speed if self.action == "quick pan" else 999)
        elif self.action == "run":
            x += way * rng.uniform(18, 45) * drawing * self.step
        elif self.action == "zoom":
            scale *= 1 + rng.uniform(0.5, 1.2) * float(np.clip((frame - 12) / rng.randint(5, 24), 0, 1))
        elif self.action == "shake":
            jolt = random.Random(self.seed * 999 + frame // rng.choice((1, 2)))
            power = rng.uniform(12, 34) * max(0.0, 1 - abs(at - 0.5) * 3)
            x, y = x + power * jolt.uniform(-1, 1), y + power * jolt.uniform(-1, 1)
        canvas = seen(self.place, x, y, scale)
        zoom = scale / self.scale
        left, up = (0.0 if self.action == "run" else (x - self.eye[0]) * scale), (y - self.eye[1]) * scale
        for number, (spot, look) in enumerate(zip(self.spots, self.looks, strict=False)):
            pose = self._pose(number, drawing)
            place = WIDTH / 2 + (spot - WIDTH / 2 + pose.x) * zoom - left, HEIGHT / 2 - HEIGHT * 0.08 * zoom - up
            figure(canvas, place, self.size * zoom, look, pose)
        if self.action == "pass" and 0 <= (part := (frame - self.frames // 2) / rng.randint(5, 9)) < 1:
            edge = int((part * 1.8 - 0.6) * WIDTH) if way > 0 else int((1.2 - part * 1.8) * WIDTH)
            hue = colour(rng, 0.5, 0.4)
            shape = np.array([[edge, 0], [edge + 210, 40], [edge + 260, HEIGHT], [edge - 40, HEIGHT]], np.int32)
            cv2.fillPoly(canvas, [shape], hue, cv2.LINE_AA)
            cv2.polylines(canvas, [shape], True, INK, 4, cv2.LINE_AA)
        return canvas

    def _pose(self, number: int, drawing: int) -> Pose:
        """The pose of a figure in a drawing; most figures but the first only stand."""
        base = random.Random(self.seed * 31 + number)
        pose = random_pose(base, calm=True)
        if number and self.action not in ("walk", "pose"):
            return pose
        if self.action in ("talk", "slow pan", "zoom"):
            mouth = random.Random(self.seed + drawing).choice((0, 0.3, 0.6, 1))
            return replace(pose, mouth=mouth if drawing % 17 > 3 else 0.0, blink=drawing % 19 == 5)
        if self.action in ("walk", "run"):
            swing = math.sin(drawing * self.step * 0.45)
            walked = (drawing * self.step * 2.5 if self.action == "walk" else 8 * swing) * base.choice((-1, 1))
            return replace(pose, x=walked, lean=0.1 * swing, arms=(0.8 * swing, -0.8 * swing), elbows=(0.6, 0.6))
        if self.action in ("pose", "smear", "turn", "quick pan", "shake"):
            each = max(3, 22 // self.step)  # drawings that a pose is held
            count, since = divmod(drawing, each)
            now = random_pose(random.Random(self.seed * 7 + count + 100 * number), calm=self.action == "turn")
            if self.action == "smear" and count and since < 2:
                return replace(now, stretch=2.6 - 0.8 * since, x=now.x - 40 * (1 - since))
            return replace(now, x=0, lean=0) if self.action == "turn" else now
        if self.action == "cycle":  # of two drawings
            return random_pose(random.Random(self.seed + drawing % 2 * (drawing // 6 + 1)), calm=False)
        return pose


def random_pose(rng: random.Random, calm: bool) -> Pose:
    reach = 0.5 if calm else 2.4
    return Pose(
        rng.uniform(-12, 12) if calm else rng.uniform(-70, 70),
        rng.uniform(-0.1, 0.1) if calm else rng.uniform(-0.5, 0.5),
        (rng.uniform(0, reach), rng.uniform(0, reach)),
        (rng.uniform(0, reach), rng.uniform(0, reach)),
        0.0 if calm else rng.choice((0, 1)),
        rng.uniform(-1, 1),
    )


def colour(rng: random.Random, saturation: float, value: float, hue: float | None = None) -> tuple[int, int, int]:
    """A colour near these values (0 to 1), as RGB bytes."""
    hue = rng.random() if hue is None else hue + rng.uniform(-0.04, 0.04)
    near = (min(1.0, max(0.0, one + rng.uniform(-0.08, 0.08))) for one in (saturation, value))
    return tuple(round(255 * one) for one in colorsys.hsv_to_rgb(hue % 1, *near))


def painted(seed: int) -> Picture:
    """A painted background (450, 1920, 3): a street, a room, a wood or hills, by day, in the evening or at night."""
    rng, noise = random.Random(seed), np.random.default_rng(seed)
    tall, wide = 450, 1920
    kind, light = rng.choice(("street", "room", "wood", "hills")), rng.choice((0.9, 0.9, 0.7, 0.35))
    hue, canvas = rng.random(), np.zeros((tall, wide, 3), np.float32)
    top, low = colour(rng, 0.5, light, 0.58 if kind != "room" else hue), colour(rng, 0.2, light, 0.1)
    canvas[:] = np.linspace(top, low, tall)[:, None]
    floor = int(tall * rng.uniform(0.6, 0.75))
    if kind in ("wood", "hills"):
        for layer in range(3):
            knots = [(x, floor - 110 + 55 * layer + rng.randint(-45, 45)) for x in range(-80, wide + 200, 120)]
            shade = colour(rng, 0.5, light * (0.75 - 0.15 * layer), 0.3 + hue * 0.1)
            cv2.fillPoly(canvas, [np.array([*knots, (wide + 200, tall), (-80, tall)], np.int32)], shade)
    ground = colour(rng, 0.35, light * 0.6, hue)
    cv2.rectangle(canvas, (0, floor), (wide, tall), ground, -1)
    x = 0
    while x < wide and kind != "hills":
        width = rng.randint(60, 190)
        if kind == "wood":
            cv2.rectangle(canvas, (x, 0), (x + width // 4, floor + 30), colour(rng, 0.4, light * 0.4, 0.07), -1)
            cv2.circle(canvas, (x + 20, rng.randint(0, 90)), width // 2, colour(rng, 0.6, light * 0.55, 0.3), -1)
        elif kind == "street":
            roof, wall = rng.randint(20, floor - 120), colour(rng, 0.3, light * 0.8, hue + rng.uniform(-0.15, 0.15))
            cv2.rectangle(canvas, (x, roof), (x + width, floor), wall, -1)
            for row, column in itertools.product(range(roof + 20, floor - 40, 50), range(x + 12, x + width - 30, 42)):
                cv2.rectangle(canvas, (column, row), (column + 22, row + 30), colour(rng, 0.4, 1.2 - light, 0.13), -1)
        elif rng.random() < 0.6:
            shade, base = (
                colour(rng, 0.4, light * rng.choice((0.4, 0.6, 1)), hue + 0.1),
                rng.randint(floor - 130, floor),
            )
            cv2.rectangle(canvas, (x, base - rng.randint(60, 170)), (x + width - 25, base), shade, -1)
            cv2.rectangle(canvas, (x + 8, base - 40), (x + width - 35, base - 8), colour(rng, 0.2, light, hue), -1)
        x += width
    for high, wide_, strength in ((9, 60, 9), (3, 8, 4)):  # strokes of the brush
        strokes = noise.normal(0, strength, (tall // high, wide // wide_, 1)).repeat(3, axis=2).astype(np.float32)
        canvas += cv2.resize(strokes, (wide, tall), interpolation=cv2.INTER_CUBIC)
    return np.clip(cv2.GaussianBlur(canvas, (0, 0), 1.3), 0, 255).astype(np.uint8)


def seen(place: Picture, x: float, y: float, scale: float) -> Picture:
    """What a camera at (x, y) sees of a background, enlarged by `scale`; the background goes on mirrored."""
    matrix = np.float32([[scale, 0, WIDTH / 2 - scale * x], [0, scale, HEIGHT / 2 - scale * y]])
    return cv2.warpAffine(place, matrix, (WIDTH, HEIGHT), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)


def figure(canvas: Picture, at: tuple[float, float], size: float, look: int, pose: Pose) -> None:
    """Draw a figure whose head has its middle at `at` and this radius. look: its seed of colours and hair."""
    rng = random.Random(look)
    hue = rng.random()
    skin, shade = rng.choice(((250, 222, 200), (235, 196, 165), (190, 140, 110))), colour(rng, 0.6, 0.7)
    hair, cloth = colour(rng, 0.65, rng.choice((0.25, 0.6, 0.9)), hue), colour(rng, 0.55, rng.choice((0.4, 0.9)))
    spikes, line = rng.randint(7, 13), max(1, round(size * 0.06))

    def point(x: float, y: float) -> tuple[int, int]:
        x = (x + pose.lean * (2.5 - y) * 0.6) * pose.stretch
        return round(at[0] + size * x), round(at[1] + size * y)

    def shape(points: Sequence[tuple[float, float]], fill: tuple[int, int, int], outlined: bool = True) -> None:
        corners = np.array([point(*one) for one in points], np.int32)
        cv2.fillPoly(canvas, [corners], fill, cv2.LINE_AA)
        if outlined:
            cv2.polylines(canvas, [corners], True, INK, line, cv2.LINE_AA)

    def oval(x: float, y: float, wide: float, tall: float, corners: int) -> list[tuple[float, float]]:
        return [(x + wide * math.cos(a), y + tall * math.sin(a)) for a in np.linspace(0, 6.2, corners)]

    def limb(points: Sequence[tuple[float, float]], width: float, fill: tuple[int, int, int]) -> None:
        corners = np.array([point(*one) for one in points], np.int32)
        for more, tone in ((2 * line, INK), (0, fill)):
            cv2.polylines(canvas, [corners], False, tone, max(1, round(size * width) + more), cv2.LINE_AA)

    def round_hair(radius: float, jag: float, first: float, last: float) -> list[tuple[float, float]]:
        angles = np.linspace(first, last, 2 * spikes + 1)
        return [
            (radius * (1 + jag * (n % 2)) * math.cos(a), radius * (1 + jag * (n % 2)) * math.sin(a) - 0.1)
            for n, a in enumerate(angles)
        ]

    shape(round_hair(1.15, 0.22, 0, 2 * math.pi), hair)
    for side in (-1, 1):
        limb([(side * 0.5, 5), (side * 0.6, 7.8)], 0.7, shade)
    shape([(-0.3, 0.8), (0.3, 0.8), (1.25, 1.5), (1.1, 3), (1.5, 5.4), (-1.5, 5.4), (-1.1, 3), (-1.25, 1.5)], cloth)
    shape([(-0.4, 1.1), (0.4, 1.1), (0, 2.1)], shade)
    for side, arm, elbow in zip((-1, 1), pose.arms, pose.elbows, strict=True):
        bend = side * (1.1 + 1.5 * math.sin(arm)), 1.8 + 1.5 * math.cos(arm)
        hand = bend[0] + side * 1.4 * math.sin(arm + elbow), bend[1] + 1.4 * math.cos(arm + elbow)
        limb([(side * 1.1, 1.75), bend], 0.55, cloth)
        limb([bend, hand], 0.42, skin)
    shape(
        [(0.88 * math.cos(a), math.sin(a) * (1.08 if math.sin(a) > 0 else 0.9)) for a in np.linspace(0, 6.2, 24)], skin
    )
    look_to = 0.25 * pose.turn
    for side in (-1, 1):
        x = side * 0.4 + look_to
        if pose.blink:
            limb([(x - 0.2, 0.15), (x, 0.22), (x + 0.2, 0.15)], 0.02, INK)
            continue
        for tall, tone in ((0.3, (255, 255, 255)), (0.25, shade), (0.15, INK)):
            shape(oval(x, 0.12, 0.75 * tall, tall, 14), tone, outlined=False)
        cv2.circle(canvas, point(x - 0.06, 0.02), max(1, round(size * 0.06)), (255, 255, 255), -1, cv2.LINE_AA)
        limb([(x - 0.26, -0.1), (x, -0.22), (x + 0.26, -0.1)], 0.03, INK)
    shape(oval(look_to, 0.66, 0.22, 0.26 * pose.mouth, 12), (150, 50, 60))
    shape([*round_hair(1.05, 0.12, math.pi, 2 * math.pi), (0.75, -0.2), (0.4, -0.45), (0.1, -0.05), (-0.3, -0.5)], hair)


def impact(kind: str, picture: Picture, at: float, seed: int) -> Picture:
    """One frame of an impact; `at` is how much of it has passed."""
    rng = random.Random(seed)
    grey = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    if kind == "white":
        return np.full_like(picture, 255 if at < 0.5 else 240)
    if kind == "inverted":
        return 255 - picture
    if kind == "glare":
        return np.rint((0.9 - 0.4 * at) * 255 + (0.1 + 0.4 * at) * picture).astype(np.uint8)
    bright, dark = (colour(rng, 0.8, 1.0), colour(rng, 0.9, 0.25)) if kind == "coloured" else ((255,) * 3, (0,) * 3)
    flat = cv2.GaussianBlur(grey, (0, 0), 2) > np.median(grey)
    return np.where(flat[..., None] ^ (at >= 0.5), np.uint8(bright), np.uint8(dark))


def mixed(kind: str, first: Picture, second: Picture, share: float, seed: int) -> Picture:
    """A frame of a change of shot, of which `share` (0 to 1) has passed."""
    if kind == "dissolve":
        return np.rint((1 - share) * first + share * second).astype(np.uint8)
    down, across = np.mgrid[0 : 1 : 1j * HEIGHT, 0 : 1 : 1j * WIDTH]
    if kind == "whip pan":
        both = np.concatenate([first, second], axis=1)
        both = cv2.blur(both, (max(1, round(220 * math.sin(math.pi * share))), 1))
        return np.ascontiguousarray(both[:, (at := round(share * WIDTH)) : at + WIDTH])
    ways = (across, 1 - across, down, (across + down) / 2, np.hypot(across - 0.5, down - 0.5) / 0.72)
    return np.where((random.Random(seed).choice(ways) < share)[..., None], second, first)


def drawn_film(seed: int, shots: int = 30) -> DrawnFilm:
    """A film of many kinds of shots and changes; the same for the same seed."""
    rng, planned, begins = random.Random(f"drawn/{seed}"), [], ["start"]
    begins += rng.sample(CHANGES, min(shots - 1, len(CHANGES)))
    begins += rng.choices(CHANGES, k=shots - len(begins))
    actions, kinds = (itertools.cycle(rng.sample(names, len(names))) for names in (ACTIONS, IMPACTS))
    for number, change in enumerate(begins):
        size, scale = rng.choice((22, 34, 55, 90, 130)), rng.uniform(0.8, 1.3)
        eye = rng.uniform(500, 1400), rng.uniform(140, 300)
        looks = rng.randrange(10**6), rng.randrange(10**6)
        if change in ("reverse", "closer"):
            last = planned[-1]
            nearer = (1.8 if last.size < 90 else 0.5) if change == "closer" else 1.0
            place, size, scale = last.place, last.size * nearer, last.scale * nearer
            looks = last.looks if change == "closer" else last.looks[::-1]
            eye = last.eye if change == "closer" else ((last.eye[0] + 700) % 1400 + 250, last.eye[1])
        else:
            place = painted(seed * 1000 + number)
        spots = tuple(WIDTH * spot for spot in (rng.uniform(0.25, 0.75), rng.choice((0.15, 0.85))))
        frames, impacts = rng.randint(30, 66), ()
        if frames > 36 and rng.random() < 0.45:
            impacts = ((next(kinds), rng.randrange(14, frames - 16, 2), rng.randint(1, 2)),)
        action, step = next(actions), rng.choice((1, 2, 2, 3, 3, 3))
        spots = spots[: 1 + (size < 40 and rng.random() < 0.5)]
        shown = place, eye, scale, spots, size, looks
        planned.append(Shot(frames, action, step, *shown, rng.randrange(10**6), impacts))
    return DrawnFilm(planned, begins, seed)


class DrawnFilm:
    """Shots, how each begins, and what the film contains: changes, flashes. Iterating draws its frames."""

    def __init__(self, shots: Sequence[Shot], begins: Sequence[str], seed: int) -> None:
        rng, start = random.Random(seed), 0
        self.changes: list[Span] = []
        self.flashes: list[Span] = []
        self.starts: list[int] = []  # the first frame of each shot alone
        self._lasting = [rng.randint(*LASTING[kind]) if kind in LASTING else 0 for kind in begins]
        self.shots, self._begins = shots, begins
        for shot, kind, lasting in zip(shots, begins, self._lasting, strict=True):
            self.changes += [Span(kind, start, start + lasting)] if start else []
            self.starts.append(start + lasting)
            self.flashes += [Span(kind, self.starts[-1] + at, self.starts[-1] + at + n) for kind, at, n in shot.impacts]
            start += lasting + shot.frames

    def __iter__(self) -> Iterator[Picture]:
        earlier = self.shots[0]
        for shot, kind, lasting in zip(self.shots, self._begins, self._lasting, strict=True):
            for frame in range(lasting):
                pair = earlier.picture(earlier.frames + frame), shot.picture(0)
                yield mixed(kind, *pair, (frame + 1) / (lasting + 1), shot.seed)
            yield from map(shot.picture, range(shot.frames))
            earlier = shot
