"""Draws shapes that are written as text, as in looks.json and places.json: "kind colour points".

Kinds: blob (a smooth closed curve), shape (a polygon), oval (centre, radii), box (two corners), path (an open line with
round ends, width=3), or a thing: the name of a list of shapes, in which a colour that follows is called own. A colour
is a name such as hair, or #rrggbb; a last "-" makes it darker, "+" lighter. A point is x,y, or x,y,dx,dy if it sways
(dy may be left out). More words: plain (without outline), @x,y,angle,scale (where to draw it, once for each), every=36
(there and again every 36 pixels), day or night (only then), lit (it glows: the scene's light does not change it).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from .pen import RGB, Pen, mix, spline

END = 240  # where `every` stops, in frame pixels
NOTHING: Mapping[str, tuple[str, ...]] = {}


@dataclass(frozen=True)
class Shape:
    """A parsed shape. still, moved (P, 2): its points, and how sway moves them. spots: where, as for `Pen.at`."""

    kind: str
    fill: str
    still: np.ndarray
    moved: np.ndarray
    spots: list[list[float]]
    words: frozenset[str]
    width: float


@cache
def parse(text: str) -> Shape:
    """Return the shape that a text describes."""
    kind, *rest = text.split()
    fill = rest.pop(0) if rest and not set("@,=") & set(rest[0]) else ""
    rows = [_numbers(word) for word in rest if "," in word and word[0] != "@"]
    table = np.array([[*row, *[0.0] * (4 - len(row))] for row in rows]).reshape(-1, 4)
    if kind == "blob":
        table = spline(len(table)) @ table
    spots = [_numbers(word[1:]) for word in rest if word[0] == "@"]
    options = dict(word.split("=") for word in rest if "=" in word)
    if "every" in options:
        spots = [[x, *more] for start, *more in spots for x in np.arange(start, END, float(options["every"])).tolist()]
    return Shape(kind, fill, table[:, :2], table[:, 2:], spots, frozenset(rest), float(options.get("width", 1)))


def _numbers(text: str) -> list[float]:
    return [float(number) for number in text.split(",")]


def colour_of(name: str, colours: Mapping[str, RGB]) -> RGB:
    """Return the colour of a name in `colours` or of "#rrggbb", darker or lighter by a last "-" or "+"."""
    base = name.rstrip("+-")
    red, green, blue = bytes.fromhex(base[1:]) if base[0] == "#" else colours[base]
    colour = (red, green, blue)
    for sign in name[len(base) :]:
        colour = mix(colour, (40, 30, 60), 0.22) if sign == "-" else mix(colour, (255, 255, 255), 0.4)
    return colour


def draw_shapes(
    pen: Pen,
    texts: Iterable[str],
    colours: Mapping[str, RGB],
    sway: float = 0.0,
    *,
    night: bool = False,
    things: Mapping[str, tuple[str, ...]] = NOTHING,
) -> None:
    """Draw shapes in their order. colours: by name. sway: how far what can sway is moved. things: shapes by name."""
    for text in texts:
        shape = parse(text)
        if ("day" if night else "night") in shape.words:
            continue
        lit = pen.unlit() if "lit" in shape.words else pen
        for at in (lit.at(*spot) for spot in shape.spots) if shape.spots else (lit,):
            if shape.kind in things:
                own = {**colours, "own": colour_of(shape.fill, colours)} if shape.fill else colours
                draw_shapes(at, things[shape.kind], own, sway, night=night, things=things)
            else:
                _draw(at, shape, colour_of(shape.fill, colours), sway)


def _draw(pen: Pen, shape: Shape, colour: RGB, sway: float) -> None:
    points, line = shape.still + sway * shape.moved if sway else shape.still, "plain" not in shape.words
    if shape.kind in ("blob", "shape"):
        pen.shape(points, colour, line=line)
    elif shape.kind == "path":
        pen.stroke(points, shape.width, colour, line=line)
    else:
        (x, y), (right, bottom) = points.tolist()
        (pen.oval if shape.kind == "oval" else pen.box)(x, y, right, bottom, colour, line=line)
