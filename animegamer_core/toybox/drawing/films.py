"""The films' styles and the things in them, read from places.json, and the canvas that places are drawn on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...json_files import read_json
from .pen import RGB, Light, Pen, mix
from .shapes import draw_shapes

LEFT, TOP, RIGHT, BOTTOM = -20, -14, 240, 110  # the canvas, in frame pixels
Shapes = tuple[str, ...]  # see shapes.py


@dataclass(frozen=True)
class FilmStyle:
    """A film's palette: the light by day and by night, and the sky's colours (top, bottom) of both.

    cloud: around (0, 0). sky: its sun, moon, stars. ornament: 36 px of the garland along the top of every place.
    ground: 36 px of what lies on the ground outdoors.
    """

    day: Light
    night: Light
    day_sky: tuple[RGB, RGB]
    night_sky: tuple[RGB, RGB]
    cloud: Shapes
    sky: Shapes
    ornament: Shapes
    ground: Shapes = ()

    def light(self, night: bool) -> Light:
        """Return the light that places are drawn in."""
        return self.night if night else self.day

    def actor_light(self, night: bool) -> Light:
        """Return the weaker light for figures, whose colours must stay recognisable."""
        tint = self.light(night)
        if not night:
            return Light(tint.ink, tint=tint.tint, fraction=tint.fraction * 0.4)
        return Light(tint.ink, gain=(0.86, 0.82, 0.9), lift=(0, 0, 6), tint=tint.tint, fraction=tint.fraction * 0.2)

    def prop_light(self, night: bool) -> Light:
        """Return the light for props: not tinted and hardly dimmed, so that their colour can still be named."""
        ink = self.light(night).ink
        return Light(ink, gain=(0.9, 0.9, 0.94)) if night else Light(ink)


@dataclass(frozen=True)
class Place:
    """A place: the shapes of its far and its near layer."""

    far: Shapes
    near: Shapes
    indoors: bool = False


@dataclass(frozen=True)
class PlacesFile:
    """What is in places.json. things: shapes by name. sides: names of things to put aside, indoors and outdoors."""

    films: dict[str, FilmStyle]
    things: dict[str, Shapes]
    places: dict[str, Place]
    sides: dict[str, Shapes]


WRITTEN = read_json(Path(__file__).with_name("places.json"), PlacesFile)
STYLES = WRITTEN.films


@dataclass(frozen=True)
class Setting:
    """A place's film and time of day."""

    film: str
    night: bool

    def draw(self, pen: Pen, shapes: Shapes) -> None:
        """Draw shapes, which may use things and the colours cloud, pane (of a window), glow and halo (of lamps)."""
        style, white = STYLES[self.film], (255, 255, 255)
        top, bottom = style.night_sky if self.night else style.day_sky
        cloud, pane = mix(bottom, white, 0.12 if self.night else 0.8), top if self.night else mix(top, white, 0.35)
        glow, halo = mix((255, 220, 130), style.night_sky[1], 0.62), mix((255, 214, 130), style.night_sky[1], 0.5)
        colours = {"cloud": cloud, "pane": pane, "glow": glow, "halo": halo}
        draw_shapes(pen, shapes, colours, night=self.night, things=WRITTEN.things)
