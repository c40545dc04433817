"""The report's plots, drawn with Pillow alone: every metric with its interval, and levels asked against measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...data.plots import FAINT, GRID, INK, SHARPER, put_words
from ...data.plots import PAPER as WHITE
from ...files import save_picture
from ...fonts import drawable, font_of
from ...sheet import contact_sheet
from ...state import GameSession, GameState
from ...video import read_clip
from .metrics import BY_KEY, Metric
from .paper import PAPER
from .records import GameRecord, game_folder
from .report import Column, PaperTable, number

if TYPE_CHECKING:
    from PIL import Image, ImageDraw

METRICS_PICTURE, MOTION_PICTURE, GAME_PICTURE = "metrics.png", "motion.png", "first-game.png"
WIDTH = 1280
INKS = ("#6243bd", "#d07a1c", "#2a9c65", "#2f74d0", "#b0487f", "#4b8f9c")  # ours, then the runs beside it
PAPER_INK = "#b4b8c4"
_PLOTTED = ("clip_i", "dreamsim", "clip_t", "acc_f", "mae_f", "state", "scope", "seconds")
_ROW, _HEAD, _GAP = 26, 40, 22
_LEFT, _LABEL, _TEXT = 40, 170, 178  # of a panel: margin of the sheet, room for names, room for numbers
_CELL = 62


@dataclass(frozen=True)
class Bar:
    """One bar of a panel: whose it is, its value and the ends of its interval, how it is written, its colour."""

    name: str
    value: float
    low: float
    high: float
    text: str
    ink: str


def write_pictures(table: PaperTable, out: Path) -> list[Path]:
    """Write the plots and the first game's contact sheet as PNG; returns their paths."""
    pictures = draw_all(table)
    for name, picture in pictures.items():
        save_picture(picture, out / name)
    return [out / name for name in pictures]


def draw_all(table: PaperTable) -> dict[str, Image.Image]:
    """The pictures of a table by file name; a player that predicts nothing has no contact sheet."""
    pictures = {METRICS_PICTURE: draw_metrics(table), MOTION_PICTURE: draw_motion(table.columns)}
    game = table.run.games[0]
    if all(turn.level and turn.change for turn in game.turns):
        pictures[GAME_PICTURE] = draw_game(game, table.run.folder)
    return pictures


def draw_game(game: GameRecord, out: Path) -> Image.Image:
    """The contact sheet of a played game, as stories have one."""
    session, clips = GameSession(), []
    for turn in game.turns:
        assert turn.level is not None and turn.change is not None
        session = session.step(turn.instruction, GameState(None, turn.level, turn.change))
        clips.append(read_clip(game_folder(out, game.name) / turn.clip).frames)
    return contact_sheet(session.turns, clips, game.name)


def draw_metrics(table: PaperTable) -> Image.Image:
    """A panel a metric, two side by side: our bar with its interval, other runs' and the paper's below it."""
    panels = [(BY_KEY[key], _bars_of(table, BY_KEY[key])) for key in _PLOTTED]
    pairs = [panels[start : start + 2] for start in range(0, len(panels), 2)]
    heights = [_HEAD + _ROW * max(len(bars) for _, bars in pair) + _GAP for pair in pairs]
    sheet, draw = _sheet(WIDTH, 96 + sum(heights) + 20)
    put_words(draw, (_LEFT, 36), _fitting(table.heading, 22, WIDTH - 2 * _LEFT), INK, "lm", 22)
    told = "lines are 95 % intervals; grey: the paper's figures, of its own films and towers"
    put_words(draw, (_LEFT, 66), told, FAINT, "lm", 14)
    top = 104.0
    for pair, height in zip(pairs, heights, strict=True):
        for place, (metric, bars) in enumerate(pair):
            _panel(draw, (_LEFT + place * WIDTH / 2, top), f"{table.label(metric)}{_arrow(metric)}", bars)
        top += height
    return _smooth(sheet)


def draw_motion(columns: Sequence[Column]) -> Image.Image:
    """For every player, shots by the level asked for and the level measured: counts, darker for a larger share."""
    across = min(3, len(columns))
    width, height = 5 * _CELL + 130, 5 * _CELL + 150
    sheet, draw = _sheet(max(640, _LEFT + across * width), 20 + height * math.ceil(len(columns) / across))
    for place, column in enumerate(columns):
        corner = (_LEFT + place % across * width, 20 + place // across * height)
        _levels(draw, corner, column, INKS[place % len(INKS)])
    return _smooth(sheet)


def _bars_of(table: PaperTable, metric: Metric) -> list[Bar]:
    bars = []
    for place, column in enumerate(table.columns):
        figure = column.figures[metric.key]
        if figure.count:
            text = f"{number(figure.value, metric.unit)}  [{number(figure.low)}, {number(figure.high)}]"
            ink = INKS[place % len(INKS)]
            bars.append(Bar(column.name, figure.value, figure.low, figure.high, text, ink))
    for name, row in PAPER.items():
        if metric.key in row:
            value = row[metric.key]
            text = f"{value:g} {metric.unit}" if metric.unit else f"{value:.3f}"
            bars.append(Bar(f"{name} (paper)", value, value, value, text, PAPER_INK))
    return bars


def _panel(draw: ImageDraw.ImageDraw, corner: tuple[float, float], title: str, bars: Sequence[Bar]) -> None:
    """Level bars on one scale from 0; a thin line is the interval."""
    left, top = corner
    put_words(draw, (left, top), title, INK, "lm", 17)
    if not bars:
        put_words(draw, (left, top + 32), "not measured", FAINT, "lm", 14)
    start, room = left + _LABEL, WIDTH / 2 - 2 * _LEFT - _LABEL - _TEXT + 20
    longest = max([1e-9, *(bar.high for bar in bars)])
    longest = 1.0 if 0.2 < longest <= 1 else longest
    for place, bar in enumerate(bars):
        middle = top + 32 + place * _ROW
        put_words(draw, (left, middle), _fitting(bar.name, 14, _LABEL - 8), INK, "lm", 14)
        _box(draw, (start, middle - 8, start + room, middle + 8), GRID)
        _box(draw, (start, middle - 8, start + max(2.0, max(0.0, bar.value) / longest * room), middle + 8), bar.ink)
        if bar.high > bar.low:
            ends = [start + max(0.0, end) / longest * room for end in (bar.low, bar.high)]
            _line(draw, (ends[0], middle, ends[1], middle))
            for end in ends:
                _line(draw, (end, middle - 5, end, middle + 5))
        put_words(draw, (start + room + 10, middle), bar.text, FAINT, "lm", 13)


def _levels(draw: ImageDraw.ImageDraw, corner: tuple[float, float], column: Column, ink: str) -> None:
    """One player's five by five levels."""
    left, top = corner
    figure = column.figures["acc_f"]
    put_words(draw, (left, top + 20), _fitting(column.name, 18, 5 * _CELL + 56), INK, "lm", 18)
    told = f"ACC-F {figure.value:.3f}, {figure.count} shots" if figure.count else "motion levels were not measured"
    put_words(draw, (left, top + 44), told, FAINT, "lm", 14)
    x0, y0 = left + 56, top + 88
    for level in range(1, 6):
        put_words(draw, (x0 + (level - 0.5) * _CELL, y0 - 14), str(level), FAINT, "mm", 14)
        put_words(draw, (x0 - 16, y0 + (level - 0.5) * _CELL), str(level), FAINT, "mm", 14)
    for row, counts in enumerate(column.confusion):
        for place, count in enumerate(counts):
            share = count / max(1, sum(counts))
            x, y = x0 + place * _CELL, y0 + row * _CELL
            _box(draw, (x + 2, y + 2, x + _CELL - 2, y + _CELL - 2), _blend(GRID, ink, share))
            words = "" if not count else str(count)
            put_words(draw, (x + _CELL / 2, y + _CELL / 2), words, WHITE if share > 0.45 else INK, "mm", 16)
    put_words(draw, (x0 + 2.5 * _CELL, y0 + 5 * _CELL + 18), "level measured", FAINT, "mm", 14)
    put_words(draw, (left, y0 - 14), "asked", FAINT, "lm", 14)


def _sheet(width: float, height: float) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    from PIL import Image, ImageDraw

    sheet = Image.new("RGB", (round(width) * SHARPER, round(height) * SHARPER), WHITE)
    return sheet, ImageDraw.Draw(sheet)


def _smooth(sheet: Image.Image) -> Image.Image:
    from PIL import Image

    return sheet.resize((sheet.width // SHARPER, sheet.height // SHARPER), Image.Resampling.LANCZOS)


def _box(draw: ImageDraw.ImageDraw, box: tuple[float, float, float, float], ink: str) -> None:
    draw.rounded_rectangle([SHARPER * value for value in box], radius=4 * SHARPER, fill=ink)


def _line(draw: ImageDraw.ImageDraw, ends: tuple[float, float, float, float]) -> None:
    draw.line([SHARPER * value for value in ends], fill=INK, width=2 * SHARPER)


def _blend(one: str, other: str, part: float) -> str:
    """A colour between two."""
    pairs = ((int(one[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(low + part * (high - low)):02x}" for low, high in pairs)


def _arrow(metric: Metric) -> str:
    return "  (higher is better)" if metric.higher else "  (lower is better)"


def _fitting(words: str, size: int, width: float) -> str:
    """The words, with dots in place of their middle where they are too wide: names of runs differ at the end."""
    shown, kept = words, len(words)
    while kept > 2 and font_of(shown, size).getlength(drawable(shown)) > width:
        kept -= 1
        shown = f"{words[: kept // 2].rstrip()}...{words[len(words) - (kept + 1) // 2 :].lstrip()}"
    return shown
