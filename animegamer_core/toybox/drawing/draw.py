"""Draws a scene as a shot of 17 frames: the place's layers under a moving camera, then the prop and the figures.

What an instruction leaves open is the seed's: mirrored staging, the camera's start and path, clouds, extras, the pose.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import cv2
import numpy as np

from ..world import AMPLITUDES, CHARACTERS, COLOURS, FRAMES, HEIGHT, WIDTH, Scene
from .films import LEFT, STYLES, TOP
from .motions import MOTION_DRAWINGS, Beat, Cast
from .pen import BACKDROP, Line, Pen, Sheet
from .pictures import lines_of
from .places import PLACE_SCALE, over, over_parts, shot_layers
from .props import draw_prop

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNITS = (144, 96)  # the frame's width and height in the units of drawings
SCALE = WIDTH / UNITS[0]  # the frame's pixels per unit
ACTOR_SCALE = 3  # pixels of the figures' sheet per pixel of the frame
FAR_FRACTION, ACTOR_FRACTION = 0.6, 0.45  # the parts of the camera's path that the far layer and the figures move by
MEASURE_SCALE = 480 / UNITS[1]  # amplitudes are stated at 480 px height
LEAST_BOX = 7  # pixels
Box = tuple[int, int, int, int]  # top, left, bottom, right in pixels of the frame
ROOM_X, ROOM_Y = 24.0, 9.0  # how far the camera may go from the middle of a place, in units


@dataclass(frozen=True)
class Camera:
    """How the camera moves during a motion: a figure of eight per shot, or a steady pan.

    Its speed is gain * target ** power, where target is the wanted motion. gain and power were fitted so that a clip's
    motion value follows its target.
    """

    gain: float
    power: float
    pan: bool = False

    def offset(self, target: float, turn: float, phase: float) -> tuple[float, float]:
        """Return the near layer's displacement (x, y) in units at time `turn` (0..1 over the shot; then it returns).

        target: the wanted motion in pixels per frame at 480 px height. phase: 0..1, where a figure of eight begins.
        """
        speed = self.gain * target**self.power / MEASURE_SCALE
        if self.pan:
            along = turn if turn <= 1 else 1 - abs(turn % 2 - 1)
            return min(speed * (FRAMES - 1), 2 * ROOM_X) * (along - 0.5), 0.2 * speed * math.sin(4 * math.pi * turn)
        reach = min(speed * (FRAMES - 1) / (2 * math.pi), ROOM_X / 1.35)
        angle = 2 * math.pi * (turn + phase)
        return 1.35 * reach * math.sin(angle), 0.4 * reach * math.sin(2 * angle)


CAMERAS = {
    name: Camera(float(gain), float(power), name in ("fly", "run"))
    for name, gain, power in (line.split() for line in lines_of("motions")["cameras"])
}


@dataclass(frozen=True)
class _Staging:
    """A shot's own choices, and its place's pictures."""

    far: NDArray[np.uint8]
    near: NDArray[np.uint8]
    mirrored: bool
    way: int
    start: tuple[float, float]
    phase: float
    shift: float
    x: float
    scale: float
    vary: tuple[float, float, float]


@lru_cache(maxsize=2)
def _staging(scene: Scene) -> _Staging:
    rng = random.Random(f"staging:{scene.seed}")
    mirrored, place_mirrored = rng.random() < 0.5, rng.random() < 0.5
    far, near = shot_layers(scene.film, scene.place, scene.time, random.Random(f"extras:{scene.seed}"), place_mirrored)
    return _Staging(
        far,
        near,
        mirrored,
        way=rng.choice((-1, 1)),
        start=(rng.uniform(-6, 6), rng.uniform(-2, 2)),
        phase=rng.random(),
        shift=rng.random(),
        x=rng.uniform(-4, 4),
        scale=rng.uniform(0.96, 1.04),
        vary=(rng.uniform(-1, 1), rng.uniform(-1, 1), rng.uniform(-1, 1)),
    )


def draw_shot(scene: Scene) -> NDArray[np.uint8]:
    """Return the scene's shot: uint8 RGB (17, 192, 288, 3), the same for the same scene."""
    return np.stack([draw_frame(scene, index) for index in range(FRAMES)])


def draw_figures(scene: Scene) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return the scene's shot, and where each of its C characters is seen, the main one first: bool (F, C, H, W)."""
    drawn = [_drawn(scene, index, figures=True) for index in range(FRAMES)]
    return np.stack([frame for frame, _ in drawn]), np.stack([figures for _, figures in drawn])


def figure_boxes(scene: Scene) -> list[Box | None]:
    """For each frame the box around what is seen of the main character; None if that is too little to compare."""
    figures = (_drawn(scene, index, figures=True)[1][0] for index in range(FRAMES))
    boxes = (cv2.boundingRect(figure.astype(np.uint8)) for figure in figures)
    return [(y, x, y + high, x + wide) if min(wide, high) >= LEAST_BOX else None for x, y, wide, high in boxes]


def draw_frame(scene: Scene, index: float) -> NDArray[np.uint8]:
    """Return one frame, uint8 RGB (192, 288, 3). index: 0..16 in the shot; fractions and later times are allowed."""
    return _drawn(scene, index, figures=False)[0]


def _drawn(scene: Scene, index: float, figures: bool) -> tuple[NDArray[np.uint8], NDArray[np.bool_] | None]:
    staging = _staging(scene)
    turn = index / (FRAMES - 1)
    camera = CAMERAS[scene.motion]
    moved = camera.offset(scene.amplitude, turn, staging.phase)
    # a pan leads where the figure looks
    way = (-1 if staging.mirrored else 1) if camera.pan else staging.way
    x, y = way * moved[0], moved[1]
    frame = _view(staging.far, staging.start, x * FAR_FRACTION, y * FAR_FRACTION)
    frame = over(frame, _view(staging.near, staging.start, x, y))
    part = 0.0 if camera.pan else ACTOR_FRACTION
    sheet = _sheet()
    sheet.clear()
    _draw_actors(sheet, scene, staging, turn, (x * part, y * part))
    rim = STYLES[scene.film].rim
    if rim is not None:
        _light_edges(sheet, rim)
    _compose(frame, sheet)
    if not figures:
        return frame, None
    owners = sheet.owners[ACTOR_SCALE // 2 :: ACTOR_SCALE, ACTOR_SCALE // 2 :: ACTOR_SCALE]
    count = 1 + (scene.partner is not None)
    return frame, np.stack([owners == BACKDROP + 1 + number for number in range(count)])


def _view(layer: NDArray[np.uint8], start: tuple[float, float], x: float, y: float) -> NDArray[np.uint8]:
    """What the camera sees of a layer, displaced by (x, y) units from its start."""
    left, top = (start[0] + x - LEFT + 20) * PLACE_SCALE, (start[1] + y - TOP) * PLACE_SCALE
    step = PLACE_SCALE / SCALE
    matrix = np.array([[step, 0, left + step / 2 - 0.5], [0, step, top + step / 2 - 0.5]], np.float32)
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    return cv2.warpAffine(layer, matrix, (WIDTH, HEIGHT), flags=flags, borderMode=cv2.BORDER_REPLICATE)


def _compose(frame: NDArray[np.uint8], sheet: Sheet) -> None:
    """Put the sheet on the frame, reduced to its size, where there is something."""
    x, y, wide, high = cv2.boundingRect(cv2.bitwise_or(sheet.owners, sheet.shadows))
    left, top = x // ACTOR_SCALE, y // ACTOR_SCALE
    right, bottom = -(-(x + wide) // ACTOR_SCALE), -(-(y + high) // ACTOR_SCALE)
    size = (right - left, bottom - top)
    box = np.s_[top * ACTOR_SCALE : bottom * ACTOR_SCALE, left * ACTOR_SCALE : right * ACTOR_SCALE]
    colours, owned, shadow = (
        cv2.resize(plane[box], size, interpolation=cv2.INTER_AREA)
        for plane in (sheet.colours, cv2.threshold(sheet.owners, 0, 255, cv2.THRESH_BINARY)[1], sheet.shadows)
    )
    part = frame[top:bottom, left:right]
    if shadow.any():
        ink = cv2.merge([cv2.convertScaleAbs(shadow, alpha=tone / 255) for tone in (36, 30, 64)])
        part = over_parts(part, ink, shadow)
    frame[top:bottom, left:right] = over_parts(part, colours, owned)


@lru_cache(maxsize=1)
def _sheet() -> Sheet:
    return Sheet(HEIGHT * ACTOR_SCALE, WIDTH * ACTOR_SCALE)


def _light_edges(sheet: Sheet, rim: tuple[int, int, int]) -> None:
    """Lighten the upper right edges of the figures."""
    figures = cv2.threshold(sheet.owners, BACKDROP, 255, cv2.THRESH_BINARY)[1]
    x, y, wide, high = cv2.boundingRect(figures)
    if not wide:
        return
    part = figures[y : y + high, x : x + wide]
    moved = np.zeros_like(part)
    moved[6:, :-6] = part[:-6, 6:]
    edge = cv2.subtract(part, moved)
    edge = cv2.bitwise_and(edge, cv2.erode(part, np.ones((5, 5), np.uint8)))
    colours = sheet.colours[y : y + high, x : x + wide]
    colours[edge > 0] = (0.4 * colours[edge > 0] + 0.6 * np.array(rim, np.float32)).astype(np.uint8)


def _draw_actors(sheet: Sheet, scene: Scene, staging: _Staging, turn: float, moved: tuple[float, float]) -> None:
    """Draw the prop and the figures enlarged. moved: how far the camera moved from them."""
    style, night = STYLES[scene.film], scene.time == "night"
    line = replace(STYLES[CHARACTERS[scene.character].film].line, shade=None)
    x = UNITS[0] / 2 + (0.0 if staging.mirrored else staging.x) - moved[0]
    pen = Pen.on(sheet, style.actor_light(night), line, SCALE * ACTOR_SCALE, (x, 90 - moved[1]))
    if staging.mirrored:
        pen = pen.flipped()
    pen = pen.at(staging.x if staging.mirrored else 0, 0, 0, staging.scale).at(-UNITS[0] / 2, -90)
    strength = (scene.amplitude / AMPLITUDES[1]) ** 0.9
    beat = Beat(turn + staging.shift * 0.5, strength, staging.vary)
    colour = COLOURS[scene.prop_colour] if scene.prop else None
    lit = replace(pen.under(style.prop_light(night)), line=Line(0.45, (60, 40, 60), 0.6))
    if scene.prop in ("car", "umbrella", "kite"):
        _draw_prop(lit, scene, beat, colour)
    scarf = colour if scene.prop == "scarf" else None
    MOTION_DRAWINGS[scene.motion](pen, Cast(scene.character, scene.partner, scarf), beat)
    if scene.prop in ("balloon", "ball"):
        _draw_prop(lit, scene, beat, colour)


def _draw_prop(pen: Pen, scene: Scene, beat: Beat, colour: tuple[int, int, int]) -> None:
    place, moved = {
        "car": (pen.at(72, 83, 0, 1.12), beat.wave(2, 2)),
        "umbrella": (pen.at(123, 88), 10 + beat.wave(10, 2)),
        "kite": (pen.at(124 + beat.wave(4, 1), 24 + beat.wave(4, 2)), beat.wave(16, 1)),
        "balloon": (pen.at(15, 84), beat.wave(11, 1)),
        "ball": (pen.at((127 if scene.motion == "sleep" else 17) + beat.wave(5, 1), 94), beat.wave(50, 1)),
    }[scene.prop]
    draw_prop(place, scene.prop, colour, moved)
