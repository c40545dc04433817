"""The eight places by day and by night, in each film's style: a far and a near layer, which are cached.

Places are drawn in frame coordinates on a canvas larger than the frame, so that the camera can move.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from PIL import Image

from .films import BOTTOM, LEFT, RIGHT, STYLES, TOP, Setting, unlit_pen
from .indoors import INDOORS
from .outdoors import OUTDOORS
from .pen import RGB, Pen, mix

PLACE_SCALE = 2  # the layers' pixels per frame pixel
CANVAS_SCALE = 4  # the pixels drawn per frame pixel


@lru_cache(maxsize=48)
def place_layers(film: str, place: str, time: str) -> tuple[Image.Image, Image.Image]:
    """Return a place's far layer (RGB) and near layer, `PLACE_SCALE` times frame size, drawn once per process.

    The near layer has premultiplied alpha (Pillow's RGBa), so that it can be resampled.
    """
    far, near = place_canvas(film, place, time)
    return far.reduce(CANVAS_SCALE // PLACE_SCALE), near.reduce(CANVAS_SCALE // PLACE_SCALE).convert("RGBa")


@lru_cache(maxsize=24)
def place_canvas(film: str, place: str, time: str) -> tuple[Image.Image, Image.Image]:
    """Return a place's far layer (RGB) and near layer (RGBA) as they are drawn, `CANVAS_SCALE` times frame size."""
    setting = Setting(film, time == "night")
    style = STYLES[film]
    size = ((RIGHT - LEFT) * CANVAS_SCALE, (BOTTOM - TOP) * CANVAS_SCALE)
    far = _gradient(size, *(style.night_sky if setting.night else style.day_sky))
    near = Image.new("RGBA", size)
    behind, before = (Pen.on(layer, style.light(setting.night), CANVAS_SCALE, (-LEFT, -TOP)) for layer in (far, near))
    _sky(behind, setting)
    (OUTDOORS | INDOORS)[place](behind, before, setting)
    _ornament(before, setting)
    return far, near


def _gradient(size: tuple[int, int], top: RGB, bottom: RGB) -> Image.Image:
    fraction = np.clip(np.linspace(-0.1, 1.5, size[1]), 0, 1)[:, None, None]
    column = np.asarray(top) * (1 - fraction) + np.asarray(bottom) * fraction
    return Image.fromarray(np.broadcast_to(column, (size[1], size[0], 3)).round().astype(np.uint8))


def _sky(pen: Pen, setting: Setting) -> None:
    unlit = unlit_pen(pen)
    style = STYLES[setting.film]
    top, bottom = style.night_sky if setting.night else style.day_sky
    cloud = mix(bottom, (255, 255, 255), 0.12 if setting.night else 0.8)
    for x, y, size in ((8, 22, 1.0), (92, 12, 1.2), (170, 24, 1.0), (214, 8, 0.9)):
        _cloud(unlit.at(x, y, 0, size), cloud, setting.film)
    if setting.night:
        for x, y in ((-8, 6), (22, 4), (60, 20), (84, 34), (132, 36), (150, 6), (190, 8)):
            unlit.oval(x, y, 1.5, 1.5, mix((255, 250, 214), top, 0.1), line=False)
        for radius, fraction in ((17, 0.82), (14, 0.66)):
            unlit.oval(116, 16, radius, radius, mix((255, 246, 206), top, fraction), line=False)
        unlit.oval(116, 16, 10.5, 10.5, (255, 246, 206), line=False)
    elif setting.film != "harbour":
        unlit.oval(118, 14, 14, 14, mix((255, 244, 190), top, 0.5), line=False)
        unlit.oval(118, 14, 10, 10, (255, 244, 190), line=False)


def _cloud(pen: Pen, colour: RGB, film: str) -> None:
    if film == "harbour":
        for x, y, rx in ((0, 0, 26), (12, 5, 22), (-8, -4, 14)):
            pen.oval(x, y, rx, 3.2, colour, line=False)
    elif film == "lantern":
        for x, y, r in ((-14, 2, 8), (0, -2, 10), (14, 2, 8)):
            pen.oval(x, y, r, r, colour, line=False)
            pen.oval(x, y + 1, r * 0.45, r * 0.45, mix(colour, (220, 150, 190), 0.35), line=False)
        pen.oval(0, 8, 24, 3, colour, line=False)
    else:
        pen.blob(
            [(-24, 5), (-20, -3), (-10, -4), (-3, -11), (8, -9), (13, -2), (22, -1), (24, 5), (0, 7)],
            colour,
            line=False,
        )


def _ornament(pen: Pen, setting: Setting) -> None:
    """Draw the film's garland (lanterns, flags or leaves) along the top of a place."""
    unlit = unlit_pen(pen)
    for x in range(LEFT, RIGHT, 36):
        if setting.film == "lantern":
            glow = (255, 196, 96) if setting.night else (250, 150, 104)
            unlit.stroke([(x, -3), (x + 18, 1), (x + 36, -3)], 1.4, (120, 70, 90), line=False)
            unlit.oval(x + 18, 7, 5.6, 6.4, glow)
            unlit.oval(x + 18, 7, 2.4, 6, mix(glow, (255, 255, 220), 0.5), line=False)
        elif setting.film == "harbour":
            pen.stroke([(x, -4), (x + 36, -4)], 1.4, (240, 244, 250), line=False)
            for step, colour in ((4, (250, 250, 250)), (22, (96, 150, 220))):
                pen.shape([(x + step, -4), (x + step + 11, -4), (x + step + 5.5, 7)], colour)
        else:
            for step, drop in ((0, 3), (12, 6), (24, 2)):
                pen.oval(x + step + 6, drop - 8, 9.5, 9, (116, 178, 84) if step != 12 else (140, 196, 96), line=False)
