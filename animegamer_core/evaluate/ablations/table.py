"""The table of the ablations, made from the scores on disk: our values, the paper's, and whether they agree.

A difference to `full` counts only if its interval over games and seeds excludes 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...files import write_text
from ...toybox.scenes import HEADS
from ...weights.storage import read_json, write_json
from ..estimates import UNMEASURED as NOT_MEASURED
from ..estimates import Estimate, fraction_over_games, mean_over_games
from ..report import machine
from ..world.metrics import SOURCE
from .run import Ablations, Samples
from .variants import CLAIMS, FULL, GAMES, RECONSTRUCTION, VARIANTS, Claim

ERRORS = ("mae_f", "states_mae")  # lower is better
COLUMNS = {  # metric -> the column's head
    "clip_i": "CLIP-I",
    "dreamsim": "DreamSim",
    "clip_t": "CLIP-T",
    "acc_f": "ACC-F",
    "mae_f": "MAE-F",
    "psnr": "PSNR, dB",
    "states_right": "states right",
    "level_right": "level right",
    "character": "character",
    "place": "place",
    "motion": "motion",
    "colour": "colour",
    "remembered": "colour named before",
}
FRACTIONS = {"acc_f", "states_right", "level_right", *HEADS, "remembered"}
NOT_SHOWN = {RECONSTRUCTION: (), GAMES: ("psnr", "colour")}
TITLES = {
    RECONSTRUCTION: "Held-out clips, encoded and decoded again",
    GAMES: "Games of the frozen benchmark, played",
}
YES, NO, OPEN, UNMEASURED, FEW = "yes", "no", "no clear difference", "not measured", "too few games or seeds"
ENOUGH_GAMES = 10  # with fewer, a bootstrap interval is too narrow
ENOUGH_SEEDS = 3  # with two, a single difference would have to show how much runs vary
# 97.5 % points of Student's t distribution with 1, 2, 3 ... degrees of freedom
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)

Scores = Mapping[tuple[str, str], Mapping[int, Samples]]  # (variant, family) -> seed -> its samples
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


@dataclass(frozen=True)
class ClaimResult:
    """Whether a claim of the paper holds here.

    difference: the variant minus `claim.part` times full, sample by sample. seeds: how many runs of each were compared.
    """

    claim: Claim
    difference: Estimate
    agrees: str
    seeds: int


def check_claim(claim: Claim, variant: Mapping[int, Samples], full: Mapping[int, Samples]) -> ClaimResult:
    """Test a claim of the paper on the differences of the same samples, for the seeds that both have.

    The interval of the differences must exclude 0, and there must be enough games and seeds.
    """
    values = []
    for seed in sorted(variant.keys() & full.keys()):
        ours, theirs = (samples[seed].columns.get(claim.metric) for samples in (variant, full))
        if ours is not None and theirs is not None:
            pairs = zip(ours, theirs, strict=True)
            differences = [None if None in pair else pair[0] - claim.part * pair[1] for pair in pairs]
            values.append((full[seed].groups, differences))
    difference = estimate(values)
    games = {game for groups, row in values for game, value in zip(groups, row, strict=True) if value is not None}
    low, high = difference.low, difference.high
    if claim.metric in ERRORS:
        low, high = -high, -low
    if not difference.count:
        agrees = UNMEASURED
    elif len(games) < ENOUGH_GAMES or len(values) < ENOUGH_SEEDS:
        agrees = FEW
    else:
        agrees = YES if high < 0 else NO if low > 0 else OPEN
    return ClaimResult(claim, difference, agrees, len(values))


def read_scores(folder: Path) -> Scores:
    """Read all scores that exist."""
    found: dict[tuple[str, str], dict[int, Samples]] = {}
    for row in VARIANTS.values():
        for family in row.families:
            paths = (folder / "variants" / row.name).glob(f"seed-*/{family}.json")
            if samples := {int(path.parent.name.removeprefix("seed-")): read_json(path, Samples) for path in paths}:
                found[row.name, family] = dict(sorted(samples.items()))
    return found


def write_table(job: Ablations, out: Path, command: str) -> list[Path]:
    """Write ablations.md and ablations.json, with every sample, from all scores; returns their paths.

    docs/evaluation.md says how the figures are measured.
    """
    scores, rows, results, tables = read_scores(job.folder), [], [], {}
    for (name, family), seeds in scores.items():
        figures = {
            metric: estimate([(one.groups, one.columns.get(metric, ())) for one in seeds.values()], metric in FRACTIONS)
            for metric in dict.fromkeys(metric for one in seeds.values() for metric in one.columns)
        }
        samples = {seed: {"groups": one.groups, **one.columns} for seed, one in seeds.items()}
        values = {metric: found.json_values for metric, found in figures.items()}
        rows.append({"variant": name, "family": family, "figures": values, "samples": samples})
        tables.setdefault(family, {})[name] = (len(seeds), figures)
    for claim in CLAIMS:  # against full's scores of the same family
        family = VARIANTS[claim.variant].families[0]
        results.append(check_claim(claim, *(scores.get((name, family), {}) for name in (claim.variant, FULL))))
    claims = [
        {
            "says": result.claim.says,
            "paper": result.claim.published,
            "difference": result.difference.json_values,
            "seeds": result.seeds,
            "agrees": result.agrees,
        }
        for result in results
    ]
    facts = {"command": command, "base_world": job.world.fingerprint, "machine": machine()}
    write_json(out / "ablations.json", {**facts, "rows": rows, "claims": claims})

    lines = ["# Ablations in the Toybox", "", f"`{command}`", ""]
    lines += [f"Values with 95 % intervals over games and seeds; in brackets the paper's ({SOURCE})."]
    lines += [f"({remark})" for remark in job.models.remarks]
    for family, title in TITLES.items():
        if family in tables:
            lines += ["", f"## {title}", "", *_table(tables[family], family)]
    lines += ["", "## What the paper says", "", "| the paper says | there | difference here | seeds | agrees |"]
    lines += ["| --- " * 5 + "|"]
    for result in results:
        paper = "-" if result.claim.published is None else "{:.3f}, full {:.3f}".format(*result.claim.published)
        difference = f"{_cell(result.difference)} to {result.claim.part:g} full"
        lines.append(f"| {result.claim.says} | {paper} | {difference} | {result.seeds} | {result.agrees} |")
    write_text(out / "ablations.md", "\n".join([*lines, ""]))
    return [out / "ablations.md", out / "ablations.json"]


def _table(rows: Mapping[str, tuple[int, Mapping[str, Estimate]]], family: str) -> list[str]:
    """rows: variant -> its number of seeds, and its figures by metric."""
    scored = {metric for _, figures in rows.values() for metric in figures}.difference(NOT_SHOWN[family])
    seen = [metric for metric in COLUMNS if metric in scored]
    lines = [f"| variant | seeds | {' | '.join(COLUMNS[name] for name in seen)} |", "| --- " * (2 + len(seen)) + "|"]
    for name, (seeds, figures) in rows.items():
        paper = VARIANTS[name].published(family)
        cells = (_cell(figures.get(metric, NOT_MEASURED), paper.get(metric)) for metric in seen)
        lines.append(f"| {name} | {seeds} | {' | '.join(cells)} |")
    return [*lines, "", *(f"- {name}: {VARIANTS[name].about}" for name in rows)]


def _cell(found: Estimate, paper: float | None = None) -> str:
    published = "" if paper is None else f" [{paper:.3f}]"
    if not found.count:
        return f"-{published}"
    digits = 1 if abs(found.value) >= 2 else 3
    return f"{found.value:.{digits}f} ({found.low:.{digits}f} to {found.high:.{digits}f}){published}"
