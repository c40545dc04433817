"""A report's pictures: metrics with intervals, requested and measured motion levels, and a contact sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...files import save_picture
from ...game.state import GameSession, GameState
from ...media.contact_sheet import contact_sheet
from ...media.text import drawable, font_of
from ...media.video import read_clip
from ..estimates import Estimate
from .metrics import BY_KEY, PAPER, Metric
from .records import GameRecord, game_folder
from .report import Column, PaperTable, number, published_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties
    from PIL import Image

METRICS_PICTURE, MOTION_PICTURE, GAME_PICTURE = "metrics.png", "motion.png", "first-game.png"
COLOURS = ("#6243bd", "#d07a1c", "#2a9c65", "#2f74d0", "#b0487f", "#4b8f9c")  # our run, then the runs next to it
PAPER_COLOUR, INK, FAINT, GRID = "#b4b8c4", "#23262f", "#696d78", "#e6e8ec"
PLOTTED = ("clip_i", "dreamsim", "clip_t", "acc_f", "mae_f", "state", "scope", "seconds")
_DPI = 100
_LONGEST_NAME, _LONGEST_HEADING = 26, 100  # characters


@dataclass(frozen=True)
class Bar:
    """One bar of a metric: the player's name, the value with its interval, its text, and the colour."""

    name: str
    estimate: Estimate
    text: str
    colour: str


def write_pictures(table: PaperTable, out: Path) -> list[Path]:
    """Write the charts and the first game's contact sheet as PNG; returns their paths."""
    pictures = draw_pictures(table)
    for name, picture in pictures.items():
        save_picture(picture, out / name)
    return [out / name for name in pictures]


def draw_pictures(table: PaperTable) -> dict[str, Image.Image]:
    """The pictures of a table by file name. Only a player that predicts levels and stats gets a contact sheet."""
    pictures = {METRICS_PICTURE: draw_metrics(table), MOTION_PICTURE: draw_motion(table.columns)}
    game = table.run.games[0]
    if all(turn.level and turn.change for turn in game.turns):
        pictures[GAME_PICTURE] = draw_game(game, table.run.folder)
    return pictures


def draw_game(game: GameRecord, out: Path) -> Image.Image:
    """The contact sheet of a played game, like that of a story."""
    session, clips = GameSession(), []
    for turn in game.turns:
        assert turn.level is not None and turn.change is not None
        session = session.step(turn.instruction, GameState(None, turn.level, turn.change))
        clips.append(read_clip(game_folder(out, game.name) / turn.clip).frames)
    return contact_sheet(session.turns, clips, game.name)


def draw_metrics(table: PaperTable, keys: Sequence[str] = PLOTTED) -> Image.Image:
    """One panel per metric: a bar with its interval for every run, and the paper's values in grey."""
    panels = [(BY_KEY[key], bars_of(table, BY_KEY[key])) for key in keys]
    pairs = [panels[start : start + 2] for start in range(0, len(panels), 2)]
    rows = [max(1, *(len(bars) for _, bars in pair)) for pair in pairs]
    figure = _new_figure(12.8, 1.2 + sum(0.75 + 0.27 * count for count in rows))
    heading = printable(table.heading, _LONGEST_HEADING)
    figure.suptitle(heading, x=0.03, ha="left", font=_font(heading, 14), color=INK)
    grid = figure.subplots(len(pairs), 2, squeeze=False, height_ratios=[0.9 + 0.27 * count for count in rows])
    for place, (metric, bars) in enumerate(panels):
        better = "higher is better" if metric.higher else "lower is better"
        _draw_bars(grid.flat[place], f"{table.label(metric)}  ({better})", bars, rows[place // 2])
    for spare in grid.flat[len(panels) :]:
        spare.set_axis_off()
    note = "Black lines: 95 % intervals. Grey bars: the paper's values, for its own films and scoring models."
    figure.supxlabel(note, x=0.03, ha="left", size=9.5, color=FAINT)
    return _as_picture(figure)


def draw_motion(columns: Sequence[Column]) -> Image.Image:
    """One panel per player: its shots by requested and measured motion level; darker means more of the row."""
    across = max(1, min(3, len(columns)))
    down = math.ceil(len(columns) / across)
    figure = _new_figure(max(6.4, 4.2 * across), 4.7 * down)
    grid = figure.subplots(down, across, squeeze=False)
    for place, axes in enumerate(grid.flat):
        if place < len(columns):
            _draw_levels(axes, columns[place], COLOURS[place % len(COLOURS)])
        else:
            axes.set_axis_off()
    return _as_picture(figure)


def bars_of(table: PaperTable, metric: Metric) -> list[Bar]:
    """The bars of a metric: every run that has a value, then the paper's players."""
    bars = []
    for place, column in enumerate(table.columns):
        estimate = column.estimates[metric.key]
        if estimate.count:
            text = f"{number(estimate.value, metric.unit)}  [{number(estimate.low)}, {number(estimate.high)}]"
            colour = COLOURS[place % len(COLOURS)]
            bars.append(Bar(column.name, estimate, text, colour))
    for name in PAPER:
        if (value := metric.published(name)) is not None:
            text = published_text(value, metric.unit)
            bars.append(Bar(f"{name} (paper)", Estimate(value, value, value, 0), text, PAPER_COLOUR))
    return bars


def _draw_bars(axes: Axes, title: str, bars: Sequence[Bar], room: int) -> None:
    """Draw horizontal bars from 0, each with name, interval and value. room: the number of bars that fit."""
    axes.set_title(title, loc="left", size=11.5, color=INK)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelcolor=INK, labelsize=9.5)
    axes.set_xticks([])
    if not bars:
        axes.set_yticks([])
        axes.text(0, 0.8, "not measured", transform=axes.transAxes, size=10, color=FAINT, va="top")
        return
    longest = max([1e-9, *(bar.estimate.high for bar in bars)])
    longest = 1.0 if 0.2 < longest <= 1 else longest
    rows = range(len(bars))
    axes.barh(rows, longest, height=0.68, color=GRID)
    for row, bar in enumerate(bars):
        value, low, high = (max(0.0, end) for end in (bar.estimate.value, bar.estimate.low, bar.estimate.high))
        axes.barh(row, value, height=0.68, color=bar.colour)
        if bar.estimate.high > bar.estimate.low:
            axes.errorbar(value, row, xerr=[[value - low], [high - value]], color=INK, capsize=3, linewidth=1.4)
        axes.text(longest * 1.02, row, bar.text, size=9, color=FAINT, va="center")
    names = [printable(bar.name) for bar in bars]
    axes.set_yticks(rows, names)
    for name, label in zip(names, axes.get_yticklabels(), strict=True):
        label.set_fontproperties(_font(name, 9.5))
    axes.set_xlim(0, longest * 1.45)
    axes.set_ylim(room - 0.5, -0.5)  # the first bar on top


def _draw_levels(axes: Axes, column: Column, colour: str) -> None:
    """Draw one player's 5 x 5 counts of levels."""
    from matplotlib.colors import LinearSegmentedColormap

    estimate = column.estimates["acc_f"]
    words = f"ACC-F {estimate.value:.3f}, {estimate.count} shots" if estimate.count else "motion was not measured"
    name = printable(column.name)
    axes.set_title(f"{name}\n{words}", loc="left", font=_font(name, 11.5), color=INK)
    parts = [[count / max(1, sum(row)) for count in row] for row in column.confusion]
    colours = LinearSegmentedColormap.from_list("levels", (GRID, colour))
    axes.imshow(parts, cmap=colours, vmin=0, vmax=1)
    for row, counts in enumerate(column.confusion):
        for place, count in enumerate(counts):
            if count:
                shade = "white" if parts[row][place] > 0.6 else INK
                axes.text(place, row, str(count), ha="center", va="center", size=11, color=shade)
    axes.set_xticks(range(5), range(1, 6))
    axes.set_yticks(range(5), range(1, 6))
    axes.set_xticks([edge + 0.5 for edge in range(4)], minor=True)
    axes.set_yticks([edge + 0.5 for edge in range(4)], minor=True)
    axes.grid(which="minor", color="white", linewidth=3)
    axes.tick_params(which="both", length=0, labelcolor=FAINT, labelsize=10)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("measured level", color=FAINT, size=10)
    axes.set_ylabel("requested level", color=FAINT, size=10)


def _new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, without a display; ValueError if matplotlib is missing."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError(
            "the report's charts need matplotlib; install the extra `eval`: pip install 'animegamer[eval]'"
        ) from error
    figure = Figure(figsize=(width, height), dpi=_DPI, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.15, h_pad=0.13)
    FigureCanvasAgg(figure)
    return figure


def _as_picture(figure: Figure) -> Image.Image:
    import numpy as np
    from PIL import Image

    figure.canvas.draw()
    return Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")


def printable(words: str, most: int = _LONGEST_NAME) -> str:
    """A text that a chart can print: only characters that a font has, no math markup, at most `most` characters.

    Dots replace the middle, since the names of runs differ at the end.
    """
    if len(words) > most:
        half = (most - 3) // 2
        words = f"{words[:half].rstrip()}...{words[-half:].lstrip()}"
    return drawable(words).replace("$", r"\$")


def _font(words: str, size: float) -> FontProperties:
    """matplotlib's own font, or a system font if the words need one, as Chinese names do."""
    from matplotlib.font_manager import FontProperties

    path = font_of(words, round(size)).path
    return FontProperties(fname=path if isinstance(path, str) else None, size=size)
