"""The indoor places. Each function draws with a far and a near pen, in frame coordinates."""

from __future__ import annotations

from collections.abc import Callable

from .films import BOTTOM, LEFT, RIGHT, TOP, Setting, unlit_pen
from .pen import RGB, Pen, mix


def _room(far: Pen, near: Pen, wall: RGB, floor: RGB) -> None:
    far.box(LEFT, TOP, RIGHT, BOTTOM, wall, line=False)
    near.box(LEFT, 76, RIGHT, BOTTOM, floor, line=False)
    near.box(LEFT, 73, RIGHT, 77, mix(wall, (120, 80, 60), 0.45), line=False)


def _window(pen: Pen, x: float, y: float, setting: Setting, frame: RGB) -> None:
    pane = setting.sky[0] if setting.night else mix(setting.sky[0], (255, 255, 255), 0.35)
    pen.box(x - 18, y - 16, x + 18, y + 16, frame)
    unlit = unlit_pen(pen)
    unlit.box(x - 15, y - 13, x + 15, y + 13, pane, line=False)
    if setting.night:
        unlit.oval(x + 5, y - 3, 6.5, 6.5, (255, 246, 206), line=False)
    else:
        unlit.oval(x - 3, y + 5, 9, 4.5, (255, 255, 255), line=False)
    pen.stroke([(x, y - 14), (x, y + 14)], 2.4, frame, line=False)


def _kitchen(far: Pen, near: Pen, setting: Setting) -> None:
    _room(far, near, (255, 234, 178), (244, 226, 196))
    for x in range(LEFT, RIGHT, 24):
        for row, y in enumerate((78, 90, 102)):
            dx = 12 if row % 2 else 0
            near.box(x + dx, y, x + dx + 12, y + 12, (222, 150, 106), line=False)
    for x in (-2, 118, 198):
        _window(far, x + 6, 26, setting, (250, 246, 236))
    near.box(LEFT, 54, RIGHT, 78, (126, 182, 166))
    near.box(LEFT, 51, RIGHT, 56, (250, 246, 236))
    for x in range(LEFT + 4, RIGHT, 30):
        near.box(x, 60, x + 22, 74, (150, 202, 184))
    for x in (22, 140, 186):
        near.blob([(x - 11, 37), (x + 11, 37), (x + 10, 51), (x - 10, 51)], (206, 110, 90))
        near.oval(x, 37, 12, 2.6, (236, 150, 120))
    for x in (48, 96, 166):
        near.stroke([(x, 4), (x, 16)], 2.2, (130, 110, 100))
        near.oval(x, 22, 8.5, 8.5, (150, 156, 176))


def _bedroom(far: Pen, near: Pen, setting: Setting) -> None:
    _room(far, near, (250, 212, 214), (212, 164, 124))
    for x in range(LEFT + 8, RIGHT, 34):
        for y in (6, 52):
            far.oval(x, y, 4.4, 4.4, (255, 232, 232), line=False)
        far.oval(x + 17, 30, 4.4, 4.4, (255, 232, 232), line=False)
    for x in (14, 176):
        _window(near, x, 26, setting, (252, 248, 240))
        for side in (-1, 1):
            near.blob(
                [(x + side * 12, 7), (x + side * 24, 7), (x + side * 25, 46), (x + side * 18, 46), (x + side * 17, 26)],
                (150, 190, 226),
            )
    near.oval(66, 92, 62, 8, (168, 206, 190), line=False)
    _bed(near.at(128, 0))
    _bed(near.at(236, 0))
    near.box(-16, 60, 12, 78, (190, 134, 92))
    unlit = unlit_pen(near)
    if setting.night:
        unlit.oval(-2, 48, 16, 13, mix((255, 214, 130), setting.style.night_sky[1], 0.5), line=False)
    near.stroke([(-2, 60), (-2, 50)], 3, (150, 100, 70))
    (unlit if setting.night else near).blob([(-10, 51), (-6, 40), (2, 40), (6, 51)], (255, 224, 140))


def _bed(pen: Pen) -> None:
    pen.blob([(-28, 74), (-28, 42), (-20, 36), (20, 36), (28, 42), (28, 74)], (196, 138, 94))
    pen.blob([(-20, 56), (-16, 47), (16, 47), (20, 56), (16, 62), (-16, 62)], (255, 252, 246))
    pen.blob([(-32, 84), (-31, 60), (0, 56), (31, 60), (32, 84), (0, 87)], (238, 150, 160))


def _library(far: Pen, near: Pen, setting: Setting) -> None:
    _room(far, near, (142, 100, 74), (190, 130, 92))
    colours = ((206, 90, 78), (232, 186, 96), (92, 142, 150), (238, 224, 196), (122, 104, 160), (120, 160, 104))
    for index, x in enumerate(range(LEFT, RIGHT, 61)):
        near.box(x, TOP, x + 56, 78, (120, 80, 56))
        for row, y in enumerate((14, 40, 66)):
            near.box(x + 4, y - 21, x + 52, y, (86, 56, 44), line=False)
            for book in range(5):
                tall = 15 + 2.5 * ((book * 2 + row + index) % 3)
                left = x + 5 + book * 9.3
                near.box(left, y - tall, left + 8.6, y, colours[(book + 2 * row + index) % 6], line=False)
    near.oval(66, 92, 60, 8, (176, 84, 84), line=False)
    unlit = unlit_pen(near)
    for x in (39, 100, 161):
        if setting.night:
            unlit.oval(x, 24, 13, 13, mix((255, 214, 130), (80, 60, 80), 0.55), line=False)
        near.stroke([(x, TOP), (x, 18)], 2.2, (230, 190, 110))
        (unlit if setting.night else near).oval(x, 24, 7, 7, (255, 232, 160))


INDOORS: dict[str, Callable[[Pen, Pen, Setting], None]] = {
    "kitchen": _kitchen,
    "bedroom": _bedroom,
    "library": _library,
}
