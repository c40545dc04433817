"""The outdoor places. Each function draws with a far and a near pen, in frame coordinates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .films import BOTTOM, LEFT, RIGHT, STYLES, TOP, Setting, unlit_pen
from .pen import RGB, Pen, Point, mix, points


def _beach(far: Pen, near: Pen, setting: Setting) -> None:
    far.box(LEFT, 42, RIGHT, BOTTOM, (56, 164, 214), line=False)
    for y, colour in ((47, (96, 190, 228)), (54, (126, 208, 234))):
        for x in range(LEFT, RIGHT, 44):
            far.oval(x + (y % 3) * 10, y, 15, 1.8, colour, line=False)
    crest = [(x, 66 + (3 if (x // 16) % 2 else -1)) for x in range(LEFT, RIGHT + 16, 16)]
    near.stroke([(x, y - 2) for x, y in crest], 4, (236, 250, 252), line=False)
    near.shape([*crest, (RIGHT, BOTTOM), (LEFT, BOTTOM)], (250, 224, 160), line=False)
    for x in range(LEFT, RIGHT, 56):
        near.oval(x + 10, 82, 20, 3, (240, 206, 138), line=False)
    for x, lean in ((6, 6), (138, -6), (204, 6)):
        _palm(near.at(x, 74), lean)
    for x in (34, 176):
        near.blob([(x - 4, 84), (x, 77), (x + 4, 84), (x + 2, 88), (x - 2, 88)], (250, 150, 130))


def _palm(pen: Pen, lean: float) -> None:
    pen.stroke([(0, 4), (lean * 0.3, -16), (lean, -38)], 5.5, (170, 120, 74))
    for dx, dy in ((-24, 4), (24, 4), (-19, -11), (19, -11), (-9, 14), (10, 14)):
        pen.blob(
            [(lean, -42), (lean + dx * 0.55, -45 + dy * 0.3), (lean + dx, -38 + dy), (lean + dx * 0.5, -37 + dy * 0.5)],
            (84, 170, 92),
        )


def _forest(far: Pen, near: Pen, setting: Setting) -> None:
    far.box(LEFT, TOP, RIGHT, BOTTOM, (176, 214, 150), line=False)
    for x in range(LEFT, RIGHT, 30):
        far.stroke([(x + 12, TOP), (x + 12, 74)], 9, (132, 176, 120), line=False)
    for x in range(LEFT, RIGHT, 24):
        far.oval(x, 66, 16, 9, (116, 172, 104), line=False)
    near.box(LEFT, 70, RIGHT, BOTTOM, (110, 160, 80), line=False)
    for x in (-8, 28, 122, 158, 206, 236):
        near.blob(
            [(x - 7, TOP), (x + 7, TOP), (x + 7, 50), (x + 14, 76), (x, 72), (x - 14, 76), (x - 7, 50)], (136, 96, 68)
        )
    for x in range(LEFT - 6, RIGHT + 20, 26):
        near.oval(x, -2 + (x % 5), 20, 15, (74, 142, 74))
    for x in (6, 52, 102, 142, 182, 222):
        near.oval(x, 76, 15, 9, (86, 154, 76))
    for x in (40, 112, 192):
        near.stroke([(x, 88), (x, 82)], 3.4, (250, 240, 220))
        near.blob([(x - 7, 82), (x - 4, 76), (x + 4, 76), (x + 7, 82)], (236, 100, 84))


def _hills(pen: Pen, ridge: Sequence[Point], bottom: float, colour: RGB) -> None:
    pen.blob([*ridge, (RIGHT + 30, bottom), (LEFT - 30, bottom)], colour, line=False)


def _mountain(far: Pen, near: Pen, setting: Setting) -> None:
    for x, top, wide in ((-14, 16, 44), (46, 4, 56), (112, 18, 48), (172, 6, 56), (226, 20, 40)):
        far.shape([(x - wide, 76), (x, top), (x + wide, 76)], (132, 148, 190))
        slope = (76 - top) / wide
        snow = 15
        far.shape(
            [
                (x - snow, top + snow * slope),
                (x, top),
                (x + snow, top + snow * slope),
                (x + 7, top + 14),
                (x, top + 22),
                (x - 7, top + 14),
            ],
            (252, 252, 255),
            line=False,
        )
    _hills(far, [(LEFT - 30, 70), *points("10,58 70,66 130,56 190,66"), (RIGHT + 30, 58)], 120, (138, 190, 116))
    _hills(near, [(LEFT - 30, 78), *points("20,70 80,74 140,69"), (RIGHT + 30, 76)], 130, (116, 182, 86))
    cream, yellow, pink = (255, 250, 240), (252, 214, 96), (250, 170, 190)
    places = points("2,82 24,88 46,80 104,80 126,87 150,80 172,88 198,82")
    for (x, y), colour in zip(places, (cream, yellow, pink, cream, pink, yellow, cream, pink), strict=True):
        for dx, dy in ((-2.6, 0), (2.6, 0), (0, -2.6), (0, 2.6)):
            near.oval(x + dx, y + dy, 2.3, 2.3, colour, line=False)
        near.oval(x, y, 1.8, 1.8, (246, 178, 70), line=False)


def _street(far: Pen, near: Pen, setting: Setting) -> None:
    for x in range(LEFT, RIGHT, 40):
        far.shape([(x, 80), (x, 34), (x + 14, 22), (x + 28, 34), (x + 28, 80)], (170, 176, 206), line=False)
    walls = ((250, 214, 170), (226, 152, 132), (180, 208, 196), (244, 232, 206), (206, 176, 206))
    roofs = ((196, 92, 78), (96, 108, 150), (160, 84, 70), (110, 140, 120), (120, 90, 140))
    for index, x in enumerate(range(LEFT - 4, RIGHT, 50)):
        top = 24 + 6 * (index % 2)
        near.box(x, top, x + 44, 76, walls[index % 5])
        near.shape([(x - 4, top), (x + 8, top - 15), (x + 36, top - 15), (x + 48, top)], roofs[index % 5])
        _windows(near, x, top, setting)
    near.box(LEFT, 74, RIGHT, BOTTOM, (166, 158, 170), line=False)
    near.box(LEFT, 73, RIGHT, 78, (222, 214, 208), line=False)
    for x in range(LEFT, RIGHT, 40):
        near.shape([(x, 92), (x + 22, 92), (x + 20, 96), (x - 2, 96)], (236, 230, 220), line=False)
    for x in (20, 126, 210):
        _lamp(near.at(x, 78), setting)


def _windows(pen: Pen, x: float, top: float, setting: Setting) -> None:
    glass = unlit_pen(pen) if setting.night else pen
    for dx in (5, 27):
        glass.box(x + dx, top + 7, x + dx + 12, top + 21, (255, 214, 112) if setting.night else (196, 228, 244))
    pen.blob([(x + 15, 76), (x + 15, top + 30), (x + 22, top + 26), (x + 29, top + 30), (x + 29, 76)], (146, 96, 74))


def _lamp(pen: Pen, setting: Setting) -> None:
    pen.stroke([(0, 2), (0, -36)], 3.2, (74, 78, 100))
    unlit = unlit_pen(pen)
    if setting.night:
        unlit.oval(0, -40, 11, 11, mix((255, 220, 130), STYLES[setting.film].night_sky[1], 0.62), line=False)
    unlit.oval(0, -40, 5.6, 5.6, (255, 232, 150) if setting.night else (255, 250, 226))


def _castle(far: Pen, near: Pen, setting: Setting) -> None:
    _hills(far, [(LEFT - 30, 66), *points("30,56 100,62 170,54"), (RIGHT + 30, 62)], 120, (150, 198, 140))
    for x in (20, 122, 224):
        near.box(x - 34, 42, x + 34, 76, (206, 202, 212))
        for dx in range(-34, 34, 14):
            near.box(x + dx, 35, x + dx + 8, 43, (206, 202, 212), line=False)
        for dx, top in ((-24, 28), (24, 28), (0, 18)):
            _tower(near, x + dx, top, setting)
        near.blob([(x - 8, 77), (x - 8, 62), (x, 55), (x + 8, 62), (x + 8, 77)], (124, 84, 66))
    near.box(LEFT, 74, RIGHT, BOTTOM, (140, 194, 106), line=False)
    near.blob([(40, 76), (104, 76), (124, 100), (130, 116), (14, 116), (20, 100)], (240, 222, 180), line=False)
    for x in (0, 52, 92, 150, 176, 206):
        near.oval(x, 78, 9, 8, (92, 164, 88))


def _tower(pen: Pen, x: float, top: float, setting: Setting) -> None:
    pen.box(x - 8, top, x + 8, 76, (228, 224, 230))
    pen.shape([(x - 11, top + 1), (x, top - 22), (x + 11, top + 1)], (86, 118, 196))
    glass = unlit_pen(pen) if setting.night else pen
    glass.blob(
        [(x - 3, top + 16), (x - 3, top + 8), (x, top + 5), (x + 3, top + 8), (x + 3, top + 16)],
        (255, 214, 112) if setting.night else (104, 112, 150),
        line=False,
    )


OUTDOORS: dict[str, Callable[[Pen, Pen, Setting], None]] = {
    "beach": _beach,
    "forest": _forest,
    "mountain": _mountain,
    "street": _street,
    "castle": _castle,
}
