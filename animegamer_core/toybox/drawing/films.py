"""The five films' styles: line, light, shading, sky, eyes, and what is done to a finished background."""

from __future__ import annotations

from dataclasses import dataclass

from .pen import RGB, Light, Line

LEFT, TOP, RIGHT, BOTTOM = -30, -16, 226, 112  # the canvas of a place, in units


@dataclass(frozen=True)
class Eyes:
    """How a film draws eyes. wide, high: radii in units. white: whether the eye's white is seen. lash: length of the
    lashes. iris: the iris's part of the eye. sharp: with corners.
    """

    wide: float
    high: float
    white: bool = False
    lash: float = 0.0
    iris: float = 0.72
    sharp: bool = False


@dataclass(frozen=True)
class FilmStyle:
    """A film's style. line: of its characters; scenery: of its places. treatment: `wash`, `clear`, `glow`, `grid` or
    `paper`. day_sky, night_sky: colours (top, bottom). lamp: the colour of its lamps and ornaments. rim: the colour of
    the light on its characters' edges, if any.
    """

    line: Line
    scenery: Line
    eyes: Eyes
    day: Light
    night: Light
    day_sky: tuple[RGB, RGB]
    night_sky: tuple[RGB, RGB]
    treatment: str
    lamp: RGB
    rim: RGB | None = None

    def light(self, night: bool) -> Light:
        """Return the light that places are drawn in."""
        return self.night if night else self.day

    def actor_light(self, night: bool) -> Light:
        """Return the weaker light for figures, whose colours must stay recognisable."""
        tint = self.light(night)
        if not night:
            return Light(tint=tint.tint, fraction=tint.fraction * 0.35)
        return Light(gain=(0.88, 0.85, 0.93), lift=(0, 0, 6), tint=tint.tint, fraction=tint.fraction * 0.25)

    def prop_light(self, night: bool) -> Light:
        """Return the light for props: not tinted and hardly dimmed, so that their colour can still be named."""
        return Light(gain=(0.92, 0.92, 0.95)) if night else Light()


STYLES: dict[str, FilmStyle] = {
    # a warm picture book: brown soft lines, rounded shades, washes of water colour
    "meadow": FilmStyle(
        Line(0.5, (96, 52, 36), 0.62, (196, 108, 92), 0.3),
        Line(0.4, (110, 78, 50), 0.5),
        Eyes(3.0, 4.1, iris=0.76),
        Light(tint=(255, 240, 196), fraction=0.14),
        Light((0.34, 0.46, 0.54), (12, 20, 38), (30, 92, 96), 0.14),
        ((116, 192, 236), (246, 248, 226)),
        ((16, 46, 86), (84, 136, 146)),
        "wash",
        (255, 214, 120),
    ),
    # clear line of the sea side: thin navy ink, flat colours, small dark eyes
    "harbour": FilmStyle(
        Line(0.42, (18, 34, 84), 0.95),
        Line(0.34, (34, 62, 118), 0.8),
        Eyes(1.9, 3.1, iris=0.45),
        Light(tint=(206, 234, 255), fraction=0.22),
        Light((0.3, 0.44, 0.7), (6, 16, 52), (30, 60, 130), 0.2),
        ((64, 156, 244), (206, 240, 255)),
        ((10, 26, 92), (52, 98, 176)),
        "clear",
        (255, 244, 190),
    ),
    # a fairy tale at dusk: plum lines, deep violet shades, long lashes, glowing lamps
    "lantern": FilmStyle(
        Line(0.55, (70, 22, 88), 0.72, (128, 54, 150), 0.36),
        Line(0.45, (104, 46, 108), 0.6),
        Eyes(3.3, 4.0, white=True, lash=2.0, iris=0.66),
        Light(tint=(255, 186, 206), fraction=0.3),
        Light((0.46, 0.36, 0.62), (22, 8, 48), (104, 40, 124), 0.18),
        ((168, 136, 228), (255, 212, 186)),
        ((42, 18, 92), (138, 72, 152)),
        "glow",
        (255, 186, 92),
    ),
    # a space adventure: heavy dark lines, hard teal shades, a cyan rim, sharp eyes
    "orbit": FilmStyle(
        Line(0.72, (14, 22, 34), 0.9, (24, 92, 116), 0.42),
        Line(0.5, (20, 44, 60), 0.75),
        Eyes(3.2, 3.4, white=True, iris=0.6, sharp=True),
        Light((0.86, 0.98, 0.96), tint=(120, 222, 214), fraction=0.24),
        Light((0.26, 0.44, 0.5), (4, 22, 34), (20, 110, 120), 0.2),
        ((58, 178, 190), (232, 250, 214)),
        ((6, 24, 44), (26, 104, 122)),
        "grid",
        (120, 255, 226),
        rim=(150, 255, 240),
    ),
    # a winter's tale on paper: loose black ink, pale colours, hatching, dark pearl eyes
    "frost": FilmStyle(
        Line(0.6, (40, 40, 56), 1.0, (150, 160, 196), 0.4),
        Line(0.46, (92, 96, 118), 0.9),
        Eyes(2.5, 3.5, lash=1.0, iris=0.58),
        Light((0.9, 0.9, 0.92), (16, 16, 18), (246, 246, 252), 0.42),
        Light((0.42, 0.44, 0.54), (22, 24, 40), (92, 98, 140), 0.3),
        ((196, 214, 236), (250, 246, 240)),
        ((44, 50, 88), (132, 140, 176)),
        "paper",
        (255, 226, 160),
    ),
}


@dataclass(frozen=True)
class Setting:
    """A place's film and time of day."""

    film: str
    night: bool

    @property
    def style(self) -> FilmStyle:
        """The film's style."""
        return STYLES[self.film]

    @property
    def sky(self) -> tuple[RGB, RGB]:
        """The sky's colours, top and bottom."""
        return self.style.night_sky if self.night else self.style.day_sky
