"""The three films' styles, and the canvas that places are drawn on."""

from __future__ import annotations

from dataclasses import dataclass

from .pen import RGB, Light, Pen

LEFT, TOP, RIGHT, BOTTOM = -20, -14, 240, 110  # the canvas, in frame pixels


@dataclass(frozen=True)
class FilmStyle:
    """A film's palette: the light by day and by night, and the sky's colours (top, bottom) of both."""

    day: Light
    night: Light
    day_sky: tuple[RGB, RGB]
    night_sky: tuple[RGB, RGB]

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


STYLES: dict[str, FilmStyle] = {
    "meadow": FilmStyle(
        Light((92, 60, 40), tint=(255, 238, 190), fraction=0.16),
        Light((34, 26, 44), gain=(0.32, 0.44, 0.52), lift=(10, 18, 36), tint=(30, 92, 96), fraction=0.16),
        ((112, 190, 236), (238, 248, 232)),
        ((14, 44, 82), (74, 128, 140)),
    ),
    "harbour": FilmStyle(
        Light((38, 62, 104), tint=(206, 234, 255), fraction=0.26),
        Light((16, 26, 62), gain=(0.28, 0.42, 0.68), lift=(6, 16, 52), tint=(30, 60, 130), fraction=0.2),
        ((70, 156, 240), (214, 242, 255)),
        ((10, 26, 92), (48, 92, 168)),
    ),
    "lantern": FilmStyle(
        Light((98, 44, 92), tint=(255, 190, 206), fraction=0.28),
        Light((40, 18, 60), gain=(0.44, 0.36, 0.62), lift=(20, 8, 46), tint=(96, 40, 120), fraction=0.18),
        ((176, 140, 226), (255, 214, 190)),
        ((44, 20, 92), (128, 70, 150)),
    ),
}


@dataclass(frozen=True)
class Setting:
    """A place's film and time of day."""

    film: str
    night: bool


def unlit_pen(pen: Pen) -> Pen:
    """Return the pen without the scene's light, for things that glow."""
    return pen.under(Light(pen.light.ink))
