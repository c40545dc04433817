"""Draws a scene as a shot of 17 frames: the place's layers under a moving camera, then the prop and the figures."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import numpy as np
from PIL import Image

from ..world import AMPLITUDES, COLOURS, FRAMES, HEIGHT, WIDTH, Scene
from .films import LEFT, STYLES, TOP
from .lively import LIVELY_MOTIONS
from .pen import HIGH, WIDE, Pen
from .places import CANVAS_SCALE, place_canvas
from .props import draw_thing
from .quiet import QUIET_MOTIONS
from .stage import Beat, Characters
from .take import CENTRE, take_of

MOTION_DRAWINGS = QUIET_MOTIONS | LIVELY_MOTIONS
FAR_FRACTION = 0.6  # parallax: the far layer moves this fraction of the camera's path
MEASURE_SCALE = 480 / HIGH  # amplitudes are stated at 480 px height


@dataclass(frozen=True)
class Camera:
    """How the camera moves during a motion: `cycles` figures of eight per shot, or a steady pan to the right.

    The camera's speed is gain * target ** power, where target is the wanted motion. gain and power were fitted so that
    a clip's motion value follows its target (see tests/toybox/test_toybox_world.py).
    """

    gain: float
    power: float
    cycles: int = 1
    pan: bool = False

    def offset(self, target: float, turn: float) -> tuple[float, float]:
        """Return the near layer's displacement (x, y) in frame pixels at time `turn` (0..1 over the shot).

        target: the wanted motion in pixels per frame at 480 px height. After the end of the shot the camera moves on: a
        figure of eight repeats, and a pan reverses at the end of every shot, since the places are not wider.
        """
        speed = self.gain * target**self.power / MEASURE_SCALE
        if self.pan:
            along = turn if turn <= 1 else 1 - abs(turn % 2 - 1)
            return speed * along * (FRAMES - 1), 0.3 * speed * math.sin(4 * math.pi * turn)
        reach = speed * (FRAMES - 1) / (2 * math.pi * self.cycles)
        angle = 2 * math.pi * self.cycles * turn
        return 1.35 * reach * math.sin(angle), 0.4 * reach * math.sin(2 * angle)


CAMERAS: dict[str, Camera] = {
    "sleep": Camera(gain=0.58, power=1.21),
    "eat": Camera(gain=0.58, power=1.22),
    "talk": Camera(gain=0.47, power=1.23),
    "hug": Camera(gain=0.52, power=1.20),
    "fly": Camera(pan=True, gain=0.52, power=1.30),
    "run": Camera(pan=True, gain=0.64, power=1.25),
    "dance": Camera(cycles=2, gain=0.62, power=1.21),
    "wave": Camera(cycles=2, gain=0.70, power=1.17),
    "read": Camera(gain=0.54, power=1.20),
    "swing": Camera(gain=0.35, power=1.28),
    "climb": Camera(gain=0.43, power=1.23),
    "swim": Camera(gain=0.53, power=1.27),
    "ball": Camera(cycles=2, gain=0.67, power=1.16),
    "shake": Camera(gain=0.68, power=1.14),
    "race": Camera(pan=True, gain=0.64, power=1.25),
    "jump": Camera(gain=0.51, power=1.25),
    "guitar": Camera(gain=0.61, power=1.20),
    "ride": Camera(pan=True, gain=0.75, power=1.20),
    "paint": Camera(gain=0.66, power=1.16),
    "drink": Camera(gain=0.71, power=1.14),
}


@dataclass(frozen=True)
class Spot:
    """Where a prop is, and how it moves. swing: degrees around (x, y). sway: see `draw_thing`. Both: at full strength.

    front: whether it is in front of the figures.
    """

    x: float
    y: float
    scale: float = 1.0
    angle: float = 0.0
    swing: float = 0.0
    sway: float = 0.0
    cycles: int = 2
    front: bool = False


SPOTS: dict[str, Spot] = {  # a scarf has none: it is drawn with the figure
    "car": Spot(72, 83, scale=1.12, sway=2, cycles=4),
    "umbrella": Spot(121, 88, angle=10, swing=8),
    "balloon": Spot(120, 89, swing=7, cycles=1),
    "flag": Spot(105, 91, sway=4),
    "cat": Spot(120, 92, sway=16, front=True),
}


def draw_shot(scene: Scene) -> np.ndarray:
    """Return the scene's shot: uint8 RGB (17, 192, 288, 3), the same for the same scene."""
    return np.stack([draw_frame(scene, index) for index in range(FRAMES)])


def draw_frame(scene: Scene, index: float, *, empty: bool = False) -> np.ndarray:
    """Return one frame, uint8 RGB (192, 288, 3). empty: without figures.

    index: 0..16 in the shot; fractions and later times are allowed.

    Everything is drawn on one enlarged picture, which is shrunk once: layers and figures move by whole enlarged pixels,
    and shrinking moves them by the rest of the near layer's path.
    """
    turn, camera = index / (FRAMES - 1), CAMERAS[scene.motion]
    reach = camera.offset(scene.amplitude, 1.0 if camera.pan else 0.25 / camera.cycles)[0]
    take = take_of(scene, reach, camera.pan)
    x, y = camera.offset(scene.amplitude, turn if camera.pan else turn + take.phase)
    far, near = place_canvas(scene.film, scene.place, scene.time, take)
    (left, top), (far_left, far_top) = (
        (_edge((take.start + x) * part, LEFT, CENTRE[0], take.zoom), _edge(y * part, TOP, CENTRE[1], take.zoom))
        for part in (1, FAR_FRACTION)
    )
    rest = (left % 1, top % 1)
    picture = _crop(far, far_left, far_top)
    picture.paste(near, (-math.floor(left), -math.floor(top)), near)
    pen = Pen.on(picture, STYLES[scene.film].day, CANVAS_SCALE, (rest[0] / CANVAS_SCALE, rest[1] / CANVAS_SCALE))
    pen = pen.at(*CENTRE, 0, take.zoom).at(-CENTRE[0], -CENTRE[1])
    if not empty:
        _draw_actors(pen if camera.pan else pen.at(-x, -y), scene, turn + take.phase)
    box = (*rest, rest[0] + WIDE * CANVAS_SCALE, rest[1] + HIGH * CANVAS_SCALE)
    return np.asarray(picture.resize((WIDTH, HEIGHT), Image.Resampling.HAMMING, box=box))


def _draw_actors(pen: Pen, scene: Scene, turn: float) -> None:
    """Draw the prop and the figures, a little different for each seed; the pen's origin is the frame's corner."""
    rng = random.Random(f"jitter:{scene.seed}")
    aside, size, later = rng.uniform(-2, 2), rng.uniform(0.97, 1.02), rng.uniform(-0.02, 0.02)
    style, night = STYLES[scene.film], scene.time == "night"
    lit = pen.at(WIDE / 2 + aside, 90, 0, size).at(-WIDE / 2, -90).under(style.actor_light(night))
    beat = Beat(turn + later, (scene.amplitude / AMPLITUDES[1]) ** 0.9)
    beside = lit.under(style.prop_light(night))
    _draw_prop(beside, scene, beat, front=False)
    scarf = COLOURS[scene.prop_colour] if scene.prop == "scarf" else None
    MOTION_DRAWINGS[scene.motion](lit, Characters(scene.character, scene.partner, scarf), beat)
    _draw_prop(beside, scene, beat, front=True)


def _edge(offset: float, start: float, centre: float, zoom: float) -> float:
    """Return where on a canvas that begins at `start` a frame begins whose camera is at `offset`, in its pixels."""
    return (offset - start + centre * (1 - 1 / zoom)) * zoom * CANVAS_SCALE


def _crop(layer: Image.Image, left: float, top: float) -> Image.Image:
    x, y = math.floor(left), math.floor(top)
    return layer.crop((x, y, x + WIDE * CANVAS_SCALE + 1, y + HIGH * CANVAS_SCALE + 1))


def _draw_prop(pen: Pen, scene: Scene, beat: Beat, *, front: bool) -> None:
    """Draw the scene's prop if it belongs in front of the figures (`front`), or behind them."""
    spot = SPOTS.get(scene.prop or "")
    if spot is not None and spot.front == front:
        at = pen.at(spot.x, spot.y, 0, spot.scale).at(0, 0, spot.angle + beat.wave(spot.swing, spot.cycles))
        draw_thing(at, scene.prop, beat.wave(spot.sway, spot.cycles), COLOURS[scene.prop_colour])
