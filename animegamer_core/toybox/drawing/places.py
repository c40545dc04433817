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

from .films import BOTTOM, LEFT, RIGHT, TOP, Setting
from .pen import RGB, Light, Pen, Sheet, mix
from .pictures import lines_of, paint, picture

if TYPE_CHECKING:
    from numpy.typing import NDArray

PLACE_SCALE = 3  # the layers' pixels per unit
SUPERSAMPLE = 2  # pixels drawn per pixel of a layer
INDOORS = ("kitchen", "bedroom", "library")
# place -> the small things that may stand there
EXTRAS = {place: names.split() for place, names in (line.split(": ") for line in lines_of("extras")["where"])}
TONES: tuple[RGB, ...] = ((236, 120, 110), (120, 160, 226), (246, 196, 96), (150, 190, 140), (196, 150, 214))
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
    names = {"sky0": setting.sky[0], "nightsky1": setting.style.night_sky[1], "lamp": setting.style.lamp}
    without = "day" if setting.night else "night"
    paint({"": sky}, picture("films", f"{film} sky"), names, without)
    paint({"far": far, "near": near}, picture("places", place), names, without)
    paint({"": near}, picture("films", f"{film} garland"), names, without)
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
        extra, size = rng.choice(EXTRAS[place]), rng.uniform(0.85, 1.25)
        pen = ground.at(slot + rng.uniform(-7, 7), rng.uniform(80, 90), 0, size)
        vary = rng.random()
        names = {f"tone{after}": TONES[(after + int(vary * 5)) % 5] for after in range(5)}
        names["tone"] = TONES[int(vary * 4.99)]
        paint({"": pen}, picture("extras", extra), names, vary=vary)
    far = over(over(layers.sky, _layer(clouds)), layers.far)
    near = over_layer(layers.near, _layer(things))
    return (np.ascontiguousarray(far[:, ::-1]), np.ascontiguousarray(near[:, ::-1])) if mirrored else (far, near)


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
    colours: NDArray[np.floating] = layer[..., :3].astype(np.float32)
    alpha = layer[..., 3:].astype(np.float32) / 255
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
        colours = colours * (1 - 0.16 * haze) + np.array((255, 150, 190), np.float32) * 0.16 * haze * alpha * (
            0.5 if setting.night else 1
        )
    elif kind == "grid":
        steps = 14.0
        colours = 0.5 * colours + 0.5 * np.round(colours / steps) * steps
        lines = ((np.abs(ys % 4) < 0.5) * 0.07)[..., None]
        colours = colours * (1 - lines)
        glow = np.exp(-(((ys - 72) / 12) ** 2))[..., None] * alpha
        colours += glow * np.array(setting.style.lamp, np.float32) * 0.12
    elif kind == "paper":
        grey = colours.mean(axis=2, keepdims=True)
        colours = 0.72 * colours + 0.28 * grey
        dark = np.clip((150 * alpha - grey) / 90, 0, 1)
        hatch = (np.abs((xs + ys) % 5 - 2.5) < 0.5)[..., None]
        colours -= 13 * dark * hatch
        noise = np.random.default_rng(9).normal(0, 1, (HIGH, WIDE, 1)).astype(np.float32)
        colours += 3.0 * cv2.GaussianBlur(noise, (0, 0), 0.9)[..., None] * alpha * 2
    return np.dstack([np.minimum(np.clip(colours, 0, 255), 255 * alpha), layer[..., 3:]]).round().astype(np.uint8)


def _clouds(pen: Pen, setting: Setting, rng: random.Random) -> None:
    unlit = pen.under(Light())
    cloud = mix(setting.sky[1], (255, 255, 255), 0.12 if setting.night else 0.8)
    names = {"cloud": cloud, "sky0": setting.sky[0]}
    for left in range(LEFT, RIGHT, 44):
        if rng.random() < 0.72:
            place = unlit.at(left + rng.uniform(0, 40), rng.uniform(6, 34), 0, rng.uniform(0.65, 1.2))
            paint({"": place}, picture("films", f"{setting.film} cloud"), names)
    if not setting.night:
        for _ in range(rng.randint(0, 3)):
            bird = unlit.at(rng.uniform(LEFT, RIGHT), rng.uniform(6, 30), rng.uniform(-12, 12), rng.uniform(0.7, 1.1))
            wings = [(-6, -2), (-2.6, -3.4), (0, 0), (2.6, -3.4), (6, -2)]
            bird.stroke(wings, 1.3, mix(setting.style.scenery.ink, (255, 255, 255), 0.2), line=False)
