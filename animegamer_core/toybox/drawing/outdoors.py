"""The outdoor places. Each function draws with a far and a near pen, in frame coordinates."""

from __future__ import annotations

from collections.abc import Callable

from .films import BOTTOM, LEFT, RIGHT, TOP, Setting, unlit_pen
from .pen import Pen, mix


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
    far.blob(
        [
            (LEFT - 30, 70),
            (10, 58),
            (70, 66),
            (130, 56),
            (190, 66),
            (RIGHT + 30, 58),
            (RIGHT + 30, 120),
            (LEFT - 30, 120),
        ],
        (138, 190, 116),
        line=False,
    )
    near.blob(
        [(LEFT - 30, 78), (20, 70), (80, 74), (140, 69), (RIGHT + 30, 76), (RIGHT + 30, 130), (LEFT - 30, 130)],
        (116, 182, 86),
        line=False,
    )
    for x, y, colour in (
        (2, 82, (255, 250, 240)),
        (24, 88, (252, 214, 96)),
        (46, 80, (250, 170, 190)),
        (104, 80, (255, 250, 240)),
        (126, 87, (250, 170, 190)),
        (150, 80, (252, 214, 96)),
        (172, 88, (255, 250, 240)),
        (198, 82, (250, 170, 190)),
    ):
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
        unlit.oval(0, -40, 11, 11, mix((255, 220, 130), setting.style.night_sky[1], 0.62), line=False)
    unlit.oval(0, -40, 5.6, 5.6, (255, 232, 150) if setting.night else (255, 250, 226))


def _castle(far: Pen, near: Pen, setting: Setting) -> None:
    far.blob(
        [(LEFT - 30, 66), (30, 56), (100, 62), (170, 54), (RIGHT + 30, 62), (RIGHT + 30, 120), (LEFT - 30, 120)],
        (150, 198, 140),
        line=False,
    )
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


def _garden(far: Pen, near: Pen, setting: Setting) -> None:
    hills = [(LEFT - 30, 62), (20, 50), (80, 58), (150, 48), (RIGHT + 30, 58), (RIGHT + 30, 130), (LEFT - 30, 130)]
    far.blob(hills, (150, 206, 132), line=False)
    for x in (-14, 62, 132, 200):
        far.stroke([(x, 66), (x, 48)], 4, (150, 108, 76))
        far.oval(x, 40, 15, 13, (116, 184, 100))
        for dx, dy in ((-6, -3), (5, 2), (0, -8), (8, -6)):
            far.oval(x + dx, 40 + dy, 1.8, 1.8, (250, 120, 110), line=False)
    near.box(LEFT, 70, RIGHT, BOTTOM, (124, 190, 94), line=False)
    for x in range(LEFT, RIGHT, 12):
        near.shape([(x, 76), (x, 58), (x + 3.5, 54), (x + 7, 58), (x + 7, 76)], (252, 250, 244))
    for y in (62, 70):
        near.box(LEFT, y, RIGHT, y + 2.4, (244, 240, 232), line=False)
    near.blob([(30, 84), (72, 80), (116, 84), (126, 112), (20, 112)], (240, 220, 176), line=False)
    flowers = ((246, 110, 130), (255, 206, 84), (184, 130, 226), (255, 250, 246))
    for index, x in enumerate(range(LEFT + 4, RIGHT, 11)):
        if 34 < x < 112:
            continue
        y = 82 + 5 * (index % 3)
        near.stroke([(x, y + 6), (x, y)], 1.2, (84, 150, 76), line=False)
        for dx, dy in ((-2.2, 0), (2.2, 0), (0, -2.2), (0, 2.2)):
            near.oval(x + dx, y + dy, 2, 2, flowers[index % 4], line=False)
        near.oval(x, y, 1.5, 1.5, (250, 190, 70), line=False)


def _station(far: Pen, near: Pen, setting: Setting) -> None:
    for x in range(LEFT, RIGHT, 36):
        far.box(x, 30 + (x % 3) * 5, x + 26, 70, (176, 184, 210), line=False)
    glass = unlit_pen(far) if setting.night else far
    far.blob([(LEFT - 40, 66), (LEFT - 40, 32), (LEFT, 26), (130, 26), (150, 36), (156, 66)], (226, 92, 84))
    far.box(LEFT, 55, 153, 59, (252, 240, 220), line=False)
    for x in range(LEFT + 4, 128, 24):
        glass.blob(
            [(x, 34), (x + 15, 34), (x + 15, 49), (x, 49)], (255, 222, 130) if setting.night else (206, 234, 246)
        )
    for x in range(LEFT, 150, 22):
        far.oval(x, 68, 5, 5, (82, 84, 100))
    near.box(LEFT, 74, RIGHT, BOTTOM, (208, 202, 198), line=False)
    near.box(LEFT, 73, RIGHT, 78, (250, 212, 92), line=False)
    for x in range(LEFT, RIGHT, 20):
        near.stroke([(x, 79), (x - 12, BOTTOM)], 0.7, (184, 178, 178), line=False)
    near.shape([(LEFT, TOP), (RIGHT, TOP), (RIGHT, 5), (LEFT, 5)], (96, 112, 140), line=False)
    for x in range(LEFT, RIGHT, 9):
        near.shape([(x, 5), (x + 9, 5), (x + 4.5, 10)], (126, 144, 172), line=False)
    for x in (8, 134, 214):
        near.stroke([(x, 8), (x, 78)], 4, (120, 134, 156))
    near.box(60, 8, 104, 20, (52, 92, 140))
    near.stroke([(66, 14), (84, 14)], 2, (252, 252, 252), line=False)
    near.stroke([(90, 14), (98, 14), (95, 11.4)], 1.4, (252, 252, 252), line=False)
    near.oval(160, 22, 9, 9, (252, 250, 244))
    near.stroke([(160, 16), (160, 22), (164, 24)], 1.2, (70, 66, 84), line=False)


def _rooftop(far: Pen, near: Pen, setting: Setting) -> None:
    walls = ((150, 166, 204), (186, 168, 198), (132, 172, 196), (204, 180, 180))
    for index, x in enumerate(range(LEFT - 6, RIGHT, 28)):
        top = 26 + 9 * (index * 5 % 4)
        far.box(x, top, x + 25, 90, walls[index % 4])
        glass = unlit_pen(far) if setting.night else far
        for row in range(4):
            for column in range(3):
                if (row + column * 2 + index) % 5 or not setting.night:
                    left, y = x + 3 + column * 7.4, top + 5 + row * 9
                    colour = (255, 222, 128) if setting.night else (222, 238, 248)
                    glass.box(left, y, left + 4.4, y + 5, colour, line=False)
    near.box(LEFT, 76, RIGHT, BOTTOM, (196, 178, 164), line=False)
    for x in range(LEFT, RIGHT, 24):
        near.stroke([(x, 78), (x - 10, BOTTOM)], 0.7, (168, 150, 140), line=False)
    near.box(LEFT, 74, RIGHT, 78, (226, 212, 196))
    for x in range(LEFT, RIGHT, 14):
        near.stroke([(x, 75), (x, 55)], 1.5, (120, 150, 150), line=False)
    for y in (55, 65):
        near.stroke([(LEFT, y), (RIGHT, y)], 1.7, (120, 150, 150), line=False)
    near.stroke([(14, 78), (14, 30)], 2.4, (150, 130, 120))
    near.stroke([(130, 78), (130, 30)], 2.4, (150, 130, 120))
    near.stroke([(14, 32), (50, 37), (90, 37), (130, 32)], 0.8, (240, 240, 240), line=False)
    for x, colour in ((24, (250, 250, 250)), (104, (246, 160, 150)), (118, (150, 196, 232))):
        near.shape([(x, 34.5), (x + 11, 35.5), (x + 10, 50), (x + 1, 49)], colour)
    near.blob([(178, 78), (176, 54), (180, 48), (204, 48), (208, 54), (206, 78)], (206, 122, 90))
    near.shape([(172, 50), (192, 36), (212, 50)], (150, 90, 78))


def _snowfield(far: Pen, near: Pen, setting: Setting) -> None:
    hills = [
        (LEFT - 30, 60),
        (10, 46),
        (64, 58),
        (120, 44),
        (180, 56),
        (RIGHT + 30, 48),
        (RIGHT + 30, 130),
        (LEFT - 30, 130),
    ]
    far.blob(hills, (222, 232, 248))
    for x in range(LEFT, RIGHT, 19):
        _pine(far.at(x, 64 + (x * 7) % 5, 0, 0.62), (126, 166, 168))
    near.blob(
        [(LEFT - 30, 76), (20, 70), (84, 75), (150, 69), (RIGHT + 30, 75), (RIGHT + 30, 130), (LEFT - 30, 130)],
        (246, 250, 255),
    )
    for x, y in ((-8, 86), (36, 92), (96, 86), (140, 94), (190, 84)):
        near.blob([(x - 15, y), (x, y - 2.4), (x + 15, y), (x, y + 2.4)], (220, 230, 246), line=False)
    for x, size in ((-12, 1.1), (20, 0.95), (128, 1.1), (160, 0.9), (206, 1.15)):
        _pine(near.at(x, 78, 0, size), (86, 142, 128))
    unlit = unlit_pen(far)
    for x, y in ((-18, 10), (6, 34), (30, 16), (52, 40), (78, 22), (98, 6), (124, 36), (148, 18), (172, 40), (196, 12)):
        unlit.oval(x, y, 1.3, 1.3, (252, 254, 255), line=False)


def _pine(pen: Pen, colour: tuple[int, int, int]) -> None:
    pen.stroke([(0, 2), (0, -6)], 4, (130, 96, 76))
    for y, wide in ((-4, 15), (-17, 12), (-29, 8.5)):
        pen.shape([(-wide, y), (0, y - 21), (wide, y), (wide * 0.4, y - 2), (0, y + 1), (-wide * 0.4, y - 2)], colour)
        pen.blob([(-wide * 0.5, y - 9), (0, y - 21), (wide * 0.5, y - 9), (0, y - 12)], (250, 252, 255), line=False)


OUTDOORS: dict[str, Callable[[Pen, Pen, Setting], None]] = {
    "beach": _beach,
    "forest": _forest,
    "mountain": _mountain,
    "street": _street,
    "castle": _castle,
    "garden": _garden,
    "station": _station,
    "rooftop": _rooftop,
    "snowfield": _snowfield,
}
