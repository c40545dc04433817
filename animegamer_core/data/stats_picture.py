"""The picture of a dataset's statistics (stats.png), drawn with matplotlib and without a display."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files import save_picture
from ..life import STATS
from ..media.fonts import drawable, font_of
from .dataset import DatasetFolder
from .stats import LEVEL_NAMES, DatasetFacts, brief, clock, counted, share

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from PIL import Image

PICTURE = "stats.png"
WIDTH, HEIGHT, DPI = 1280, 860, 100
LEVEL_COLOURS = ("#b9a9e8", "#9a83dd", "#7c5fd0", "#6243bd", "#43298f")  # from still to wild
BAR, LEFT_OUT, GRID, INK, FAINT = "#6d4fc4", "#aab0bd", "#e6e8ec", "#23262f", "#696d78"
BINS = 48
ROWS, ROW = 8, 30  # bars of a panel, and the height of one in pixels
LABELS, BARS = 130, 150  # pixels: of the names before the bars, and of the longest bar

Bar = tuple[float, str, str]  # its length, the text behind it, its colour


def write_stats(folder: str | Path) -> Path:
    """Draw a dataset folder's statistics into its stats.png; returns the path."""
    path = Path(folder) / PICTURE
    save_picture(draw_stats(folder), path)
    return path


def draw_stats(folder: str | Path) -> Image.Image:
    """The picture of a dataset folder's statistics, 1280 x 860; ValueError without matplotlib."""
    return draw_facts(DatasetFacts.of(DatasetFolder.open(folder)))


def draw_facts(facts: DatasetFacts) -> Image.Image:
    """Motion values with their levels, and clips by level, caption, character stat, character and film."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    # parse_math off: a name may hold dollar signs
    style = {"font.family": _font_families(facts), "text.parse_math": False, "font.size": 10, "text.color": INK}
    with matplotlib.rc_context(style):
        canvas = FigureCanvasAgg(stats_figure(facts))
        canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def stats_figure(facts: DatasetFacts) -> Figure:
    """The figure, with an Axes for each panel, labelled with the panel's title."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), dpi=DPI)
    seconds = sum(turn.end - turn.start for turn in facts.turns)
    counts = {"clip": len(facts.turns), "film": len(facts.films), "game": len(facts.lengths)}
    summary = ", ".join([*(counted(count, thing) for thing, count in counts.items()), clock(seconds)])
    figure.text(40 / WIDTH, 1 - 48 / HEIGHT, drawable(brief(facts.name, 60)), size=18)
    figure.text(40 / WIDTH, 1 - 74 / HEIGHT, summary, size=11, color=FAINT)
    _histogram(_panel(figure, "Motion values", (84, 124, 820, 424)), facts)

    def bar(count: int, colour: str = BAR) -> Bar:
        return count, f"{count}  {share(count, len(facts.turns))}", colour

    def bars(counts: Mapping[str, int]) -> dict[str, Bar]:
        return {name: bar(count) for name, count in list(counts.items())[:ROWS]}

    levels = enumerate(zip(LEVEL_NAMES, LEVEL_COLOURS, strict=True), start=1)
    captions = {"captioned": bar(facts.captions["whole"])}
    for stat in STATS:
        captions[f"{stat.name} +1"] = bar(sum(getattr(turn, stat.name) == 1 for turn in facts.turns), stat.colour)
    left_out = {**({"set aside": facts.aside} if facts.aside else {}), **facts.dropped}
    panels = {
        "Motion levels": (
            (870, 124),
            {f"{number} {name}": bar(facts.level(number).size, colour) for number, (name, colour) in levels},
        ),
        "Captions and character stats": ((870, 322), captions),
        "Characters": ((40, 544), bars(facts.characters)),
        "Films": ((450, 544), bars(facts.films)),
        "Left out": (
            (870, 544),
            {name: (count, str(count), LEFT_OUT) for name, count in list(left_out.items())[:ROWS]},
        ),
    }
    for title, ((left, top), rows) in panels.items():
        _bars(_panel(figure, title, (left + LABELS, top, left + LABELS + BARS, top + ROW * max(1, len(rows)))), rows)
    return figure


def _panel(figure: Figure, title: str, box: tuple[int, int, int, int]) -> Axes:
    """Axes at (left, top, right, bottom) in pixels of the picture, with their title above the labels on the left."""
    left, top, right, bottom = box
    axes = figure.add_axes(
        (left / WIDTH, 1 - bottom / HEIGHT, (right - left) / WIDTH, (bottom - top) / HEIGHT), label=title
    )
    figure.text((left - LABELS if left > LABELS else 40) / WIDTH, 1 - (top - 8) / HEIGHT, title, size=13)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelcolor=FAINT)
    return axes


def _bars(axes: Axes, rows: Mapping[str, Bar]) -> None:
    """Horizontal bars, as long as their fraction of the longest, with their names before and their texts behind."""
    longest = max((value for value, _, _ in rows.values()), default=0) or 1
    axes.barh(range(len(rows)), longest, height=0.6, color=GRID)
    axes.barh(range(len(rows)), [row[0] for row in rows.values()], height=0.6, color=[row[2] for row in rows.values()])
    axes.set(xlim=(0, longest), ylim=(max(1, len(rows)) - 0.5, -0.5), xticks=[], yticks=[])
    beside: dict[str, Any] = {"xycoords": ("axes pixels", "data"), "va": "center", "annotation_clip": False}
    for place, (name, (_, text, _)) in enumerate(rows.items()):
        axes.annotate(drawable(brief(name, 16)), (-LABELS, place), size=9.5, **beside)
        axes.annotate(text, (BARS + 10, place), color=FAINT, **beside)
    if not rows:
        axes.annotate("none", (-LABELS, 0), color=FAINT, **beside)


def _histogram(axes: Axes, facts: DatasetFacts) -> None:
    """Clips by motion value on a logarithmic scale, each part in the colour of its level."""
    from matplotlib.ticker import MaxNLocator

    levels = [facts.level(number) for number in range(1, 6)]
    moving = np.concatenate(levels)
    moving = moving[moving > 0]
    if not moving.size:
        axes.set(xticks=[], yticks=[])
        axes.text(0, 0.9, "no clip has been measured", color=FAINT, transform=axes.transAxes)
        return
    low, high = moving.min() / 1.15, moving.max() * 1.15
    values = [level.clip(low, high) for level in levels]
    axes.hist(values, bins=np.geomspace(low, high, BINS + 1), stacked=True, color=LEVEL_COLOURS, rwidth=0.9, zorder=2)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_xlabel("px a frame at 480 px height", color=FAINT)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)


def _font_families(facts: DatasetFacts) -> list[str]:
    """matplotlib's own font, then the system's font that has the most letters of this dataset's names."""
    from matplotlib import font_manager

    names = [facts.name, *facts.films, *facts.characters, *facts.dropped]
    path = font_of("".join(names), 20).path
    if not isinstance(path, str):  # Pillow's own font, which is in no file
        return ["DejaVu Sans"]
    font_manager.fontManager.addfont(path)
    return ["DejaVu Sans", font_manager.get_font(path).family_name]
