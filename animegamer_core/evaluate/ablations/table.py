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
from ...weights.storage import write_json
from ..estimates import Estimate, fraction_over_games, mean_over_games
from ..report import machine
from ..similarity import STAND_IN
from ..world.metrics import SOURCE
from .run import Ablations, Samples
from .variants import CLAIMS, FAMILIES, FULL, GAMES, RECONSTRUCTION, VARIANTS, Claim

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


def over_seeds(over_games: Estimate, seed_means: Sequence[float]) -> Estimate:
    """An estimate whose interval covers the choice of games and of seeds.

    over_games: the estimate from all seeds' values, with its interval over games. seed_means: each seed's mean on the
    same games. The interval of these means is +- t s / sqrt(S), with Student's t, their sample standard deviation s and
    their number S. It is independent of the choice of games, so half the joint interval is the root of the sum of
    squares of both half intervals. With one seed, the estimate is returned unchanged.
    """
    count = len(seed_means)
    if count < 2 or not over_games.count:
        return over_games
    point = STUDENT[min(count - 1, len(STUDENT)) - 1]  # for more seeds, a little too wide
    half = point * float(np.std(seed_means, ddof=1)) / math.sqrt(count)
    value = over_games.value
    below, above = (math.hypot(side, half) for side in (value - over_games.low, over_games.high - value))
    return replace(over_games, low=value - below, high=value + above)


def estimate(seeds: Values, is_fraction: bool = False) -> Estimate:
    """Fractions have Wilson's interval over games, means a bootstrap interval; both are widened by the seeds."""
    games: dict[str, list[float]] = {}
    for groups, values in seeds:
        for game, value in zip(groups, values, strict=False):
            if value is not None:
                games.setdefault(game, []).append(value)
    if is_fraction:
        found = fraction_over_games([[value > 0.5 for value in values] for values in games.values()])
    else:
        found = mean_over_games(list(games.values()))
    measured = [[value for value in values if value is not None] for _, values in seeds]
    return over_seeds(found, [sum(values) / len(values) for values in measured if values])


def column(samples: Sequence[Samples], metric: str) -> Estimate:
    """A column's estimate from the samples of each seed."""
    return estimate([(row.groups, row.columns.get(metric, ())) for row in samples], metric in FRACTIONS)


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
    pairs = [(variant[seed].columns, full[seed]) for seed in sorted(variant.keys() & full.keys())]
    values = [
        (row.groups, _differences(claim, ours[claim.metric], row.columns[claim.metric]))
        for ours, row in pairs
        if claim.metric in ours and claim.metric in row.columns
    ]
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


def _differences(claim: Claim, ours: Sequence[float | None], full: Sequence[float | None]) -> list[float | None]:
    return [None if None in pair else pair[0] - claim.part * pair[1] for pair in zip(ours, full, strict=True)]


def read_scores(folder: Path) -> Scores:
    """Read all scores that exist."""
    found: dict[tuple[str, str], dict[int, Samples]] = {}
    for row in VARIANTS.values():
        for family in row.families:
            paths = (folder / "variants" / row.name).glob(f"seed-*/{family}.json")
            if samples := {int(path.parent.name.removeprefix("seed-")): Samples.read(path) for path in paths}:
                found[row.name, family] = dict(sorted(samples.items()))
    return found


def claim_results(scores: Scores) -> list[ClaimResult]:
    """Test all claims against full's scores of the same family."""
    families = {claim: VARIANTS[claim.variant].families[0] for claim in CLAIMS}
    return [
        check_claim(claim, *(scores.get((name, family), {}) for name in (claim.variant, FULL)))
        for claim, family in families.items()
    ]


def write_table(job: Ablations, out: Path, command: str) -> list[Path]:
    """Write ablations.md and ablations.json, with every sample, from all scores; returns their paths."""
    scores = read_scores(job.folder)
    results = claim_results(scores)
    rows = [
        {
            "variant": name,
            "family": family,
            "figures": {metric: column(list(seeds.values()), metric).json_values for metric in _metrics(seeds)},
            "samples": {seed: {"groups": row.groups, **row.columns} for seed, row in seeds.items()},
        }
        for (name, family), seeds in scores.items()
    ]
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
    stand_in = job.models is not None and job.models.stand_in
    write_text(out / "ablations.md", markdown(scores, results, command, stand_in))
    return [out / "ablations.md", out / "ablations.json"]


def _metrics(seeds: Mapping[int, Samples]) -> list[str]:
    return list(dict.fromkeys(name for row in seeds.values() for name in row.columns))


def markdown(scores: Scores, results: Sequence[ClaimResult], command: str, stand_in: bool = False) -> str:
    """The report as Markdown. docs/evaluation.md says how the figures are measured."""
    lines = ["# Ablations in the Toybox", "", f"`{command}`", ""]
    lines += [f"Values with 95 % intervals over games and seeds; in brackets the paper's ({SOURCE})."]
    lines += [f"CLIP and DreamSim are {STAND_IN}."] if stand_in else []
    for family in FAMILIES:
        rows = {name: seeds for (name, kind), seeds in scores.items() if kind == family}
        if rows:
            lines += ["", f"## {TITLES[family]}", "", *_table(rows, family)]
    lines += ["", "## What the paper says", "", "| the paper says | there | difference here | seeds | agrees |"]
    lines += ["| --- " * 5 + "|"]
    for result in results:
        paper = "-" if result.claim.published is None else "{:.3f}, full {:.3f}".format(*result.claim.published)
        difference = f"{_cell(result.difference)} to {result.claim.part:g} full"
        lines.append(f"| {result.claim.says} | {paper} | {difference} | {result.seeds} | {result.agrees} |")
    return "\n".join([*lines, ""])


def _table(rows: Mapping[str, Mapping[int, Samples]], family: str) -> list[str]:
    scored = {name for seeds in rows.values() for name in _metrics(seeds)}.difference(NOT_SHOWN[family])
    seen = [name for name in COLUMNS if name in scored]
    lines = [f"| variant | seeds | {' | '.join(COLUMNS[name] for name in seen)} |", "| --- " * (2 + len(seen)) + "|"]
    for name, seeds in rows.items():
        paper = VARIANTS[name].published(family)
        cells = (_cell(column(list(seeds.values()), metric), paper.get(metric)) for metric in seen)
        lines.append(f"| {name} | {len(seeds)} | {' | '.join(cells)} |")
    return [*lines, "", *(f"- {name}: {VARIANTS[name].about}" for name in rows)]


def _cell(found: Estimate, paper: float | None = None) -> str:
    published = "" if paper is None else f" [{paper:.3f}]"
    if not found.count:
        return f"-{published}"
    digits = 1 if abs(found.value) >= 2 else 3
    return f"{found.value:.{digits}f} ({found.low:.{digits}f} to {found.high:.{digits}f}){published}"
