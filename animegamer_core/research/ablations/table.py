"""The table of the ablations, from the scores on disk: our values beside the paper's, and whether they agree.

A difference to `full` counts only if it is larger than that of two equal training runs (`repeats`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...checkpoint.storage import write_json
from ...data.stats import counted
from ...evaluate.estimates import Estimate, fraction_over_games, mean_over_games
from ...evaluate.report import machine
from ...evaluate.similarity.models import STAND_IN
from ...evaluate.world.paper import SOURCE
from ...files import write_text
from ...toybox.scenes import HEADS
from .repeats import run_difference
from .run_dir import RunDir, trained_with
from .scores import Samples
from .variants import CLAIMS, FAMILIES, FULL, GAMES, RECONSTRUCTION, VARIANTS, Claim, Variant

ERRORS = ("mae_f", "states_mae")  # more is worse
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
SIMILARITIES = ("clip_i", "dreamsim", "clip_t")
FRACTIONS = {"acc_f", "states_right", "level_right", *HEADS, "remembered"}
NOT_SHOWN = {RECONSTRUCTION: (), GAMES: ("psnr", "colour")}
TITLES = {
    RECONSTRUCTION: "Held-out clips, encoded and decoded again",
    GAMES: "Games of the frozen benchmark, played",
}
YES, NO, OPEN, FEW, UNMEASURED = "yes", "no", "no clear difference", "too few games", "not measured"
WITHIN, UNREPEATED = "within run-to-run variation", "run-to-run variation unknown"
ENOUGH = 10  # games; a bootstrap interval over fewer is too narrow
NOTES = (
    "agrees: the interval of the differences, sample by sample, excludes 0 on the paper's side (yes) or on the "
    f"other (no); from {ENOUGH} games on.",
    "Each variant was trained once. A difference whose interval excludes 0 counts only if it is also larger than the "
    "difference of two equal runs; if no equal runs of a budget were compared, none counts. The two compared runs had "
    "one seed and equal decoders: the effect of another seed was not measured.",
    "The paper's values: those of its ablation table are of one film. Row full of the games has the main table's, of "
    "all films, since by supplement 3.3 the ablation table's row full is of clips decoded without the language model. "
    "CLIP-I with and without adaptation (0.786, 0.683) comes from its text.",
    "CLIP-I and DreamSim: mean cosine of 4 evenly spaced frames with the same frames of the true clip. The paper does "
    "not say what its own are compared with.",
    "ACC-F, MAE-F: the level measured on the shot against that of the true clip (clips), or of the benchmark's line "
    "(games). character, place, motion, colour: fractions that the Toybox's probes recognise; colour named before: of "
    "a prop on turns whose instruction does not name its colour, since an earlier one did.",
    "Clips are decoded at their measured motion value by the decoder before adaptation, without the engine.",
    "ACC-F and MAE-F are with calibration: since softer shots move less than the value that conditions them, shots of "
    "training states are measured at eight values for each variant, and the response is inverted, as for the shipped "
    "world. The paper mentions nothing like it.",
    "Warm-up: the paper trains the encoder alone first, beside a decoder that can already draw. In the Toybox the "
    "decoder starts from random weights and is trained too, so leaving warm-up out changes only the learning rate's "
    "schedule; stage joint gets its steps.",
    "w/o f_ms: the decoder is conditioned on 0 px a frame for every clip, in training and here.",
    "no_adaptation and cosine_loss build on full's encoder and decoder; window_N is full, whose own window is 4, with "
    "another window; its engine is not trained again for it.",
)


@dataclass(frozen=True)
class ClaimResult:
    """Whether a claim of the paper holds here.

    here: the variant's value and full's. difference: of the variant to `part` times full, sample by sample. varies: the
    largest difference of two equal runs, None if none were compared.
    """

    claim: Claim
    here: tuple[Estimate, Estimate] | None
    difference: Estimate | None
    agrees: str
    varies: float | None = None


def estimate(samples: Samples, metric: str) -> Estimate:
    """A column's estimate: fractions with Wilson's interval over games, means with a bootstrap interval over games."""
    games = by_game(samples.groups, samples.columns.get(metric, ()))
    if metric in FRACTIONS:
        return fraction_over_games([[value > 0.5 for value in values] for values in games])
    return mean_over_games(games)


def by_game(groups: Sequence[str], values: Sequence[float | None]) -> list[list[float]]:
    """The measured values of each game."""
    games: dict[str, list[float]] = {}
    for group, value in zip(groups, values, strict=False):
        if value is not None:
            games.setdefault(group, []).append(value)
    return list(games.values())


def check_claim(claim: Claim, variant: Samples | None, full: Samples | None, varies: float | None) -> ClaimResult:
    """A claim of the paper, tested on the differences of equal samples.

    Their interval must exclude 0, and their mean must exceed `varies`, the largest difference of two equal runs; with
    None no claim is decided, nor with fewer than ENOUGH games.
    """
    if variant is None or full is None or not (claim.metric in variant.columns and claim.metric in full.columns):
        return ClaimResult(claim, None, None, UNMEASURED, varies)
    pairs = zip(variant.columns[claim.metric], full.columns[claim.metric], strict=True)
    changes = [None if None in pair else pair[0] - claim.part * pair[1] for pair in pairs]
    games = by_game(variant.groups, changes)
    difference = mean_over_games(games)
    agrees = _agreement(difference, claim.metric in ERRORS, varies)
    if len(games) < ENOUGH:
        agrees = FEW if games else UNMEASURED
    here = estimate(variant, claim.metric), estimate(full, claim.metric)
    return ClaimResult(claim, here, difference, agrees, varies)


def _agreement(difference: Estimate, error: bool, varies: float | None) -> str:
    """What a difference says about the claim that it is below 0 (above 0 for an error)."""
    low, high = (-difference.high, -difference.low) if error else (difference.low, difference.high)
    if not (high < 0 or low > 0):
        return OPEN
    if varies is None:
        return UNREPEATED
    if abs(difference.value) <= varies:
        return WITHIN
    return YES if high < 0 else NO


def tally(results: Sequence[ClaimResult]) -> str:
    """One sentence with the counts; only differences above run-to-run variation are for or against a claim."""
    counts = {name: sum(result.agrees == name for result in results) for name in (YES, NO, WITHIN, UNREPEATED)}
    return (
        f"{counts[YES]} of {counted(len(results), 'claim')} hold, {counts[NO]} fail by more than two equal runs differ."
        f" {counts[WITHIN]} differ by less than that; for {counts[UNREPEATED]} run-to-run variation is unknown."
    )


def read_scores(run_dir: RunDir) -> dict[tuple[str, str], Samples]:
    """(variant, family) -> its samples, for all scored variants."""
    keys = [(row.name, family) for row in VARIANTS.values() for family in FAMILIES]
    return {key: Samples.read(path) for key in keys if (path := run_dir.scores_file(*key)).is_file()}


def claim_results(scores: Mapping[tuple[str, str], Samples], budget: str) -> tuple[ClaimResult, ...]:
    """All claims against full's scores of the same family. budget: the one of the run-to-run variation."""
    found = []
    for claim in CLAIMS:
        family = VARIANTS[claim.variant].families[0]
        ours = (scores.get((name, family)) for name in (claim.variant, FULL))
        found.append(check_claim(claim, *ours, run_difference(budget, claim.metric)))
    return tuple(found)


def write_table(run_dir: RunDir, out: Path, command: str) -> list[Path]:
    """Write ablations.json, ablations.md and every sample (samples.json) from all scores; returns their paths."""
    scores = read_scores(run_dir)
    results = claim_results(scores, run_dir.budget.name)
    paths = [out / "ablations.json", out / "ablations.md", out / "samples.json"]
    facts = _facts(run_dir, command, scores)
    rows = [_row(run_dir, VARIANTS[name], family, scores[name, family]) for name, family in scores]
    claims = [_claim(result) for result in results]
    write_json(paths[0], {**facts, "rows": rows, "claims": claims, "tally": tally(results), "notes": NOTES})
    write_text(paths[1], markdown(run_dir, scores, results, facts))
    samples = {f"{name}/{family}": {"groups": row.groups, **row.columns} for (name, family), row in scores.items()}
    write_json(paths[2], samples)
    return paths


def markdown(
    run_dir: RunDir, scores: Mapping[tuple[str, str], Samples], results: Sequence[ClaimResult], facts: Mapping[str, Any]
) -> str:
    """The table as text."""
    stand_in = any((row.facts["towers"] or {}).get("stand_in") for row in scores.values())
    lines = ["# Ablations in the Toybox", "", *_heading(run_dir, facts), ""]
    for family in FAMILIES:
        rows = [(VARIANTS[name], row) for (name, kind), row in scores.items() if kind == family]
        if rows:
            lines += [f"## {TITLES[family]}", "", *_table(rows, family, stand_in), ""]
    lines += ["## What the paper says", "", *_claims(results), "", tally(results)]
    lines += ["", "## Notes", "", *(f"- {note}" for note in NOTES)]
    return "\n".join([*lines, ""])


def _heading(run_dir: RunDir, facts: Mapping[str, Any]) -> list[str]:
    budget = run_dir.budget
    steps = ", ".join(f"{stage} {row['steps']}" for stage, row in trained_with(run_dir, VARIANTS[FULL], GAMES).items())
    waiting, gpu = facts["not_scored"], facts["machine"]["gpu"]
    return [
        f"Budget `{budget.name}`: steps {steps} for every variant alike; {budget.clips} clips, "
        f"{counted(budget.games, 'game')} of {budget.turns} turns; seed {run_dir.seed}; "
        f"{'no GPU' if gpu == 'none' else gpu}, torch {facts['machine']['torch']}.",
        f"Values with 95 % intervals; in brackets the paper's ({SOURCE}), if it gives one. `{facts['command']}`",
        *([f"Not scored yet: {', '.join(waiting)}."] if waiting else []),
    ]


def _table(rows: Sequence[tuple[Variant, Samples]], family: str, stand_in: bool) -> list[str]:
    scored = {name for _, row in rows for name in row.columns}.difference(NOT_SHOWN[family])
    seen = [name for name in COLUMNS if name in scored]
    heads = [f"{COLUMNS[name]} ({STAND_IN})" if stand_in and name in SIMILARITIES else COLUMNS[name] for name in seen]
    lines = [f"| variant | {' | '.join(heads)} |", f"| --- | {' | '.join('---' for _ in seen)} |"]
    for variant, row in rows:
        paper = variant.published(family).values
        cells = (_cell(estimate(row, name), paper.get(name)) for name in seen)
        lines.append(f"| {variant.name} | {' | '.join(cells)} |")
    lines.append("")
    for variant, _ in rows:
        paper = variant.published(family)
        whence = f" (in brackets: the paper's {paper.table}, row {paper.row})" if paper.values else ""
        lines.append(f"- {variant.name}: {variant.about}{whence}")
    return lines


def _cell(found: Estimate, paper: float | None) -> str:
    published = "" if paper is None else f" [{paper:.3f}]"
    if not found.count:
        return f"-{published}"
    digits = 1 if abs(found.value) >= 2 else 3
    return f"{found.value:.{digits}f} ({found.low:.{digits}f} to {found.high:.{digits}f}){published}"


def _claims(results: Sequence[ClaimResult]) -> list[str]:
    lines = ["| the paper says | there | here | difference | two equal runs | agrees |", "| --- " * 6 + "|"]
    for result in results:
        claim, paper = result.claim, "-"
        if claim.published is not None:
            where, theirs, full = claim.published
            paper = f"{theirs:.3f}, full {full:.3f} ({where})"
        here, apart = "-", "-"
        if result.here is not None and result.difference is not None:
            here = f"{result.here[0].value:.3f}, full {result.here[1].value:.3f}"
            whole = "full" if claim.part == 1 else f"{claim.part:g} full"
            apart = f"{_cell(result.difference, None)} to {whole}"
        varies = "-" if result.varies is None else f"{result.varies:.3f}"
        lines.append(f"| {claim.says} | {paper} | {here} | {apart} | {varies} | {result.agrees} |")
    return lines


def _facts(run_dir: RunDir, command: str, scores: Mapping[tuple[str, str], Samples]) -> dict[str, Any]:
    due = [f"{row.name}/{family}" for row in VARIANTS.values() for family in row.families]
    return {
        "command": command,
        "budget": asdict(run_dir.budget),
        "seed": run_dir.seed,
        "base_world": {"name": run_dir.world.spec.name, "fingerprint": run_dir.world.fingerprint},
        "device": run_dir.device,
        "machine": machine(),
        "not_scored": [name for name in due if tuple(name.split("/")) not in scores],
    }


def _row(run_dir: RunDir, variant: Variant, family: str, samples: Samples) -> dict[str, Any]:
    paper = variant.published(family)
    return {
        "variant": variant.name,
        "family": family,
        "about": variant.about,
        "paper": {"table": paper.table, "name": paper.row, "figures": dict(paper.values)},
        "trained": trained_with(run_dir, variant, family),
        "scored_with": samples.facts,
        "figures": {name: _plain(estimate(samples, name)) for name in samples.columns},
    }


def _claim(result: ClaimResult) -> dict[str, Any]:
    here, difference = result.here, result.difference
    return {
        **asdict(result.claim),
        "paper": result.claim.published,
        "two_equal_runs": result.varies,
        "here": None if here is None else [_plain(value) for value in here],
        "difference": None if difference is None else _plain(difference),
        "agrees": result.agrees,
    }


def _plain(found: Estimate) -> dict[str, float | int | None]:
    return {name: value if math.isfinite(value) else None for name, value in asdict(found).items()}
