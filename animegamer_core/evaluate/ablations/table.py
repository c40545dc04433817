"""The table of the ablations, from the scores on disk: our figures, the paper's beside them, and whether they agree."""

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
from ..table.paper import ABLATIONS, SOURCE
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
ENOUGH = 10  # games; a bootstrap over fewer is surer than it should be
NOTES = (
    "agrees: the interval of the differences, sample by sample, leaves 0 out on the paper's side (yes) or on the "
    f"other (no); from {ENOUGH} games on.",
    "CLIP-I and DreamSim: mean cosine of 4 evenly spaced frames with the same frames of the true clip. The paper does "
    "not say what its own are taken against.",
    "ACC-F, MAE-F: the level measured on the shot against that of the true clip (clips), or of the benchmark's line "
    "(games). character, place, motion, colour: shares that the Toybox's probes recognise; colour told before: of a "
    "prop on turns whose instruction does not name its colour, since an earlier one did.",
    "Clips are decoded at their measured motion value by the decoder before adaptation, as no engine takes part.",
    "What a decoder is told for a motion value is calibrated for each variant as for the shipped world, since softer "
    "shots move less than they are told: shots of training states are measured at eight told values, and the response "
    "is turned round.",
    "Warm-up: the paper trains the encoder alone first, beside a decoder that can draw already. In the Toybox the "
    "decoder begins from random weights and learns along, so that leaving warm-up out changes the learning rate's "
    "course alone; stage joint is given its steps.",
    "w/o f_ms: the decoder is told 0 px a frame of every clip, in training and here.",
    "no_adaptation and cosine_loss build on full's encoder and decoder; window_N is full, whose own window is 4, with "
    "another window, for which its engine is not trained again.",
)


@dataclass(frozen=True)
class Verdict:
    """Whether a claim of the paper holds here. difference: of the variant to `part` times full, sample by sample."""

    claim: Claim
    paper: tuple[float, float] | None
    here: tuple[Figure, Figure] | None
    difference: Figure | None
    agrees: str


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


def judged(claim: Claim, variant: Samples | None, full: Samples | None) -> Verdict:
    """A claim of the paper, tested on the differences of the same samples: their interval has to leave 0 out.

    Fewer than ENOUGH games say nothing.
    """
    row = VARIANTS[claim.variant]
    theirs = (row.figures.get(claim.metric), ABLATIONS["full"].get(claim.metric))
    paper = None if None in theirs else theirs
    if variant is None or full is None or not (claim.metric in variant.columns and claim.metric in full.columns):
        return Verdict(claim, paper, None, None, UNMEASURED)
    pairs = zip(variant.columns[claim.metric], full.columns[claim.metric], strict=True)
    changes = [None if None in pair else pair[0] - claim.part * pair[1] for pair in pairs]
    games = by_game(variant.groups, changes)
    difference = mean_over_games(games)
    low, high = difference.low, difference.high
    if claim.metric in ERRORS:
        low, high = -high, -low
    agrees = YES if high < 0 else NO if low > 0 else OPEN
    if len(games) < ENOUGH:
        agrees = FEW if games else UNMEASURED
    here = figure(variant, claim.metric), figure(full, claim.metric)
    return Verdict(claim, paper, here, difference, agrees)


def read_scores(shop: Shop) -> dict[tuple[str, str], Samples]:
    """(variant, family) -> its samples, as far as variants are scored."""
    places = {
        (row.name, family): shop.scores_file(row.name, family) for row in VARIANTS.values() for family in FAMILIES
    }
    return {key: Samples.read(path) for key, path in places.items() if path.is_file()}


def verdicts(scores: Mapping[tuple[str, str], Samples]) -> tuple[Verdict, ...]:
    """All claims, each against full's scores of the same family."""
    found = []
    for claim in CLAIMS:
        family = VARIANTS[claim.variant].families[0]
        found.append(judged(claim, scores.get((claim.variant, family)), scores.get((FULL, family))))
    return tuple(found)


def write_table(shop: Shop, out: Path, command: str) -> list[Path]:
    """Write ablations.json, ablations.md and every sample (samples.json) from what is scored; returns their paths."""
    scores = read_scores(shop)
    told = verdicts(scores)
    paths = [out / "ablations.json", out / "ablations.md", out / "samples.json"]
    facts = _facts(shop, command, scores)
    rows = [_row(shop, VARIANTS[name], family, scores[name, family]) for name, family in scores]
    write_json(paths[0], {**facts, "rows": rows, "claims": [_claim(verdict) for verdict in told], "notes": NOTES})
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
            lines += [f"## {TITLES[family]}", "", *_table(rows, COLUMNS[family], stand_in), ""]
    lines += ["## What the paper says", "", *_claims(told), "", "## Notes", "", *(f"- {note}" for note in NOTES)]
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


def _table(rows: Sequence[tuple[Variant, Samples]], columns: Mapping[str, str], stand_in: bool) -> list[str]:
    seen = [name for name in columns if any(name in row.columns for _, row in rows)]
    similar = ("clip_i", "dreamsim", "clip_t")
    heads = [f"{columns[name]} ({STAND_IN})" if stand_in and name in similar else columns[name] for name in seen]
    lines = [f"| variant | {' | '.join(heads)} |", f"| --- | {' | '.join('---' for _ in seen)} |"]
    for variant, row in rows:
        cells = (_cell(figure(row, name), variant.figures.get(name)) for name in seen)
        lines.append(f"| {variant.name} | {' | '.join(cells)} |")
    return [*lines, "", *(f"- {variant.name}: {variant.about}" for variant, _ in rows)]


def _cell(found: Figure, paper: float | None) -> str:
    told = "" if paper is None else f" [{paper:.3f}]"
    if not found.count:
        return f"-{told}"
    digits = 1 if abs(found.value) >= 2 else 3
    return f"{found.value:.{digits}f} ({found.low:.{digits}f} to {found.high:.{digits}f}){told}"


def _claims(told: Sequence[Verdict]) -> list[str]:
    lines = ["| the paper says | there | here | difference | agrees |", "| --- | --- | --- | --- | --- |"]
    for verdict in told:
        claim = verdict.claim
        paper = "-" if verdict.paper is None else f"{verdict.paper[0]:.3f}, full {verdict.paper[1]:.3f}"
        here, apart = "-", "-"
        if verdict.here is not None and verdict.difference is not None:
            here = f"{verdict.here[0].value:.3f}, full {verdict.here[1].value:.3f}"
            whole = "full" if claim.part == 1 else f"{claim.part:g} full"
            apart = f"{_cell(verdict.difference, None)} to {whole}"
        lines.append(f"| {claim.says} | {paper} | {here} | {apart} | {verdict.agrees} |")
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
    return {
        "variant": variant.name,
        "family": family,
        "about": variant.about,
        "paper": {"name": variant.paper, "figures": dict(variant.figures)},
        "trained": trained_with(shop, variant, family),
        "scored_with": samples.facts,
        "figures": {name: _plain(figure(samples, name)) for name in samples.columns},
    }


def _claim(verdict: Verdict) -> dict[str, Any]:
    here, difference = verdict.here, verdict.difference
    return {
        **asdict(verdict.claim),
        "paper": verdict.paper,
        "here": None if here is None else [_plain(value) for value in here],
        "difference": None if difference is None else _plain(difference),
        "agrees": verdict.agrees,
    }


def _plain(found: Figure) -> dict[str, float | int | None]:
    return {name: value if math.isfinite(value) else None for name, value in asdict(found).items()}
