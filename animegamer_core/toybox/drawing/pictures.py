"""Reads and paints pictures that are text: a line for each shape, in the order of drawing.

    [LAYER] KIND COLOUR [WORDS] POINTS

KIND: shape (a polygon), blob (a smooth closed curve), oval and ring (middle and radii), stroke (a path, `width=`).
COLOUR: r,g,b, or a name; a~b~f is a moved towards b by f, a|b|c one of several. WORDS: plain (no outline), flat (no
shaded part), glow (not under the scene's light), both (also its mirror image), day or night (only then),
at=x,y,angle,scale (where its points are from), if=f (only if the number that varies it is at least f). `repeat N at x,y
...`: the next N lines at all of these places. `[name]` begins a picture, # a comment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from .pen import RGB, Light, Pen, mix

KINDS = ("shape", "blob", "oval", "ring", "stroke")


@dataclass(frozen=True, eq=False)
class Part:
    """One shape of a picture. points: (P, 2)."""

    layer: str
    kind: str
    colour: str
    words: frozenset[str]
    options: Mapping[str, tuple[float, ...]]
    points: np.ndarray

    def moved(self, x: float, y: float) -> Part:
        """The shape elsewhere."""
        if "at" in self.options:
            left, top, *rest = self.options["at"]
            return replace(self, options={**self.options, "at": (left + x, top + y, *rest)})
        rows = 1 if self.kind == "oval" else len(self.points)  # an oval's second row is its radii
        return replace(self, points=np.concatenate([self.points[:rows] + (x, y), self.points[rows:]]))


@cache
def lines_of(name: str) -> dict[str, list[str]]:
    """The lines of each picture, or other section, of a file of this folder."""
    sections: dict[str, list[str]] = {}
    for line in Path(__file__).with_name(f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            lines = sections.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            lines.append(line)
    return sections


@cache
def picture(file: str, name: str) -> tuple[Part, ...]:
    """A picture of a file, its repetitions written out."""
    parts: list[Part] = []
    rest = iter(lines_of(file)[name])
    for line in rest:
        if line.startswith("repeat"):
            _, count, _, *places = line.split()
            repeated = [_part(next(rest)) for _ in range(int(count))]
            parts += [part.moved(*numbers(place)) for place in places for part in repeated]
        else:
            parts.append(_part(line))
    return tuple(parts)


def _part(line: str) -> Part:
    words = line.split()
    layer = words.pop(0) if words[0] not in KINDS else ""
    kind, colour, *rest = words
    options = dict(word.split("=") for word in rest if "=" in word)
    points = [numbers(word) for word in rest if "," in word and "=" not in word]
    flags = frozenset(word for word in rest if "," not in word and "=" not in word)
    return Part(layer, kind, colour, flags, {key: numbers(value) for key, value in options.items()}, np.array(points))


def numbers(text: str) -> tuple[float, ...]:
    """Numbers with commas between them."""
    return tuple(map(float, text.split(",")))


def colour_of(text: str, names: Mapping[str, RGB], vary: float = 0.0) -> RGB:
    """A colour as a line states it. names: the colours that have names. vary: 0..1, chooses one of several."""
    if "|" in text:
        choices = text.split("|")
        return colour_of(choices[int(vary * (len(choices) - 0.01))], names)
    if "~" in text:
        first, second, fraction = text.split("~")
        return mix(colour_of(first, names), colour_of(second, names), float(fraction))
    if text in names:
        return names[text]
    red, green, blue = map(int, text.split(","))
    return red, green, blue


def paint(
    pens: Mapping[str, Pen], parts: Iterable[Part], names: Mapping[str, RGB], without: str = "", vary: float = 0.0
) -> None:
    """Draw a picture with a pen for each of its layers. without: the word of shapes that are left out."""
    for part in parts:
        if without in part.words or part.options.get("if", (0.0,))[0] > vary:
            continue
        pen = pens[part.layer]
        if "glow" in part.words:
            pen = pen.under(Light())
        if "at" in part.options:
            pen = pen.at(*part.options["at"])
        colour, line = colour_of(part.colour, names, vary), "plain" not in part.words
        if part.kind == "oval":
            x, y, rx, ry = part.points.ravel()
            pen.oval(x, y, rx, ry, colour, line=line)
        elif part.kind == "stroke":
            pen.stroke(part.points, part.options["width"][0], colour, line=line, cel="flat" not in part.words)
        else:
            draw = pen.blob if part.kind == "blob" else pen.shape
            draw(part.points, colour, line=line, cel="flat" not in part.words)
