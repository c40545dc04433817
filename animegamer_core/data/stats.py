"""`dataset stats`: the statistics of a dataset, as a table and as a picture (stats.png)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..files import save_picture
from ..game.life import Stat
from ..game.state import MotionScope
from ..media.text import drawable, font_of
from ..messages import brief
from .dataset import DatasetFolder, MotionFacts
from .records import CAPTION_FIELDS, DROPPED, SET_ASIDE, ClipRecord, Dropped, SetAside, readable_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from PIL import Image

PICTURE = "stats.png"
LEVEL_NAMES = tuple(scope.name.lower() for scope in MotionScope)
LEVEL_COLOURS = ("#b9a9e8", "#9a83dd", "#7c5fd0", "#6243bd", "#43298f")  # from still to wild
BAR, LEFT_OUT, GRID, FAINT = "#6d4fc4", "#aab0bd", "#e6e8ec", "#696d78"
MOST = 8  # of names, films, words that are listed
SIZE, DPI, BINS = (12.8, 8.6), 100, 48


@dataclass(frozen=True)
class DatasetFacts:
    """What table and picture show. Counts are of clips, the largest first; `dropped` counts segments by reason."""

    name: str
    turns: tuple[ClipRecord, ...]
    lengths: tuple[int, ...]  # clips of each game
    held_out: int
    motion: MotionFacts
    stats: tuple[Stat, ...]
    aside: int
    dropped: Mapping[str, int]
    dropped_by_film: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: DatasetFolder) -> DatasetFacts:
        """The facts of a folder, with its dropped and set-aside clips."""
        dropped = readable_rows(folder.path / DROPPED, Dropped)
        return cls(
            name=folder.path.resolve().name,
            turns=folder.turns,
            lengths=tuple(len(game.clips) for game in folder.games),
            held_out=sum(game.held_out for game in folder.games),
            motion=folder.motion,
            stats=folder.stats,
            aside=len(readable_rows(folder.path / SET_ASIDE, SetAside)),
            # 'duplicate of <clip>' counts as duplicate
            dropped=_largest(row.reason.split(" of ")[0] for row in dropped),
            dropped_by_film=_largest(row.film for row in dropped),
        )

    @property
    def films(self) -> dict[str, int]:
        """Clips of each film."""
        return _largest(turn.film for turn in self.turns)

    @property
    def characters(self) -> dict[str, int]:
        """Clips of each character."""
        return _largest(name for turn in self.turns for name in turn.character or ())

    @property
    def captions(self) -> dict[str, int]:
        """Clips by how much of their caption is there, and those that were set aside."""
        parts = Counter(
            "whole" if not turn.missing else "none" if turn.missing == CAPTION_FIELDS else "in part"
            for turn in self.turns
        )
        return {name: parts[name] for name in ("whole", "in part", "none")} | {"set aside": self.aside}

    def words(self, name: str) -> dict[str, int]:
        """Clips by the words of a caption field."""
        return _largest(value for turn in self.turns if (value := getattr(turn, name)))

    def changes(self, stat: Stat) -> list[int]:
        """The known changes of a stat."""
        found = ((turn.stats or {}).get(stat.name) for turn in self.turns)
        return [units for units in found if units is not None]

    def level(self, number: int) -> np.ndarray:
        """Motion values (n,) of a level's clips, in px per frame."""
        found = [
            turn.motion_value for turn in self.turns if turn.motion_level == number and turn.motion_value is not None
        ]
        return np.array(found, dtype=float)


def _largest(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))


def stats(folder: str | Path) -> str:
    """The table of a dataset folder; DatasetError if it cannot be read."""
    facts = DatasetFacts.of(DatasetFolder.open(folder))
    parts = [_heading(facts), _levels(facts), _character_stats(facts)]
    films = {film: facts.films.get(film, 0) for film in {**facts.films, **facts.dropped_by_film}}
    parts.append(_counts("film", films, len(facts.turns), facts.dropped_by_film))
    parts.append(_counts("character", facts.characters, len(facts.turns)))
    parts += [_counts(name, facts.words(name), len(facts.turns)) for name in ("motion", "background", "adverb")]
    return "\n\n".join("\n".join(part) for part in parts if part)


def _heading(facts: DatasetFacts) -> list[str]:
    seconds = sum(turn.end - turn.start for turn in facts.turns)
    games = f"{len(facts.lengths)} ({facts.held_out} held out)"
    if facts.lengths:
        games += f" of {min(facts.lengths)} to {max(facts.lengths)} clips, median {np.median(facts.lengths):g}"
    dropped = ", ".join(f"{reason} {count}" for reason, count in facts.dropped.items())
    rows = {
        "dataset": facts.name,
        "clips": f"{len(facts.turns)} of {counted(len(facts.films), 'film')}, {clock(seconds)}",
        "games": games,
        "captions": ", ".join(f"{name} {count}" for name, count in facts.captions.items()),
        "dropped": counted(sum(facts.dropped.values()), "segment") + (f": {dropped}" if dropped else ""),
    }
    if motion := facts.motion.backend:
        slow = f" or {facts.motion.slow_fraction} of the fast pixels" if facts.motion.slow_fraction else ""
        rows["motion"] = f"backend {motion}, magnitudes under {facts.motion.threshold} px{slow} ignored"
    return [f"{name:<10} {text}" for name, text in rows.items()]


def _levels(facts: DatasetFacts) -> list[str]:
    if not any(facts.level(number).size for number in range(1, 6)):
        return []
    lines = [f"{'motion level':<14}{'clips':>8}{'share':>8}   {'px a frame':<18}{'median':>8}"]
    for number, name in enumerate(LEVEL_NAMES, start=1):
        values = facts.level(number)
        span = f"{values.min():.2f} .. {values.max():.2f}" if values.size else "-"
        median = f"{np.median(values):.2f}" if values.size else "-"
        shown = share(values.size, len(facts.turns))
        lines.append(f"{f'{number} {name}':<14}{values.size:>8}{shown:>8}   {span:<18}{median:>8}")
    return lines


def _character_stats(facts: DatasetFacts) -> list[str]:
    lines = [f"{'stat':<14}{'less':>8}{'same':>8}{'more':>8}{'missing':>10}"]
    for stat in facts.stats:
        changes = facts.changes(stat)
        counts = Counter(np.sign(changes).tolist())
        missing = len(facts.turns) - len(changes)
        lines.append(f"{stat.name:<14}{counts[-1]:>8}{counts[0]:>8}{counts[1]:>8}{missing:>10}")
    return lines


def _counts(title: str, counts: Mapping[str, int], clips: int, dropped: Mapping[str, int] | None = None) -> list[str]:
    """A table of the most frequent names; for films also the dropped segments."""
    if not counts:
        return []
    more = f"{'dropped':>9}" if dropped is not None else ""
    lines = [f"{f'{title} ({len(counts)})':<42}{'clips':>8}{'share':>8}{more}"]
    for name, count in list(counts.items())[:MOST]:
        more = f"{dropped.get(name, 0):>9}" if dropped is not None else ""
        lines.append(f"{_line(name, 40):<42}{count:>8}{share(count, clips):>8}{more}")
    if len(counts) > MOST:
        lines.append(f"... and {len(counts) - MOST} more")
    return lines


def counted(count: int, thing: str) -> str:
    """A number of things, as `1 clip` or `3 clips`."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def share(count: int, whole: int) -> str:
    """A count in per cent; `-` if the whole is 0."""
    return f"{100 * count / whole:.0f} %" if whole else "-"


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _line(text: str, room: int) -> str:
    """A name on one line, shortened to `room` characters."""
    return brief(" ".join(text.split()), room)


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

    facts = DatasetFacts.of(DatasetFolder.open(folder))
    # parse_math off: a name may hold dollar signs
    with matplotlib.rc_context({"font.family": _font_families(facts), "text.parse_math": False, "font.size": 10}):
        figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained")
        figure.suptitle(drawable(_line(facts.name, 60)), size=18)
        grid = figure.add_gridspec(2, 6)
        _histogram(figure.add_subplot(grid[0, :2]), facts)
        panels = {
            "Motion levels": {f"{n} {name}": facts.level(n).size for n, name in enumerate(LEVEL_NAMES, start=1)},
            "Captions and stats": {
                "captioned": facts.captions["whole"],
                **{f"{stat.name} +": sum(units > 0 for units in facts.changes(stat)) for stat in facts.stats},
            },
            "Characters": facts.characters,
            "Films": facts.films,
            "Left out": {**({"set aside": facts.aside} if facts.aside else {}), **facts.dropped},
        }
        colours = {
            "Motion levels": LEVEL_COLOURS,
            "Captions and stats": (BAR, *(stat.colour for stat in facts.stats)),
            "Left out": LEFT_OUT,
        }
        for place, (title, counts) in enumerate(panels.items(), start=1):
            row, column = divmod(2 * place, 6)
            _bars(figure.add_subplot(grid[row, column : column + 2]), title, counts, colours.get(title, BAR))
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def _bars(axes: Axes, title: str, counts: Mapping[str, int], colour: str | tuple[str, ...]) -> None:
    """Horizontal bars of the first counts, with their names before and their numbers behind."""
    rows = list(counts.items())[:MOST]
    bars = axes.barh(range(len(rows)), [count for _, count in rows], height=0.6, color=colour)
    axes.bar_label(bars, padding=4, color=FAINT)
    axes.set_yticks(range(len(rows)), [drawable(_line(name, 16)) for name, _ in rows])
    axes.set(title=title, xticks=[], ylim=(MOST - 0.5, -0.5))
    axes.margins(x=0.15)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _histogram(axes: Axes, facts: DatasetFacts) -> None:
    """Clips by motion value on a logarithmic scale, each part in the colour of its level."""
    levels = [facts.level(number) for number in range(1, 6)]
    moving = np.concatenate(levels)
    moving = moving[moving > 0]
    axes.set(title="Motion values", xlabel="px a frame at 480 px height")
    if moving.size:
        low, high = moving.min() / 1.15, moving.max() * 1.15
        bins = np.geomspace(low, high, BINS + 1)
        axes.hist([level.clip(low, high) for level in levels], bins=bins, stacked=True, color=LEVEL_COLOURS)
        axes.set_xscale("log")
        axes.yaxis.get_major_locator().set_params(integer=True)  # clips are whole
        axes.xaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
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
