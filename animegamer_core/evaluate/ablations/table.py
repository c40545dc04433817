"""The table of the ablations, made from the scores on disk: our values with their intervals, and the paper's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...files import write_text
from ...toybox.scenes import HEADS
from ...weights.storage import read_json
from ..estimates import Estimate, fraction_over_games, mean_over_games
from ..report import machine
from ..world.metrics import SOURCE
from .run import Ablations, Samples
from .variants import GAMES, RECONSTRUCTION, VARIANTS

COLUMNS = {  # metric -> the column's head
    "clip_i": "CLIP-I",
    "dreamsim": "DreamSim",
    "acc_f": "ACC-F",
    "mae_f": "MAE-F",
    "psnr": "PSNR, dB",
    "states_right": "states right",
    "character": "character",
    "place": "place",
    "motion": "motion",
    "colour": "colour",
    "remembered": "colour named before",
}
FRACTIONS = {"acc_f", "states_right", *HEADS, "remembered"}
NOT_SHOWN = {RECONSTRUCTION: (), GAMES: ("psnr", "colour")}
TITLES = {
    RECONSTRUCTION: "Held-out clips, encoded and decoded again",
    GAMES: "Games of the frozen benchmark, played",
}
# 97.5 % points of Student's t distribution with 1, 2, 3 ... degrees of freedom
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)

Values = Sequence[tuple[Sequence[str], Sequence[float | None]]]  # for each seed, the games and values of its samples


def estimate(seeds: Values, is_fraction: bool = False) -> Estimate:
    """The estimate from all seeds' values, with an interval that covers the choice of games and of seeds.

    Over games, fractions have Wilson's interval and means a bootstrap interval. The interval of the seeds' means is
    +- t s / sqrt(S), with Student's t, their sample standard deviation s and their number S. It is independent of the
    choice of games, so half the joint interval is the root of the sum of squares of both half intervals.
    """
    games: dict[str, list[float]] = {}
    means: list[float] = []
    for groups, values in seeds:
        known = [(game, value) for game, value in zip(groups, values, strict=False) if value is not None]
        for game, value in known:
            games.setdefault(game, []).append(value)
        if known:
            means.append(sum(value for _, value in known) / len(known))
    if is_fraction:
        found = fraction_over_games([[value > 0.5 for value in values] for values in games.values()])
    else:
        found = mean_over_games(list(games.values()))
    if len(means) < 2:
        return found
    point = STUDENT[min(len(means) - 1, len(STUDENT)) - 1]  # for more seeds, a little too wide
    half = point * float(np.std(means, ddof=1)) / math.sqrt(len(means))
    below, above = (math.hypot(side, half) for side in (found.value - found.low, found.high - found.value))
    return replace(found, low=found.value - below, high=found.value + above)


def write_table(job: Ablations, out: Path, command: str) -> Path:
    """Write ablations.md from all scores that exist; returns its path."""
    lines = ["# Ablations in the Toybox", "", f"`{command}`, base world {job.world.fingerprint[:12]}, {machine()}", ""]
    lines += [f"Values with 95 % intervals over games and seeds; in brackets the paper's ({SOURCE})."]
    lines += [f"({remark})" for remark in job.models.remarks]
    for family, title in TITLES.items():
        scores = {}
        for name in VARIANTS:
            paths = sorted((job.folder / "variants" / name).glob(f"seed-*/{family}.json"))
            if paths:
                scores[name] = [read_json(path, Samples) for path in paths]
        if scores:
            lines += ["", f"## {title}", "", *_table(scores, family)]
    write_text(out / "ablations.md", "\n".join([*lines, ""]))
    return out / "ablations.md"


def _table(scores: Mapping[str, Sequence[Samples]], family: str) -> list[str]:
    """scores: variant -> the samples of each of its seeds."""
    scored = {metric for seeds in scores.values() for one in seeds for metric in one.columns}
    seen = [metric for metric in COLUMNS if metric in scored.difference(NOT_SHOWN[family])]
    lines = [f"| variant | seeds | {' | '.join(COLUMNS[name] for name in seen)} |", "| --- " * (2 + len(seen)) + "|"]
    for name, seeds in scores.items():
        paper = VARIANTS[name].published(family)
        cells = []
        for metric in seen:
            values = [(one.groups, one.columns.get(metric, ())) for one in seeds]
            cells.append(_cell(estimate(values, metric in FRACTIONS), paper.get(metric)))
        lines.append(f"| {name} | {len(seeds)} | {' | '.join(cells)} |")
    return [*lines, "", *(f"- {name}: {VARIANTS[name].about}" for name in scores)]


def _cell(found: Estimate, paper: float | None) -> str:
    published = "" if paper is None else f" [{paper:.3f}]"
    if not found.count:
        return f"-{published}"
    digits = 1 if abs(found.value) >= 2 else 3
    return f"{found.value:.{digits}f} ({found.low:.{digits}f} to {found.high:.{digits}f}){published}"
