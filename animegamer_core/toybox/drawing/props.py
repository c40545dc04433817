"""Draws the six props. A game chooses its prop's colour; the scarf is drawn with the figure that wears it."""

from __future__ import annotations

from .pen import RGB, Pen, mix

GLASS, TYRE, HUB, WOOD, WHITE, SHADE = (
    (206, 232, 244), (62, 58, 70), (222, 220, 214), (140, 96, 64), (255, 255, 255), (40, 30, 60),
)  # fmt: skip


def draw_car(pen: Pen, colour: RGB, bob: float) -> None:
    """Draw a small round car, 92 units wide and about 45 high, on the ground at y = 0. bob: how far its body sinks."""
    shade = mix(colour, SHADE, 0.28)
    body = pen.at(0, bob)
    body.blob([(-26, -22), (-20, -40), (0, -43), (20, -40), (28, -22), (0, -18)], colour)
    for x in (-10, 11):
        body.blob([(x - 9, -24), (x - 7, -36), (x, -38), (x + 7, -36), (x + 9, -24)], GLASS)
        body.stroke([(x - 4, -26), (x, -35)], 1.6, WHITE, line=False)
    body.blob(
        [(-46, -12), (-45, -22), (-34, -26), (0, -25), (34, -26), (45, -21), (46, -11), (40, -5), (-40, -5)], colour
    )
    body.blob([(-46, -9), (-30, -12), (30, -12), (46, -9), (40, -4), (-40, -4)], shade, line=False)
    body.stroke([(-40, -21.6), (-10, -22.4)], 1.6, mix(colour, WHITE, 0.5), line=False)
    body.stroke([(0.5, -23), (0.5, -12)], 0.8, shade, line=False)
    body.stroke([(5, -19), (9, -19)], 1.4, HUB, line=False)
    for x in (-43, 43):
        body.oval(x, -18, 3.2, 3.6, (255, 246, 200))
    for x in (-27, 27):
        pen.oval(x, -7, 9, 9, TYRE)
        pen.oval(x, -7, 4.6, 4.6, HUB, line=False)
        pen.oval(x, -7, 1.6, 1.6, TYRE, line=False)


def draw_umbrella(pen: Pen, colour: RGB, sway: float) -> None:
    """Draw an open umbrella that stands on the ground at (0, 0), turned by `sway` degrees."""
    top = pen.at(0, 0, sway)
    shade = mix(colour, SHADE, 0.22)
    top.stroke([(0, -50), (0, -2), (-3, 2), (-6, -1)], 2.0, WOOD)
    canopy = [(-23, -34), (-18, -48), (0, -56), (18, -48), (23, -34), (15, -36.5), (8, -34), (0, -36.5), (-8, -34)]
    top.blob([*canopy, (-15, -36.5)], colour)
    top.shape([(-8, -35), (-6, -46), (0, -55), (6, -46), (8, -35), (0, -37)], shade, line=False)
    top.stroke([(-15, -40), (-12, -47), (-6, -52)], 1.5, mix(colour, WHITE, 0.5), line=False)
    top.oval(0, -56.5, 1.4, 2.2, WOOD)


def draw_scarf(pen: Pen, colour: RGB, flutter: float) -> None:
    """Draw a scarf round a neck at (0, 0); its long end flies to the left, turned by `flutter` degrees."""
    shade = mix(colour, SHADE, 0.24)
    end = pen.at(-7, 1, flutter)
    end.blob([(2, -4), (-8, -6), (-18, -3), (-26, -6), (-27, 4), (-18, 7), (-8, 4), (2, 5)], colour, cel=False)
    for y in (-5, -2.8, -0.6, 1.6, 3.6):
        end.stroke([(-25, y), (-28.6, y + 0.2)], 0.8, shade, line=False)
    end.stroke([(-20, -3.4), (-20.4, 5)], 1.6, mix(colour, WHITE, 0.55), line=False)
    pen.blob([(3, 1), (9, 0), (11, 9), (9, 17), (3, 16), (4, 8)], shade, cel=False)
    pen.blob([(-12.5, -2), (-6, -4.5), (6, -4.5), (12.5, -2), (12, 4), (0, 7), (-12, 4)], colour)
    pen.stroke([(-7, 0.6), (0, 2.6), (6, 1.2)], 0.9, shade, line=False, cel=False)


def draw_balloon(pen: Pen, colour: RGB, sway: float) -> None:
    """Draw a balloon on a string from (0, 0), about 50 units high, turned by `sway` degrees."""
    top = pen.at(0, 0, sway)
    top.stroke([(0, 0), (1.6, -10), (-1, -20), (0, -29)], 0.7, (236, 232, 224), line=False)
    top.shape([(-2.6, -27), (2.6, -27), (0, -30.5)], mix(colour, SHADE, 0.2))
    top.blob([(0, -29.5), (-9, -37), (-12.4, -47), (-7, -57), (0, -59.5), (7, -57), (12.4, -47), (9, -37)], colour)
    top.blob([(9.6, -44), (11, -48), (7, -37), (0, -32), (5, -38)], mix(colour, SHADE, 0.18), line=False)
    top.oval(-5, -51.5, 2.3, 3.8, mix(colour, WHITE, 0.7), line=False)
    top.blob([(0, 1), (-6, 4), (-5, -1), (0, 0), (5, -1), (6, 4)], (250, 244, 236))


def draw_kite(pen: Pen, colour: RGB, sway: float) -> None:
    """Draw a kite in the air around (0, 0), with its string to the lower left, turned by `sway` degrees."""
    pen.stroke([(0, 8), (-13, 34), (-34, 58)], 0.6, (240, 236, 228), line=False)
    top = pen.at(0, 0, 12 + sway)
    shade, bright = mix(colour, SHADE, 0.24), mix(colour, WHITE, 0.45)
    top.shape([(0, -17), (13, -2), (0, 19), (-13, -2)], colour, cel=False)
    top.shape([(0, -16), (12, -2), (0, -2)], bright, line=False)
    top.shape([(0, -2), (0, 18), (-12, -2)], shade, line=False)
    top.stroke([(0, 19), (-3, 25), (2, 30), (-2, 36)], 0.8, WOOD, line=False)
    for x, y in ((-2.5, 25), (1.4, 31), (-1.6, 36.5)):
        top.shape([(x, y), (x - 4, y - 2.4), (x - 4, y + 2.4)], colour, cel=False)
        top.shape([(x, y), (x + 4, y - 2.4), (x + 4, y + 2.4)], colour, cel=False)


def draw_ball(pen: Pen, colour: RGB, turned: float) -> None:
    """Draw a striped ball that lies on the ground at (0, 0), rolled by `turned` degrees."""
    pen.oval(0, -9.5, 9.5, 9.5, colour)
    ball = pen.at(0, -9.5, turned)
    ball.blob(
        [(-2.6, -9.2), (2.6, -9.2), (4.4, 0), (2.6, 9.2), (-2.6, 9.2), (-4.4, 0)], mix(colour, WHITE, 0.72), line=False
    )
    ball.blob([(-9, -2), (0, -3.6), (9, -2), (9, 2), (0, 3.6), (-9, 2)], mix(colour, WHITE, 0.36), line=False)
    ball.oval(0, 0, 2.6, 2.6, mix(colour, SHADE, 0.25), line=False)
    pen.oval(-4, -14.4, 2, 1.5, mix(colour, WHITE, 0.9), line=False)
