"""Draws scarves, and the things of things.json: the other props, and what motions need."""

from __future__ import annotations

from pathlib import Path

from ...json_files import read_json
from .looks import WHITE
from .pen import RGB, Pen, mix
from .shapes import draw_shapes

THINGS: dict[str, tuple[str, ...]] = read_json(Path(__file__).with_name("things.json"), dict[str, tuple[str, ...]])


def draw_thing(pen: Pen, name: str, sway: float = 0.0, colour: RGB = WHITE) -> None:
    """Draw a thing of things.json, where `colour` is called own. sway: how far what can sway is moved."""
    draw_shapes(pen, THINGS[name], {"own": colour, "shade": mix(colour, (40, 30, 60), 0.28)}, sway)


def draw_scarf(pen: Pen, colour: RGB, flutter: float) -> None:
    """Draw a scarf round a neck at (0, 0); its long end flies to the left, turned by `flutter` degrees."""
    shade = mix(colour, (40, 30, 60), 0.24)
    end = pen.at(-7, 1, flutter)
    end.blob([(2, -4), (-8, -6), (-18, -3), (-26, -6), (-27, 4), (-18, 7), (-8, 4), (2, 5)], colour)
    pen.blob([(3, 1), (9, 0), (11, 9), (9, 17), (3, 16), (4, 8)], shade)
    pen.blob([(-12.5, -2), (-6, -4.5), (6, -4.5), (12.5, -2), (12, 4), (0, 7), (-12, 4)], colour)
