"""The places by day and by night, in the style of a film: a far and a near layer, which are cached.

Places are drawn in frame coordinates on a canvas larger than the frame, so that the camera can move.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from PIL import Image

from .films import BOTTOM, LEFT, RIGHT, STYLES, TOP, WRITTEN, Setting
from .pen import RGB, Pen
from .take import Take

CANVAS_SCALE = 4  # the pixels drawn per unit of the frame


@lru_cache(maxsize=2)
def place_canvas(film: str, place: str, time: str, take: Take) -> tuple[Image.Image, Image.Image]:
    """Return a place's far layer (RGB) and near layer (RGBA) as drawn, `CANVAS_SCALE` times the zoomed frame's size."""
    setting = Setting(film, time == "night")
    style = STYLES[film]
    scale = CANVAS_SCALE * take.zoom
    size = (math.ceil((RIGHT - LEFT) * scale), math.ceil((BOTTOM - TOP) * scale))
    far = _gradient(size, *(style.night_sky if setting.night else style.day_sky))
    near = Image.new("RGBA", size)
    behind, before = (Pen.on(layer, style.light(setting.night), scale, (-LEFT, -TOP)) for layer in (far, near))
    for x, y, cloud in take.clouds:
        setting.draw(behind.unlit().at(x, y, 0, cloud), style.cloud)
    setting.draw(behind.unlit(), style.sky)
    setting.draw(behind, WRITTEN.places[place].far)
    setting.draw(before, WRITTEN.places[place].near)
    for thing, (x, y, large) in take.sides:
        setting.draw(before.at(x, y, 0, large), (thing,))
    for x in range(LEFT, RIGHT, 36):
        setting.draw(
            before.at(x, 0), style.ornament if WRITTEN.places[place].indoors else style.ornament + style.ground
        )
    return far, near


def _gradient(size: tuple[int, int], top: RGB, bottom: RGB) -> Image.Image:
    fraction = np.clip(np.linspace(-0.1, 1.5, size[1]), 0, 1)[:, None, None]
    column = np.asarray(top) * (1 - fraction) + np.asarray(bottom) * fraction
    return Image.fromarray(np.broadcast_to(column, (size[1], size[0], 3)).round().astype(np.uint8))
