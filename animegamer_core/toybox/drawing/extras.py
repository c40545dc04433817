"""Small things that a shot's seed adds to a place: they stand on the ground, and no instruction names them."""

from __future__ import annotations

from collections.abc import Callable

from .pen import RGB, Pen, mix

WOOD, WHITE, GREEN, GREY = (178, 122, 80), (252, 252, 252), (96, 168, 88), (168, 172, 184)
Extra = Callable[[Pen, float], None]  # (pen on the ground, a number 0..1 that varies it)
TONES: tuple[RGB, ...] = ((236, 120, 110), (120, 160, 226), (246, 196, 96), (150, 190, 140), (196, 150, 214))


def _tone(vary: float) -> RGB:
    return TONES[int(vary * 4.99)]


def _crab(pen: Pen, vary: float) -> None:
    for side in (-1, 1):
        pen.stroke([(side * 5, -3), (side * 9, 0)], 1.2, (236, 96, 70))
        pen.oval(side * 8, -8, 2.6, 2.2, (236, 96, 70))
        pen.stroke([(side * 2, -7), (side * 2.4, -10)], 0.9, (60, 40, 50), line=False)
    pen.oval(0, -4, 6.4, 4, (244, 116, 84))


def _shell(pen: Pen, vary: float) -> None:
    pen.blob([(-5, 0), (-6, -5), (0, -9), (6, -5), (5, 0)], mix(_tone(vary), WHITE, 0.5))
    for x in (-2.6, 0, 2.6):
        pen.stroke([(x * 0.5, -1), (x, -6.4)], 0.7, mix(_tone(vary), WHITE, 0.15), line=False)


def _sandcastle(pen: Pen, vary: float) -> None:
    for x, top in ((-7, -9), (7, -9), (0, -14)):
        pen.box(x - 4, top, x + 4, 0, (232, 196, 124))
        pen.shape([(x - 5, top), (x, top - 6), (x + 5, top)], (222, 178, 104))
    pen.stroke([(0, -20), (0, -26)], 0.8, WOOD, line=False)
    pen.shape([(0, -26), (6, -24), (0, -22)], _tone(vary))


def _mushroom(pen: Pen, vary: float) -> None:
    pen.blob([(-2.4, 0), (-2, -8), (2, -8), (2.4, 0)], (250, 240, 220))
    pen.blob([(-8, -6), (-5, -13), (5, -13), (8, -6), (0, -5)], _tone(vary))
    for x, y in ((-3, -9), (2.6, -11), (4, -7.6)):
        pen.oval(x, y, 1.2, 1.1, WHITE, line=False)


def _stump(pen: Pen, vary: float) -> None:
    pen.blob([(-10, 1), (-8, -9), (8, -9), (10, 1)], (150, 106, 76))
    pen.oval(0, -9, 8, 2.8, (226, 190, 140))
    pen.oval(0, -9, 4, 1.4, (196, 152, 104), line=False)


def _rabbit(pen: Pen, vary: float) -> None:
    colour = ((250, 246, 240), (196, 160, 130), (176, 176, 190))[int(vary * 2.99)]
    for x in (-2, 2):
        pen.blob([(x - 1.4, -11), (x * 1.4 - 1, -19), (x * 1.4 + 1, -19), (x + 1.4, -11)], colour)
    pen.oval(4, -4, 6, 4.6, colour)
    pen.oval(9.6, -4, 2, 2, WHITE, line=False)
    pen.oval(-1, -9, 4.4, 4, colour)
    pen.oval(-3, -9.4, 0.8, 1, (50, 40, 50), line=False)


def _rock(pen: Pen, vary: float) -> None:
    pen.blob([(-11, 1), (-9, -7), (-2, -11), (7, -8), (11, 1)], GREY)
    pen.blob([(-7, -6), (-2, -9.6), (4, -7.6), (-2, -6)], mix(GREY, WHITE, 0.5), line=False)


def _flowers(pen: Pen, vary: float) -> None:
    for x, high in ((-6, 9), (0, 13), (6, 10)):
        pen.stroke([(x * 0.6, 0), (x, -high)], 1.1, GREEN, line=False)
        for dx, dy in ((-2.1, 0), (2.1, 0), (0, -2.1), (0, 2.1)):
            pen.oval(x + dx, -high + dy, 1.9, 1.9, _tone(vary), line=False)
        pen.oval(x, -high, 1.5, 1.5, (255, 226, 120), line=False)


def _sheep(pen: Pen, vary: float) -> None:
    for x in (-5, 6):
        pen.stroke([(x, -4), (x, 0)], 1.8, (70, 62, 70))
    for x, y in ((-5, -8), (0, -10), (6, -8), (1, -6)):
        pen.oval(x, y, 5.4, 4.6, (252, 250, 244))
    pen.oval(-10, -9.6, 3, 3.4, (70, 62, 70))


def _box(pen: Pen, vary: float) -> None:
    pen.stroke([(0, 0), (0, -16)], 2.4, (110, 112, 130))
    pen.blob([(-7, -16), (-7, -26), (0, -30), (7, -26), (7, -16)], (214, 70, 70))
    pen.stroke([(-3.6, -23), (3.6, -23)], 1.3, (60, 40, 50), line=False)


def _pot(pen: Pen, vary: float) -> None:
    for dx in (-6, -2, 3, 7):
        pen.blob([(dx * 0.3, -8), (dx - 2, -15), (dx, -21), (dx + 2, -15)], GREEN)
    pen.shape([(-6, -10), (6, -10), (4.4, 0), (-4.4, 0)], (206, 122, 88))
    pen.box(-7, -11.4, 7, -8.4, (222, 140, 102))


def _bench(pen: Pen, vary: float) -> None:
    for x in (-13, 13):
        pen.stroke([(x, 0), (x, -16)], 1.8, (90, 92, 110))
    for y in (-7, -12, -16):
        pen.stroke([(-16, y), (16, y)], 2.4, mix(WOOD, _tone(vary), 0.3))


def _flag(pen: Pen, vary: float) -> None:
    pen.stroke([(0, 0), (0, -34)], 1.6, (214, 206, 190))
    pen.blob([(0, -34), (8, -32), (16, -35), (16, -25), (8, -22), (0, -24)], _tone(vary))
    pen.oval(7.6, -28.4, 2.6, 2.6, (255, 236, 160), line=False)


def _basket(pen: Pen, vary: float) -> None:
    for x, colour in ((-4, (236, 84, 74)), (1, (250, 190, 70)), (5, (150, 196, 90))):
        pen.oval(x, -9, 3.6, 3.6, colour)
    pen.blob([(-9, -8), (9, -8), (7, 0), (-7, 0)], (206, 158, 102))
    pen.stroke([(-8, -5), (8, -5)], 0.8, (166, 118, 72), line=False)


def _kettle(pen: Pen, vary: float) -> None:
    pen.stroke([(6, -6), (11, -10)], 2.2, _tone(vary))
    pen.blob([(-7, 0), (-8, -7), (0, -12), (8, -7), (7, 0)], _tone(vary))
    pen.oval(0, -12, 1.7, 1.7, WOOD)


def _teddy(pen: Pen, vary: float) -> None:
    colour = mix((206, 160, 112), _tone(vary), 0.3)
    for side in (-1, 1):
        pen.oval(side * 4, -16, 2.6, 2.6, colour)
        pen.oval(side * 5, -2, 3, 2.6, colour)
    pen.oval(0, -5, 5.4, 5.4, colour)
    pen.oval(0, -12.6, 5.4, 4.8, colour)
    for side in (-1, 1):
        pen.oval(side * 2, -13, 0.8, 0.9, (50, 40, 50), line=False)


def _blocks(pen: Pen, vary: float) -> None:
    for x, y, tone in ((-6, 0, 0), (5, 0, 1), (-0.5, -10, 2)):
        pen.box(x - 5, y - 10, x + 5, y, TONES[(tone + int(vary * 5)) % 5])


def _books(pen: Pen, vary: float) -> None:
    for index in range(2 + int(vary * 2.99)):
        dx = (index * 7 % 4) - 1.5
        pen.box(dx - 9, -5 - 5 * index, dx + 9, -5 * index, TONES[(index * 2 + int(vary * 5)) % 5])
        pen.stroke([(dx - 8, -2.5 - 5 * index), (dx - 2, -2.5 - 5 * index)], 0.8, WHITE, line=False)


def _globe(pen: Pen, vary: float) -> None:
    pen.blob([(-5, 0), (0, -3), (5, 0)], WOOD)
    pen.oval(0, -10, 7.4, 7.4, (110, 180, 226))
    pen.blob([(-4, -13), (1, -14), (2, -10), (-2, -8)], (120, 190, 110), line=False)
    pen.oval(4, -7, 1.8, 1.5, (120, 190, 110), line=False)


def _can(pen: Pen, vary: float) -> None:
    pen.stroke([(6, -4), (14, -10)], 1.8, _tone(vary))
    pen.stroke([(-6, -8), (-10, -6), (-6, -2)], 1.4, _tone(vary))
    pen.box(-6, -10, 6, 0, _tone(vary))


def _case(pen: Pen, vary: float) -> None:
    pen.stroke([(-3, -13), (-3, -17), (3, -17), (3, -13)], 1.3, (90, 70, 70))
    pen.blob([(-10, -13), (10, -13), (10, 0), (-10, 0)], mix(_tone(vary), (120, 80, 60), 0.3))
    for x in (-6, 6):
        pen.stroke([(x, -12.4), (x, -0.6)], 1.6, (250, 226, 170), line=False)


def _snowman(pen: Pen, vary: float) -> None:
    pen.oval(0, -6, 7.4, 7, (250, 252, 255))
    pen.oval(0, -16.6, 5.4, 5.2, (250, 252, 255))
    for x in (-1.8, 1.8):
        pen.oval(x, -17.6, 0.7, 0.8, (50, 46, 60), line=False)
    pen.shape([(0, -16.4), (5, -15.4), (0, -15)], (246, 140, 60), line=False)
    pen.box(-4, -26, 4, -21, (80, 76, 100))
    pen.stroke([(-6, -21), (6, -21)], 1.5, (80, 76, 100))


def _sled(pen: Pen, vary: float) -> None:
    pen.stroke([(-12, -1), (10, -1), (14, -5)], 1.5, (120, 90, 80))
    for x in (-8, 4):
        pen.stroke([(x, -1), (x, -6)], 1.3, (120, 90, 80))
    pen.stroke([(-12, -7), (10, -7)], 2.4, _tone(vary))


EXTRAS: dict[str, tuple[Extra, ...]] = {
    "beach": (_crab, _shell, _sandcastle, _rock),
    "forest": (_mushroom, _stump, _rabbit, _flowers),
    "mountain": (_sheep, _rock, _flowers, _rabbit),
    "street": (_box, _pot, _bench, _case),
    "castle": (_flag, _flowers, _rock, _bench),
    "kitchen": (_basket, _kettle, _pot, _case),
    "bedroom": (_teddy, _blocks, _books, _pot),
    "library": (_books, _globe, _pot, _case),
    "garden": (_can, _pot, _rabbit, _basket),
    "station": (_case, _bench, _box, _pot),
    "rooftop": (_pot, _can, _blocks, _bench),
    "snowfield": (_snowman, _sled, _rock, _rabbit),
}
