"""The picture of a dataset's figures, drawn with Pillow alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .plots import FAINT, GRID, INK, PAPER, SHARPER, put_words, round_numbers, round_ratios
from .stats import GAUGES, LEVEL_NAMES, DatasetFacts, brief, clock, counted, share

if TYPE_CHECKING:
    from PIL import Image, ImageDraw

SIZE = (1280, 860)
LEVEL_INKS = ("#b9a9e8", "#9a83dd", "#7c5fd0", "#6243bd", "#43298f")  # from still to wild
INKS = {"social": "#2f74d0", "entertainment": "#d07a1c", "stamina": "#2a9c65", "plain": "#6d4fc4", "less": "#aab0bd"}
BINS = 48
ROWS = 8
_ROW = 30

Box = tuple[float, float, float, float]  # left, top, right, bottom in pixels of the picture


@dataclass(frozen=True)
class Bar:
    """One bar of a panel: what it is called, its length, what stands behind it, its colour."""

    name: str
    value: float
    text: str
    ink: str


def draw_facts(facts: DatasetFacts) -> Image.Image:
    """The whole picture, 1280 x 860."""
    from PIL import Image, ImageDraw

    sheet = Image.new("RGB", (SIZE[0] * SHARPER, SIZE[1] * SHARPER), PAPER)
    draw = ImageDraw.Draw(sheet)
    seconds = sum(turn.end - turn.start for turn in facts.turns)
    put_words(draw, (40, 38), brief(facts.name, 60), INK, "lm", 24)
    counts = {"clip": len(facts.turns), "film": len(facts.films), "game": len(facts.lengths)}
    told = [*(counted(count, thing) for thing, count in counts.items()), clock(seconds)]
    put_words(draw, (40, 68), ", ".join(told), FAINT, "lm", 15)
    _histogram(draw, (84, 130, 820, 424), facts)
    clips = len(facts.turns)
    _bars(draw, (870, 110, 1240, 290), "Motion levels", _level_bars(facts))
    _bars(draw, (870, 308, 1240, 460), "Captions and gauges", _caption_bars(facts))
    _bars(draw, (40, 530, 420, 830), "Characters", _plain_bars(facts.characters, clips))
    _bars(draw, (450, 530, 830, 830), "Films", _plain_bars(facts.films, clips))
    _bars(draw, (870, 530, 1240, 830), "Left out", _left_out_bars(facts))
    return sheet.resize(SIZE, Image.Resampling.LANCZOS)


def _level_bars(facts: DatasetFacts) -> list[Bar]:
    rows = []
    for number, (name, ink) in enumerate(zip(LEVEL_NAMES, LEVEL_INKS, strict=True), start=1):
        count = facts.level(number).size
        rows.append(Bar(f"{number} {name}", count, f"{count}  {share(count, len(facts.turns))}", ink))
    return rows


def _plain_bars(counts: Mapping[str, int], clips: int) -> list[Bar]:
    return [
        Bar(name, count, f"{count}  {share(count, clips)}", INKS["plain"])
        for name, count in list(counts.items())[:ROWS]
    ]


def _caption_bars(facts: DatasetFacts) -> list[Bar]:
    clips = len(facts.turns)
    counts = {"captioned": facts.captions["whole"]} | {name: _raised(facts, name) for name in GAUGES}
    signs = dict.fromkeys(GAUGES, " +1")
    return [
        Bar(f"{name}{signs.get(name, '')}", count, f"{count}  {share(count, clips)}", INKS.get(name, INKS["plain"]))
        for name, count in counts.items()
    ]


def _left_out_bars(facts: DatasetFacts) -> list[Bar]:
    counts = {**({"set aside": facts.aside} if facts.aside else {}), **facts.dropped}
    return [Bar(reason, count, str(count), INKS["less"]) for reason, count in list(counts.items())[:ROWS]]


def _raised(facts: DatasetFacts, gauge: str) -> int:
    return sum(getattr(turn, gauge) == 1 for turn in facts.turns)


def _bars(draw: ImageDraw.ImageDraw, box: Box, title: str, rows: Sequence[Bar]) -> None:
    """A panel of level bars, as long as their share of the longest."""
    left, top, right, _ = box
    put_words(draw, (left, top), title, INK, "lm", 17)
    if not rows:
        put_words(draw, (left, top + 40), "none", FAINT, "lm", 15)
    longest = max((row.value for row in rows), default=0) or 1
    start, room = left + 130, right - left - 130 - 92
    for number, row in enumerate(rows):
        middle = top + 38 + number * _ROW
        put_words(draw, (left, middle), brief(row.name, 16), INK, "lm", 14)
        length = row.value / longest * room
        _rounded(draw, (start, middle - 9, start + room, middle + 9), GRID)
        if row.value:
            _rounded(draw, (start, middle - 9, start + max(8, length), middle + 9), row.ink)
        put_words(draw, (start + room + 10, middle), row.text, FAINT, "lm", 14)


def _rounded(draw: ImageDraw.ImageDraw, box: Box, ink: str) -> None:
    draw.rounded_rectangle([SHARPER * value for value in box], radius=4 * SHARPER, fill=ink)


def _histogram(draw: ImageDraw.ImageDraw, box: Box, facts: DatasetFacts) -> None:
    """Clips by motion value on a logarithmic scale, each part in the colour of its level."""
    left, top, right, bottom = box
    put_words(draw, (40, top - 20), "Motion values", INK, "lm", 17)
    levels = [facts.level(number) for number in range(1, 6)]
    moving = np.concatenate(levels)
    moving = moving[moving > 0]
    if not moving.size:
        put_words(draw, (40, top + 20), "no clip is measured", FAINT, "lm", 15)
        return
    low, high = moving.min() / 1.15, moving.max() * 1.15
    edges = np.geomspace(low, high, BINS + 1)
    counts = np.stack([np.histogram(values.clip(low, high), bins=edges)[0] for values in levels])  # (level, bin)
    highest = counts.sum(0).max() * 1.08

    def across(value: float) -> float:
        return left + math.log(value / low) / math.log(high / low) * (right - left)

    for count in (number for number in round_numbers(0, highest) if number == round(number)):
        y = bottom - count / highest * (bottom - top)
        draw.line([SHARPER * value for value in (left, y, right, y)], fill=GRID, width=SHARPER)
        put_words(draw, (left - 10, y), f"{count:g}", FAINT, "rm", 14)
    for value in round_ratios(low, high):
        put_words(draw, (across(value), bottom + 18), f"{value:g}", FAINT, "mm", 14)
    for place in range(BINS):
        floor = bottom
        for level, ink in enumerate(LEVEL_INKS):
            if counts[level, place]:
                height = counts[level, place] / highest * (bottom - top)
                bar = (across(edges[place]) + 1, floor - height, across(edges[place + 1]) - 1, floor)
                draw.rectangle([SHARPER * value for value in bar], fill=ink)
                floor -= height
    put_words(draw, ((left + right) / 2, bottom + 44), "px a frame at 480 px height", FAINT, "mm", 14)
