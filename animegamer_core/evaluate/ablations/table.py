"""The table of the ablations, from the scores on disk: our figures, the paper's beside them, and whether they agree.

A difference to `full` counts only where it is larger than what two equal training runs differ by (`repeats`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...checkpoint.storage import write_json
from ...data.stats import counted
from ...files import write_text
from ..figures import Figure, mean_over_games, share_over_games
from ..report import machine
from ..similarity.towers import STAND_IN
from ..table.paper import SOURCE
from .repeats import run_difference
from .scores import Samples
from .shop import Shop, trained_with
from .variants import CLAIMS, FAMILIES, FULL, GAMES, RECONSTRUCTION, VARIANTS, Claim, Variant

ERRORS = ("mae_f", "states_mae")  # more is worse
SHARES = (
    "acc_f",
    "states_right",
    "level_right",
    "character",
    "partner",
    "place",
    "time",
    "motion",
    "colour",
    "remembered",
)
COLUMNS = {
    RECONSTRUCTION: {
        "clip_i": "CLIP-I",
        "dreamsim": "DreamSim",
        "acc_f": "ACC-F",
        "mae_f": "MAE-F",
        "psnr": "PSNR, dB",
        "character": "character",
        "place": "place",
        "motion": "motion",
        "colour": "colour",
    },
    GAMES: {
        "clip_i": "CLIP-I",
        "dreamsim": "DreamSim",
        "clip_t": "CLIP-T",
        "acc_f": "ACC-F",
        "mae_f": "MAE-F",
        "states_right": "states right",
        "level_right": "level right",
        "character": "character",
        "place": "place",
        "motion": "motion",
        "remembered": "colour told before",
    },
}
TITLES = {
    RECONSTRUCTION: "Held-out clips, encoded and decoded again",
    GAMES: "Games of the frozen benchmark, played",
}
YES, NO, OPEN, FEW, UNMEASURED = "yes", "no", "not told apart", "too few games", "not measured"
WITHIN, UNREPEATED = "within run-to-run variation", "run-to-run variation unknown"
ENOUGH = 10  # games; a bootstrap over fewer is surer than it should be
NOTES = (
    "agrees: the interval of the differences, sample by sample, leaves 0 out on the paper's side (yes) or on the "
    f"other (no); from {ENOUGH} games on.",
    "Each variant was trained once. A difference whose interval leaves 0 out is counted only where it is also larger "
    "than what two equal runs differed by; where no two equal runs of a budget were compared, none is counted. The two "
    "runs that were compared had one seed and equal decoders: what another seed changes has not been measured.",
    "The paper's figures: those of its ablation table are of one film. Row full of the games has the main table's, of "
    "all films, since the ablation table's row full is, by supplement 3.3, of clips decoded without the language "
    "model. CLIP-I with and without adaptation (0.786, 0.683) is what its text gives.",
    "CLIP-I and DreamSim: mean cosine of 4 evenly spaced frames with the same frames of the true clip. The paper does "
    "not say what its own are taken against.",
    "ACC-F, MAE-F: the level measured on the shot against that of the true clip (clips), or of the benchmark's line "
    "(games). character, place, motion, colour: shares that the Toybox's probes recognise; colour told before: of a "
    "prop on turns whose instruction does not name its colour, since an earlier one did.",
    "Clips are decoded at their measured motion value by the decoder before adaptation, as no engine takes part.",
    "ACC-F and MAE-F are with calibration: since softer shots move less than the value that conditions them, shots of "
    "training states are measured at eight values for each variant, and the response is inverted, as for the shipped "
    "world. The paper says of nothing like it.",
    "Warm-up: the paper trains the encoder alone first, beside a decoder that can draw already. In the Toybox the "
    "decoder begins from random weights and learns along, so that leaving warm-up out changes the learning rate's "
    "course alone; stage joint is given its steps.",
    "w/o f_ms: the decoder is told 0 px a frame of every clip, in training and here.",
    "no_adaptation and cosine_loss build on full's encoder and decoder; window_N is full, whose own window is 4, with "
    "another window, for which its engine is not trained again.",
)


@dataclass(frozen=True)
class Verdict:
    """Whether a claim of the paper holds here.

    difference: of the variant to `part` times full, sample by sample. varies: the most that two equal runs differed by,
    None where no two were compared.
    """

    claim: Claim
    here: tuple[Figure, Figure] | None
    difference: Figure | None
    agrees: str
    varies: float | None = None


def figure(samples: Samples, metric: str) -> Figure:
    """A column as a figure: shares with Wilson's interval for games, means with a bootstrap one over games."""
    games = by_game(samples.groups, samples.columns.get(metric, ()))
    if metric in SHARES:
        return share_over_games([[value > 0.5 for value in values] for values in games])
    return mean_over_games(games)


def by_game(groups: Sequence[str], values: Sequence[float | None]) -> list[list[float]]:
    """The values that were measured, game by game."""
    games: dict[str, list[float]] = {}
    for group, value in zip(groups, values, strict=False):
        if value is not None:
            games.setdefault(group, []).append(value)
    return list(games.values())


def judged(claim: Claim, variant: Samples | None, full: Samples | None, varies: float | None) -> Verdict:
    """A claim of the paper, tested on the differences of the same samples.

    Their interval has to leave 0 out, and their mean has to exceed `varies`, the most that two equal runs differ by;
    None counts nothing. Fewer than ENOUGH games say nothing.
    """
    if variant is None or full is None or not (claim.metric in variant.columns and claim.metric in full.columns):
        return Verdict(claim, None, None, UNMEASURED, varies)
    pairs = zip(variant.columns[claim.metric], full.columns[claim.metric], strict=True)
    changes = [None if None in pair else pair[0] - claim.part * pair[1] for pair in pairs]
    games = by_game(variant.groups, changes)
    difference = mean_over_games(games)
    agrees = _agreement(difference, claim.metric in ERRORS, varies)
    if len(games) < ENOUGH:
        agrees = FEW if games else UNMEASURED
    here = figure(variant, claim.metric), figure(full, claim.metric)
    return Verdict(claim, here, difference, agrees, varies)


def _agreement(difference: Figure, error: bool, varies: float | None) -> str:
    """What a difference says of a claim that it is below 0, or above 0 for an error."""
    low, high = (-difference.high, -difference.low) if error else (difference.low, difference.high)
    if not (high < 0 or low > 0):
        return OPEN
    if varies is None:
        return UNREPEATED
    if abs(difference.value) <= varies:
        return WITHIN
    return YES if high < 0 else NO


def tally(told: Sequence[Verdict]) -> str:
    """One sentence that counts the verdicts; only differences above run-to-run variation are for or against."""
    counts = {name: sum(verdict.agrees == name for verdict in told) for name in (YES, NO, WITHIN, UNREPEATED)}
    return (
        f"{counts[YES]} of {counted(len(told), 'claim')} hold, {counts[NO]} fail by more than two equal runs differ. "
        f"{counts[WITHIN]} differ by less than that; for {counts[UNREPEATED]} run-to-run variation is unknown."
    )


def read_scores(shop: Shop) -> dict[tuple[str, str], Samples]:
    """(variant, family) -> its samples, as far as variants are scored."""
    places = {
        (row.name, family): shop.scores_file(row.name, family) for row in VARIANTS.values() for family in FAMILIES
    }
    return {key: Samples.read(path) for key, path in places.items() if path.is_file()}


def verdicts(scores: Mapping[tuple[str, str], Samples], budget: str) -> tuple[Verdict, ...]:
    """All claims, each against full's scores of the same family. budget: its name, which run-to-run variation is of."""
    found = []
    for claim in CLAIMS:
        family = VARIANTS[claim.variant].families[0]
        ours = (scores.get((name, family)) for name in (claim.variant, FULL))
        found.append(judged(claim, *ours, run_difference(budget, claim.metric)))
    return tuple(found)


def write_table(shop: Shop, out: Path, command: str) -> list[Path]:
    """Write ablations.json, ablations.md and every sample (samples.json) from what is scored; returns their paths."""
    scores = read_scores(shop)
    told = verdicts(scores, shop.budget.name)
    paths = [out / "ablations.json", out / "ablations.md", out / "samples.json"]
    facts = _facts(shop, command, scores)
    rows = [_row(shop, VARIANTS[name], family, scores[name, family]) for name, family in scores]
    claims = [_claim(verdict) for verdict in told]
    write_json(paths[0], {**facts, "rows": rows, "claims": claims, "tally": tally(told), "notes": NOTES})
    write_text(paths[1], markdown(shop, scores, told, facts))
    samples = {f"{name}/{family}": {"groups": row.groups, **row.columns} for (name, family), row in scores.items()}
    write_json(paths[2], samples)
    return paths


def markdown(
    shop: Shop, scores: Mapping[tuple[str, str], Samples], told: Sequence[Verdict], facts: Mapping[str, Any]
) -> str:
    """The table as text."""
    stand_in = any((row.facts["towers"] or {}).get("stand_in") for row in scores.values())
    lines = ["# Ablations in the Toybox", "", *_heading(shop, facts), ""]
    for family in FAMILIES:
        rows = [(VARIANTS[name], row) for (name, kind), row in scores.items() if kind == family]
        if rows:
            lines += [f"## {TITLES[family]}", "", *_table(rows, family, stand_in), ""]
    lines += ["## What the paper says", "", *_claims(told), "", tally(told)]
    lines += ["", "## Notes", "", *(f"- {note}" for note in NOTES)]
    return "\n".join([*lines, ""])


def _heading(shop: Shop, facts: Mapping[str, Any]) -> list[str]:
    budget = shop.budget
    steps = ", ".join(f"{stage} {row['steps']}" for stage, row in trained_with(shop, VARIANTS[FULL], GAMES).items())
    waiting, gpu = facts["not_scored"], facts["machine"]["gpu"]
    return [
        f"Budget `{budget.name}`: steps {steps} for every variant alike; {budget.clips} clips, "
        f"{counted(budget.games, 'game')} of {budget.turns} turns; seed {shop.seed}; "
        f"{'no GPU' if gpu == 'none' else gpu}, torch {facts['machine']['torch']}.",
        f"Figures with 95 % intervals; in brackets the paper's ({SOURCE}), where it gives one. `{facts['command']}`",
        *([f"Not scored yet: {', '.join(waiting)}."] if waiting else []),
    ]


def _table(rows: Sequence[tuple[Variant, Samples]], family: str, stand_in: bool) -> list[str]:
    columns = COLUMNS[family]
    seen = [name for name in columns if any(name in row.columns for _, row in rows)]
    similar = ("clip_i", "dreamsim", "clip_t")
    heads = [f"{columns[name]} ({STAND_IN})" if stand_in and name in similar else columns[name] for name in seen]
    lines = [f"| variant | {' | '.join(heads)} |", f"| --- | {' | '.join('---' for _ in seen)} |"]
    for variant, row in rows:
        paper = variant.published(family).figures
        cells = (_cell(figure(row, name), paper.get(name)) for name in seen)
        lines.append(f"| {variant.name} | {' | '.join(cells)} |")
    return [*lines, "", *(f"- {variant.name}: {variant.about}{_whence(variant, family)}" for variant, _ in rows)]


def _whence(variant: Variant, family: str) -> str:
    """Where in the paper the figures in a row's brackets stand."""
    paper = variant.published(family)
    return f" (in brackets: the paper's {paper.table}, row {paper.row})" if paper.figures else ""


def _cell(found: Figure, paper: float | None) -> str:
    told = "" if paper is None else f" [{paper:.3f}]"
    if not found.count:
        return f"-{told}"
    digits = 1 if abs(found.value) >= 2 else 3
    return f"{found.value:.{digits}f} ({found.low:.{digits}f} to {found.high:.{digits}f}){told}"


def _claims(told: Sequence[Verdict]) -> list[str]:
    lines = ["| the paper says | there | here | difference | two equal runs | agrees |", "| --- " * 6 + "|"]
    for verdict in told:
        claim, paper = verdict.claim, "-"
        if claim.published is not None:
            where, theirs, full = claim.published
            paper = f"{theirs:.3f}, full {full:.3f} ({where})"
        here, apart = "-", "-"
        if verdict.here is not None and verdict.difference is not None:
            here = f"{verdict.here[0].value:.3f}, full {verdict.here[1].value:.3f}"
            whole = "full" if claim.part == 1 else f"{claim.part:g} full"
            apart = f"{_cell(verdict.difference, None)} to {whole}"
        varies = "-" if verdict.varies is None else f"{verdict.varies:.3f}"
        lines.append(f"| {claim.says} | {paper} | {here} | {apart} | {varies} | {verdict.agrees} |")
    return lines


def _facts(shop: Shop, command: str, scores: Mapping[tuple[str, str], Samples]) -> dict[str, Any]:
    due = [f"{row.name}/{family}" for row in VARIANTS.values() for family in row.families]
    return {
        "command": command,
        "budget": asdict(shop.budget),
        "seed": shop.seed,
        "base_world": {"name": shop.world.spec.name, "fingerprint": shop.world.fingerprint},
        "device": shop.device,
        "machine": machine(),
        "not_scored": [name for name in due if tuple(name.split("/")) not in scores],
    }


def _row(shop: Shop, variant: Variant, family: str, samples: Samples) -> dict[str, Any]:
    paper = variant.published(family)
    return {
        "variant": variant.name,
        "family": family,
        "about": variant.about,
        "paper": {"table": paper.table, "name": paper.row, "figures": dict(paper.figures)},
        "trained": trained_with(shop, variant, family),
        "scored_with": samples.facts,
        "figures": {name: _plain(figure(samples, name)) for name in samples.columns},
    }


def _claim(verdict: Verdict) -> dict[str, Any]:
    here, difference = verdict.here, verdict.difference
    return {
        **asdict(verdict.claim),
        "paper": verdict.claim.published,
        "two_equal_runs": verdict.varies,
        "here": None if here is None else [_plain(value) for value in here],
        "difference": None if difference is None else _plain(difference),
        "agrees": verdict.agrees,
    }


def _plain(found: Figure) -> dict[str, float | int | None]:
    return {name: value if math.isfinite(value) else None for name, value in asdict(found).items()}
