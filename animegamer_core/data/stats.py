"""`dataset stats`: the statistics of a dataset, as a table and as a picture (stats.png)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..files import save_picture
from ..game.life import Stat
from ..game.state import MotionScope
from ..media.text import drawable, font_of
from ..messages import shortened
from .dataset import DatasetFolder
from .records import CAPTION_FIELDS, DROPPED, SET_ASIDE, Dropped, SetAside, readable_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from PIL import Image

PICTURE = "stats.png"
LEVELS = tuple(f"{scope.value} {scope.name.lower()}" for scope in MotionScope)
LEVEL_COLOURS = ("#b9a9e8", "#9a83dd", "#7c5fd0", "#6243bd", "#43298f")  # from still to wild
BAR, LEFT_OUT, GRID, FAINT = "#6d4fc4", "#aab0bd", "#e6e8ec", "#696d78"
MOST = 8  # of names, films, words that are listed
SIZE, DPI, BINS = (12.8, 8.6), 100, 48
Counts = Mapping[str, int]  # name -> clips, the largest first


class _Facts:
    """What table and picture show."""

    def __init__(self, path: str | Path) -> None:
        self.folder = folder = DatasetFolder.open(path)
        self.name, self.turns = folder.path.resolve().name, folder.turns
        dropped = readable_rows(folder.path / DROPPED, Dropped)
        aside = len(readable_rows(folder.path / SET_ASIDE, SetAside))
        self.dropped = _largest(row.reason.split(" of ")[0] for row in dropped)  # 'duplicate of <clip>' as duplicate
        self.dropped_of = Counter(row.film for row in dropped)
        self.films = _largest(turn.film for turn in self.turns)
        self.characters = _largest(name for turn in self.turns for name in turn.character or ())
        whole = sum(not turn.missing for turn in self.turns)
        none = sum(turn.missing == CAPTION_FIELDS for turn in self.turns)
        self.captions = {"whole": whole, "in part": len(self.turns) - whole - none, "none": none, "set aside": aside}
        values = [(turn.motion_level, turn.motion_value) for turn in self.turns if turn.motion_value is not None]
        # the motion values of each level's clips, in px per frame
        self.levels = [np.array([value for at, value in values if at == level]) for level in range(1, 6)]

    def changes(self, stat: Stat) -> list[int]:
        """The known changes of a stat."""
        found = ((turn.stats or {}).get(stat.name) for turn in self.turns)
        return [units for units in found if units is not None]


def _largest(names: Iterable[str]) -> Counts:
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))


def stats(folder: str | Path) -> str:
    """The table of a dataset folder; DatasetError if it cannot be read."""
    facts = _Facts(folder)
    parts = [_heading(facts), _levels(facts), _character_stats(facts)]
    films = {film: facts.films.get(film, 0) for film in {**facts.films, **facts.dropped_of}}
    parts.append(_counts("film", films, len(facts.turns), facts.dropped_of))
    parts.append(_counts("character", facts.characters, len(facts.turns)))
    for name in ("motion", "background", "adverb"):
        words = _largest(value for turn in facts.turns if (value := getattr(turn, name)))
        parts.append(_counts(name, words, len(facts.turns)))
    return "\n\n".join("\n".join(part) for part in parts if part)


def _heading(facts: _Facts) -> list[str]:
    minutes, seconds = divmod(round(sum(turn.end - turn.start for turn in facts.turns)), 60)
    lengths = [len(game.clips) for game in facts.folder.games]
    games = f"{len(lengths)} ({sum(game.held_out for game in facts.folder.games)} held out)"
    if lengths:
        games += f" of {min(lengths)} to {max(lengths)} clips, median {np.median(lengths):g}"
    dropped = ", ".join(f"{reason} {count}" for reason, count in facts.dropped.items())
    films = counted(len(facts.films), "film")
    rows = {
        "dataset": facts.name,
        "clips": f"{len(facts.turns)} of {films}, {minutes // 60}:{minutes % 60:02}:{seconds:02}",
        "games": games,
        "captions": ", ".join(f"{name} {count}" for name, count in facts.captions.items()),
        "dropped": counted(sum(facts.dropped.values()), "segment") + (f": {dropped}" if dropped else ""),
    }
    return [f"{name:<10} {text}" for name, text in rows.items()]


def _levels(facts: _Facts) -> list[str]:
    if not any(values.size for values in facts.levels):
        return []
    lines = [f"{'motion level':<14}{'clips':>8}{'share':>8}   {'px a frame':<18}{'median':>8}"]
    for name, values in zip(LEVELS, facts.levels, strict=True):
        span, median = "-", "-"
        if values.size:
            span, median = f"{values.min():.2f} .. {values.max():.2f}", f"{np.median(values):.2f}"
        lines.append(f"{name:<14}{values.size:>8}{_share(values.size, len(facts.turns)):>8}   {span:<18}{median:>8}")
    return lines


def _character_stats(facts: _Facts) -> list[str]:
    lines = [f"{'stat':<14}{'less':>8}{'same':>8}{'more':>8}{'missing':>10}"]
    for stat in facts.folder.stats:
        changes = facts.changes(stat)
        signs = Counter(np.sign(changes).tolist())
        missing = len(facts.turns) - len(changes)
        lines.append(f"{stat.name:<14}{signs[-1]:>8}{signs[0]:>8}{signs[1]:>8}{missing:>10}")
    return lines


def _counts(title: str, counts: Counts, clips: int, dropped: Counts | None = None) -> list[str]:
    """A table of the most frequent names; for films also the dropped segments."""
    if not counts:
        return []
    lines = [f"{f'{title} ({len(counts)})':<42}{'clips':>8}{'share':>8}{'' if dropped is None else '  dropped'}"]
    for name, count in list(counts.items())[:MOST]:
        more = "" if dropped is None else f"{dropped.get(name, 0):>9}"
        lines.append(f"{shortened(name, 40):<42}{count:>8}{_share(count, clips):>8}{more}")
    return [*lines, *([f"... and {len(counts) - MOST} more"] if len(counts) > MOST else [])]


def counted(count: int, thing: str) -> str:
    """A number of things, as `1 clip` or `3 clips`."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def _share(count: int, whole: int) -> str:
    return f"{100 * count / whole:.0f} %" if whole else "-"


def write_stats(folder: str | Path) -> Path:
    """Draw a dataset folder's statistics into its stats.png; returns the path."""
    path = Path(folder) / PICTURE
    save_picture(draw_stats(folder), path)
    return path


def draw_stats(folder: str | Path) -> Image.Image:
    """Motion values with their levels, and clips by level, caption, stat, character and film; 1280 x 860.

    Drawn with matplotlib and without a display; ValueError without matplotlib.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    facts = _Facts(folder)
    known = facts.folder.stats
    captions = {"captioned": facts.captions["whole"]}
    captions |= {f"{stat.name} +": sum(units > 0 for units in facts.changes(stat)) for stat in known}
    levels = {name: values.size for name, values in zip(LEVELS, facts.levels, strict=True)}
    aside = {"set aside": facts.captions["set aside"]} if facts.captions["set aside"] else {}
    panels: list[tuple[str, Counts, str | Sequence[str]]] = [
        ("Motion levels", levels, LEVEL_COLOURS),
        ("Captions and stats", captions, (BAR, *(stat.colour for stat in known))),
        ("Characters", facts.characters, BAR),
        ("Films", facts.films, BAR),
        ("Left out", {**aside, **facts.dropped}, LEFT_OUT),
    ]
    names = [facts.name, *facts.films, *facts.characters, *facts.dropped]
    # parse_math off: a name may hold dollar signs
    with matplotlib.rc_context({"font.family": _font_families(names), "text.parse_math": False, "font.size": 10}):
        figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained")
        figure.suptitle(drawable(shortened(facts.name, 60)), size=18)
        grid = figure.add_gridspec(2, 6)
        _histogram(figure.add_subplot(grid[0, :2]), facts.levels)
        for place, panel in enumerate(panels, start=1):
            row, column = divmod(2 * place, 6)
            _bars(figure.add_subplot(grid[row, column : column + 2]), *panel)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def _bars(axes: Axes, title: str, counts: Counts, colour: str | Sequence[str]) -> None:
    """Horizontal bars of the first counts, with their names before and their numbers behind."""
    rows = list(counts.items())[:MOST]
    bars = axes.barh(range(len(rows)), [count for _, count in rows], height=0.6, color=colour)
    axes.bar_label(bars, padding=4, color=FAINT)
    axes.set_yticks(range(len(rows)), [drawable(shortened(name, 16)) for name, _ in rows])
    axes.set(title=title, xticks=[], ylim=(MOST - 0.5, -0.5))
    axes.margins(x=0.15)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _histogram(axes: Axes, levels: Sequence[np.ndarray]) -> None:
    """Clips by motion value on a logarithmic scale, each part in the colour of its level."""
    moving = np.concatenate(levels)
    moving = moving[moving > 0]
    axes.set(title="Motion values", xlabel="px a frame at 480 px height")
    if moving.size:
        low, high = moving.min() / 1.15, moving.max() * 1.15
        bins = np.geomspace(low, high, BINS + 1)
        axes.hist([level.clip(low, high) for level in levels], bins=bins.tolist(), stacked=True, color=LEVEL_COLOURS)
        axes.set_xscale("log")
        axes.locator_params(axis="y", integer=True)  # clips are whole
        axes.xaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)


def _font_families(names: Sequence[str]) -> list[str]:
    """matplotlib's own font, then the system's font that has the most letters of these names."""
    from matplotlib import font_manager

    path = font_of("".join(names), 20).path
    if not isinstance(path, str):  # Pillow's own font, which is in no file
        return ["DejaVu Sans"]
    font_manager.fontManager.addfont(path)
    return ["DejaVu Sans", font_manager.get_font(path).family_name]
