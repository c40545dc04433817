"""The twelve places by day and by night, in each film's style: three layers, which are cached, and a shot's own extras.

Places are drawn in units on a canvas larger than the frame, so that the camera can move.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import cv2
import numpy as np

from .extras import EXTRAS
from .films import BOTTOM, LEFT, RIGHT, TOP, Setting, unlit_pen
from .indoors import INDOORS
from .outdoors import OUTDOORS
from .pen import RGB, Pen, Sheet, mix

if TYPE_CHECKING:
    from numpy.typing import NDArray

PLACE_SCALE = 3  # the layers' pixels per unit
SUPERSAMPLE = 2  # pixels drawn per pixel of a layer
WIDE, HIGH = (RIGHT - LEFT) * PLACE_SCALE, (BOTTOM - TOP) * PLACE_SCALE


@dataclass(frozen=True)
class PlaceLayers:
    """A place's sky (H, W, 3), and its far and near layers (H, W, 4) with premultiplied alpha."""

    sky: NDArray[np.uint8]
    far: NDArray[np.uint8]
    near: NDArray[np.uint8]


@lru_cache(maxsize=40)
def place_layers(film: str, place: str, time: str) -> PlaceLayers:
    """Return a place's layers; they are drawn once per process, as long as it draws few different ones."""
    setting = Setting(film, time == "night")
    sheets = [_sheet() for _ in range(3)]
    sky, far, near = (_pen(sheet, setting) for sheet in sheets)
    _sky(sky, setting)
    (OUTDOORS | INDOORS)[place](far, near, setting)
    _ornament(near, setting)
    column = np.clip(np.linspace(-0.1, 1.5, HIGH), 0, 1)[:, None, None]
    gradient = np.asarray(setting.sky[0]) * (1 - column) + np.asarray(setting.sky[1]) * column
    base = np.broadcast_to(gradient, (HIGH, WIDE, 3)).round().astype(np.uint8).copy()
    treated = over(base, _layer(sheets[0]))
    layers = [_treated(_layer(sheet), setting) for sheet in sheets[1:]]
    return PlaceLayers(_treated(np.dstack([treated, np.full((HIGH, WIDE), 255, np.uint8)]), setting)[..., :3], *layers)


def shot_layers(film: str, place: str, time: str, rng: random.Random, mirrored: bool) -> tuple[NDArray, NDArray]:
    """A shot's far picture (H, W, 3) and near layer (H, W, 4): the place with clouds and extras of its own."""
    setting, layers = Setting(film, time == "night"), place_layers(film, place, time)
    clouds, things = _sheet(1), _sheet(1)
    if place not in INDOORS:
        _clouds(_pen(clouds, setting, 1), setting, rng)
    ground = _pen(things, setting, 1)
    for slot in rng.sample((-18, 4, 22, 122, 140, 160, 182, 204), rng.randint(3, 5)):
        extra = rng.choice(EXTRAS[place])
        size = rng.uniform(0.85, 1.25)
        extra(ground.at(slot + rng.uniform(-7, 7), rng.uniform(80, 90), 0, size), rng.random())
    far = over(over(layers.sky, _layer(clouds)), layers.far)
    near = over_layer(layers.near, _layer(things))
    return (np.ascontiguousarray(part[:, ::-1]) if mirrored else part for part in (far, near))


def over(base: NDArray[np.uint8], layer: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A picture (H, W, 3) under a premultiplied layer (H, W, 4)."""
    return over_parts(base, cv2.cvtColor(layer, cv2.COLOR_RGBA2RGB), cv2.extractChannel(layer, 3))


def over_parts(base: NDArray[np.uint8], colours: NDArray[np.uint8], alpha: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A picture (H, W, 3) under premultiplied colours (H, W, 3) with their alpha (H, W)."""
    rest = cv2.cvtColor(cv2.bitwise_not(alpha), cv2.COLOR_GRAY2RGB)
    return cv2.add(cv2.multiply(base, rest, scale=1 / 255), colours)


def over_layer(base: NDArray[np.uint8], layer: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A premultiplied layer (H, W, 4) under another."""
    rest = cv2.merge([255 - layer[..., 3]] * 4)
    return cv2.add(cv2.multiply(base, rest, scale=1 / 255), layer)


def _sheet(supersample: int = SUPERSAMPLE) -> Sheet:
    return Sheet(HIGH * supersample, WIDE * supersample)


def _pen(sheet: Sheet, setting: Setting, supersample: int = SUPERSAMPLE) -> Pen:
    style = setting.style
    return Pen.on(sheet, style.light(setting.night), style.scenery, PLACE_SCALE * supersample, (-LEFT, -TOP))


def _layer(sheet: Sheet) -> NDArray[np.uint8]:
    """What is on a sheet as a layer (H, W, 4) with premultiplied alpha."""
    owned = np.where(sheet.owners > 0, 255, 0).astype(np.uint8)
    return cv2.resize(np.dstack([sheet.colours, owned]), (WIDE, HIGH), interpolation=cv2.INTER_AREA)


def _treated(layer: NDArray[np.uint8], setting: Setting) -> NDArray[np.uint8]:
    """A layer (H, W, 4) as the film treats its backgrounds."""
    colours, alpha = layer[..., :3].astype(np.float32), layer[..., 3:].astype(np.float32) / 255
    kind = setting.style.treatment
    ys, xs = np.mgrid[0:HIGH, 0:WIDE].astype(np.float32) / PLACE_SCALE
    if kind == "wash":
        noise = np.random.default_rng(5).normal(0, 1, (HIGH // 9, WIDE // 9)).astype(np.float32)
        blots = cv2.resize(noise, (WIDE, HIGH), interpolation=cv2.INTER_CUBIC)[..., None]
        colours = 0.7 * colours + 0.3 * cv2.GaussianBlur(colours, (0, 0), 1.6)
        colours *= 1 + 0.022 * blots
    elif kind == "glow":
        bright = np.clip(colours - 150 * alpha, 0, 255)
        colours += 0.55 * cv2.GaussianBlur(bright, (0, 0), 9)
        haze = np.clip((ys - TOP) / 110, 0, 1)[..., None]
        colours = colours * (1 - 0.16 * haze) + np.float32((255, 150, 190)) * 0.16 * haze * alpha * (
            0.5 if setting.night else 1
        )
    elif kind == "grid":
        steps = 14.0
        colours = 0.5 * colours + 0.5 * np.round(colours / steps) * steps
        lines = ((np.abs(ys % 4) < 0.5) * 0.07)[..., None]
        colours = colours * (1 - lines)
        glow = np.exp(-(((ys - 72) / 12) ** 2))[..., None] * alpha
        colours += glow * np.float32(setting.style.lamp) * 0.12
    elif kind == "paper":
        grey = colours.mean(axis=2, keepdims=True)
        colours = 0.72 * colours + 0.28 * grey
        dark = np.clip((150 * alpha - grey) / 90, 0, 1)
        hatch = (np.abs((xs + ys) % 5 - 2.5) < 0.5)[..., None]
        colours -= 13 * dark * hatch
        noise = np.random.default_rng(9).normal(0, 1, (HIGH, WIDE, 1)).astype(np.float32)
        colours += 3.0 * cv2.GaussianBlur(noise, (0, 0), 0.9)[..., None] * alpha * 2
    return np.dstack([np.minimum(np.clip(colours, 0, 255), 255 * alpha), layer[..., 3:]]).round().astype(np.uint8)


def _sky(pen: Pen, setting: Setting) -> None:
    unlit, top = unlit_pen(pen), setting.sky[0]
    x = 100
    if setting.night:
        for sx, sy in ((-22, 8), (-8, 26), (22, 4), (60, 20), (84, 34), (132, 36), (150, 6), (190, 10), (212, 30)):
            unlit.oval(sx, sy, 1.1, 1.1, mix((255, 250, 214), top, 0.1), line=False)
        for radius, fraction in ((17, 0.86), (14, 0.7)):
            unlit.oval(x, 18, radius, radius, mix((255, 246, 206), top, fraction), line=False)
        unlit.oval(x, 18, 10, 10, (255, 246, 206), line=False)
        if setting.film == "lantern":
            unlit.oval(x + 5, 15, 8.4, 8.4, mix((255, 246, 206), top, 0.78), line=False)
        if setting.film == "orbit":
            unlit.stroke([(x - 19, 22), (x, 19), (x + 19, 13)], 2, (150, 240, 230), line=False)
    else:
        sun = {"orbit": (252, 255, 226), "frost": (255, 252, 244), "lantern": (255, 232, 176)}.get(
            setting.film, (255, 244, 190)
        )
        unlit.oval(x, 16, 14, 14, mix(sun, top, 0.5), line=False)
        unlit.oval(x, 16, 10, 10, sun, line=False)


def _clouds(pen: Pen, setting: Setting, rng: random.Random) -> None:
    unlit = unlit_pen(pen)
    cloud = mix(setting.sky[1], (255, 255, 255), 0.12 if setting.night else 0.8)
    for left in range(LEFT, RIGHT, 44):
        if rng.random() < 0.72:
            place = unlit.at(left + rng.uniform(0, 40), rng.uniform(6, 34), 0, rng.uniform(0.65, 1.2))
            _cloud(place, cloud, setting)
    if not setting.night:
        for _ in range(rng.randint(0, 3)):
            bird = unlit.at(rng.uniform(LEFT, RIGHT), rng.uniform(6, 30), rng.uniform(-12, 12), rng.uniform(0.7, 1.1))
            wings = [(-6, -2), (-2.6, -3.4), (0, 0), (2.6, -3.4), (6, -2)]
            bird.stroke(wings, 1.3, mix(setting.style.scenery.ink, (255, 255, 255), 0.2), line=False)


def _cloud(pen: Pen, colour: RGB, setting: Setting) -> None:
    film = setting.film
    if film == "harbour":
        for x, y, rx in ((0, 0, 26), (12, 5, 22), (-8, -4, 14)):
            pen.oval(x, y, rx, 3.2, colour, line=False)
    elif film == "lantern":
        for x, y, r in ((-14, 2, 8), (0, -2, 10), (14, 2, 8)):
            pen.oval(x, y, r, r, colour, line=False)
            pen.oval(x, y + 1, r * 0.45, r * 0.45, mix(colour, (220, 150, 190), 0.35), line=False)
        pen.oval(0, 8, 24, 3, colour, line=False)
    elif film == "orbit":
        for x, y, half in ((-4, -4, 14), (6, 0, 20), (-6, 4, 17)):
            pen.shape(
                [(x - half, y + 2), (x - half + 4, y - 2), (x + half, y - 2), (x + half - 4, y + 2)], colour, line=False
            )
    else:
        shape = [(-24, 5), (-20, -3), (-10, -4), (-3, -11), (8, -9), (13, -2), (22, -1), (24, 5), (0, 7)]
        pen.blob(shape, colour, line=film == "frost")
        if film == "meadow":
            pen.blob([(-18, 4.6), (-6, 2), (8, 3), (20, 4.4), (0, 6)], mix(colour, setting.sky[0], 0.3), line=False)


def _ornament(pen: Pen, setting: Setting) -> None:
    """Draw the film's garland (leaves, flags, lanterns, lights or icicles) along the top of a place."""
    unlit, film = unlit_pen(pen), setting.film
    for index, x in enumerate(range(LEFT, RIGHT, 36)):
        if film == "lantern":
            glow = (255, 196, 96) if setting.night else (250, 150, 104)
            unlit.stroke([(x, -3), (x + 18, 1), (x + 36, -3)], 1.2, (120, 70, 90), line=False)
            unlit.oval(x + 18, 7, 5.6, 6.4, glow)
            unlit.oval(x + 18, 7, 2.4, 6, mix(glow, (255, 255, 220), 0.5), line=False)
        elif film == "harbour":
            pen.stroke([(x, -4), (x + 36, -4)], 1.2, (240, 244, 250), line=False)
            for step, colour in ((4, (250, 250, 250)), (22, (96, 150, 220))):
                pen.shape([(x + step, -4), (x + step + 11, -4), (x + step + 5.5, 7)], colour)
        elif film == "orbit":
            unlit.stroke([(x, -2), (x + 12, -2), (x + 16, 2), (x + 32, 2), (x + 36, -2)], 1.6, (40, 66, 80), line=False)
            unlit.oval(x + 24, 3.4, 2.6, 2.6, (255, 120, 160) if index % 2 else setting.style.lamp)
        elif film == "frost":
            for step, drop in ((2, 9), (9, 5), (15, 12), (22, 6), (29, 10)):
                pen.shape([(x + step, -8), (x + step + 5, -8), (x + step + 2.5, drop - 2)], (232, 242, 252))
        else:
            for step, drop in ((0, 3), (12, 6), (24, 2)):
                pen.oval(x + step + 6, drop - 8, 9.5, 9, (116, 178, 84) if step != 12 else (140, 196, 96), line=False)
