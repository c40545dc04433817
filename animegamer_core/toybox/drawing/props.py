"""Draws the three props: car, umbrella and scarf. A game chooses its prop's colour once."""

from __future__ import annotations

from .pen import RGB, Pen, mix, points

GLASS, TYRE, HUB, WOOD = (196, 226, 240), (62, 58, 70), (222, 220, 214), (140, 96, 64)


def draw_car(pen: Pen, colour: RGB, bob: float) -> None:
    """Draw a small round car, 92 px wide and about 45 px high, on the ground at y = 0. bob: px that lower its body."""
    shade = mix(colour, (40, 30, 60), 0.28)
    body = pen.at(0, bob)
    body.blob([(-26, -22), (-20, -40), (0, -43), (20, -40), (28, -22), (0, -18)], colour)
    for x in (-10, 11):
        body.blob([(x - 9, -24), (x - 7, -36), (x, -38), (x + 7, -36), (x + 9, -24)], GLASS)
    body.blob(
        [(-46, -12), (-45, -22), (-34, -26), (0, -25), (34, -26), (45, -21), (46, -11), (40, -5), (-40, -5)], colour
    )
    body.blob([(-46, -9), (-30, -12), (30, -12), (46, -9), (40, -4), (-40, -4)], shade, line=False)
    for x in (-43, 43):
        body.oval(x, -18, 3.2, 3.6, (255, 246, 200))
    for x in (-27, 27):
        pen.oval(x, -7, 9, 9, TYRE)
        pen.oval(x, -7, 4.2, 4.2, HUB, line=False)


def draw_umbrella(pen: Pen, colour: RGB, sway: float) -> None:
    """Draw an open umbrella that stands on the ground at (0, 0), turned by `sway` degrees."""
    top = pen.at(0, 0, sway)
    shade = mix(colour, (40, 30, 60), 0.22)
    top.stroke([(0, -50), (0, -2), (-3, 2), (-6, -1)], 2.2, WOOD)
    top.blob(
        points("-23,-34 -18,-48 0,-56 18,-48 23,-34 15,-36.5 8,-34 0,-36.5 -8,-34 -15,-36.5"),
        colour,
    )
    top.shape([(-8, -35), (-6, -46), (0, -55), (6, -46), (8, -35), (0, -37)], shade, line=False)
    top.oval(0, -56.5, 1.6, 2.2, WOOD)


def draw_scarf(pen: Pen, colour: RGB, flutter: float) -> None:
    """Draw a scarf round a neck at (0, 0); its long end flies to the left, turned by `flutter` degrees."""
    shade = mix(colour, (40, 30, 60), 0.24)
    end = pen.at(-7, 1, flutter)
    end.blob([(2, -4), (-8, -6), (-18, -3), (-26, -6), (-27, 4), (-18, 7), (-8, 4), (2, 5)], colour)
    pen.blob([(3, 1), (9, 0), (11, 9), (9, 17), (3, 16), (4, 8)], shade)
    pen.blob([(-12.5, -2), (-6, -4.5), (6, -4.5), (12.5, -2), (12, 4), (0, 7), (-12, 4)], colour)
