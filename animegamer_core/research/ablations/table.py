"""The table of the ablations, made from the scores on disk: our values, the paper's, and whether they agree.

A difference to `full` counts only if its interval over games and seeds (`seeds`) excludes 0.
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
from .run_dir import RunDir
from .scores import Samples
from .seed_runs import SeedRuns, scores_files, trained_with
from .seeds import ENOUGH as ENOUGH_SEEDS
from .seeds import over_seeds
from .variants import CLAIMS, FAMILIES, FULL, GAMES, RECONSTRUCTION, STAGES, VARIANTS, Claim, Variant

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
SIMILARITIES = ("clip_i", "dreamsim", "clip_t")
FRACTIONS = {"acc_f", "states_right", "level_right", *HEADS, "remembered"}
NOT_SHOWN = {RECONSTRUCTION: (), GAMES: ("psnr", "colour")}
TITLES = {
    RECONSTRUCTION: "Held-out clips, encoded and decoded again",
    GAMES: "Games of the frozen benchmark, played",
}
YES, NO, OPEN, UNMEASURED = "yes", "no", "no clear difference", "not measured"
FEW, FEW_SEEDS = "too few games", "too few seeds"
ENOUGH = 10  # games; with fewer, a bootstrap interval is too narrow
NOTES = (
    "agrees: the interval of the differences to full, seed by seed and sample by sample, excludes 0 on the paper's "
    f"side (yes) or on the other (no); from {ENOUGH} games and {ENOUGH_SEEDS} seeds on.",
    "Intervals cover the variation over games and over training runs with other seeds; with one seed, only over games.",
    "The paper's values: those in its ablation table are for one film. For the games, row full has the values of the "
    "main table, for all films, since by supplement 3.3 the ablation table's row full is for clips decoded without the "
    "language model. CLIP-I with and without adaptation (0.786, 0.683) is from the paper's text.",
    "CLIP-I and DreamSim: mean cosine of 4 evenly spaced frames with the same frames of the true clip. The paper does "
    "not say with what it compares.",
    "ACC-F, MAE-F: the level measured on the shot against that of the true clip (clips), or of the benchmark's line "
    "(games). character, place, motion, colour: fractions that the Toybox's probes recognise; colour named before: of "
    "a prop on turns whose instruction does not name its colour, since an earlier one did.",
    "Clips are decoded at their measured motion value by the decoder before adaptation, without the engine.",
    "ACC-F and MAE-F are calibrated: softer shots move less than the motion value that conditions them, so for each "
    "variant, shots of training states are measured at eight motion values, and this response is inverted, as for the "
    "shipped world. The paper mentions no calibration.",
    "Every variant starts from a decoder that can already draw (stage pretrain, with an encoder that is then "
    "discarded and no motion values), as the paper's starts from CogVideoX. Warm-up trains the encoder with that "
    "decoder frozen; without warm-up, stage joint gets its steps.",
    "w/o f_ms: the decoder is conditioned on 0 px per frame for every clip, in training and here.",
    "w/o adapt: the decoder is trained for as many steps as full's, but only with true representations.",
    "text_history: the engine reads zeros instead of the representations of past turns, in training and in play; it "
    "still reads their instructions and state changes.",
    "no_adaptation, cosine_loss and text_history build on full's encoder and decoder; window_N is full, whose own "
    "window is 4, with another window; its engine is not trained again for it.",
)


@dataclass(frozen=True)
class ClaimResult:
    """Whether a claim of the paper holds here.

    here: the variant's value and full's. difference: the variant minus `claim.part` times full, sample by sample.
    agrees: YES, NO, OPEN, UNMEASURED, FEW or FEW_SEEDS. seeds: how many runs of each were compared.
    """

    claim: Claim
    here: tuple[Estimate, Estimate] | None
    difference: Estimate | None
    agrees: str
    seeds: int = 0


def estimate(samples: Sequence[Samples], metric: str) -> Estimate:
    """A column's estimate from the samples of each seed.

    Fractions have Wilson's interval over games and means a bootstrap interval over games; both are widened by the
    variation over seeds.
    """
    return _estimate([(row.groups, row.columns.get(metric, ())) for row in samples], metric in FRACTIONS)


def _estimate(seeds: Sequence[tuple[Sequence[str], Sequence[float | None]]], is_fraction: bool = False) -> Estimate:
    """seeds: for each seed, the games and the values of its samples."""
    pooled = [pair for groups, values in seeds for pair in zip(groups, values, strict=False)]
    games = by_game([group for group, _ in pooled], [value for _, value in pooled])
    if is_fraction:
        found = fraction_over_games([[value > 0.5 for value in values] for values in games])
    else:
        found = mean_over_games(games)
    measured = [[value for value in values if value is not None] for _, values in seeds]
    return over_seeds(found, [sum(values) / len(values) for values in measured if values])


def by_game(groups: Sequence[str], values: Sequence[float | None]) -> list[list[float]]:
    """The measured values of each game."""
    games: dict[str, list[float]] = {}
    for group, value in zip(groups, values, strict=False):
        if value is not None:
            games.setdefault(group, []).append(value)
    return list(games.values())


def check_claim(claim: Claim, variant: Mapping[int, Samples], full: Mapping[int, Samples]) -> ClaimResult:
    """Test a claim of the paper on the differences of the same samples, for the seeds that both have.

    The interval of the differences must exclude 0. No claim is decided with fewer than ENOUGH games or ENOUGH_SEEDS
    seeds.
    """
    pairs = [(variant[seed], full[seed]) for seed in sorted(variant.keys() & full.keys())]
    pairs = [pair for pair in pairs if all(claim.metric in row.columns for row in pair)]
    differences = [(ours.groups, _differences(claim, ours, theirs)) for ours, theirs in pairs]
    difference = _estimate(differences)
    if not difference.count:
        return ClaimResult(claim, None, None, UNMEASURED, len(pairs))
    games = {
        game for groups, values in differences for game, value in zip(groups, values, strict=True) if value is not None
    }
    agrees = _agreement(difference, claim.metric in ERRORS)
    if len(pairs) < ENOUGH_SEEDS:
        agrees = FEW_SEEDS
    if len(games) < ENOUGH:
        agrees = FEW
    here = tuple(estimate([pair[side] for pair in pairs], claim.metric) for side in (0, 1))
    return ClaimResult(claim, here, difference, agrees, len(pairs))


def _differences(claim: Claim, variant: Samples, full: Samples) -> list[float | None]:
    pairs = zip(variant.columns[claim.metric], full.columns[claim.metric], strict=True)
    return [None if None in pair else pair[0] - claim.part * pair[1] for pair in pairs]


def _agreement(difference: Estimate, error: bool) -> str:
    """Whether a difference supports the claim that it is below 0 (above 0 for an error)."""
    low, high = (-difference.high, -difference.low) if error else (difference.low, difference.high)
    if not (high < 0 or low > 0):
        return OPEN
    return YES if high < 0 else NO


def tally(results: Sequence[ClaimResult]) -> str:
    """How many claims agree, as text."""
    counts = {name: sum(result.agrees == name for result in results) for name in (YES, NO, OPEN)}
    undecided = len(results) - sum(counts.values())
    return (
        f"{counts[YES]} of {counted(len(results), 'claim')} agree with the paper, {counts[NO]} disagree. For "
        f"{counts[OPEN]} there is no clear difference. For {undecided} there are too few games or seeds, or none."
    )


Scores = Mapping[tuple[str, str], Mapping[int, Samples]]  # (variant, family) -> seed -> its samples


def read_scores(run_dir: RunDir) -> Scores:
    """Read all scores that exist."""
    found: dict[tuple[str, str], dict[int, Samples]] = {}
    for (name, family, seed), path in scores_files(run_dir).items():
        found.setdefault((name, family), {})[seed] = Samples.read(path)
    return {key: dict(sorted(rows.items())) for key, rows in found.items()}


def claim_results(scores: Scores) -> tuple[ClaimResult, ...]:
    """Test all claims against full's scores of the same family."""
    found = []
    for claim in CLAIMS:
        family = VARIANTS[claim.variant].families[0]
        found.append(check_claim(claim, *(scores.get((name, family), {}) for name in (claim.variant, FULL))))
    return tuple(found)


def write_table(run_dir: RunDir, out: Path, command: str) -> list[Path]:
    """Write ablations.json, ablations.md and samples.json (every sample) from all scores; returns their paths."""
    scores = read_scores(run_dir)
    results = claim_results(scores)
    paths = [out / "ablations.json", out / "ablations.md", out / "samples.json"]
    facts = _facts(run_dir, command, scores)
    rows = [_row(run_dir, VARIANTS[name], family, scores[name, family]) for name, family in scores]
    claims = [_claim(result) for result in results]
    write_json(paths[0], {**facts, "rows": rows, "claims": claims, "tally": tally(results), "notes": NOTES})
    write_text(paths[1], markdown(run_dir, scores, results, facts))
    samples = {
        f"{name}/{family}/seed {seed}": {"groups": row.groups, **row.columns}
        for (name, family), rows in scores.items()
        for seed, row in rows.items()
    }
    write_json(paths[2], samples)
    return paths


def markdown(run_dir: RunDir, scores: Scores, results: Sequence[ClaimResult], facts: Mapping[str, Any]) -> str:
    """The report as Markdown."""
    stand_in = any((row.facts["towers"] or {}).get("stand_in") for rows in scores.values() for row in rows.values())
    lines = ["# Ablations in the Toybox", "", *_heading(run_dir, facts), ""]
    for family in FAMILIES:
        rows = [(VARIANTS[name], list(row.values())) for (name, kind), row in scores.items() if kind == family]
        if rows:
            lines += [f"## {TITLES[family]}", "", *_table(rows, family, stand_in), ""]
    lines += ["## What the paper says", "", *_claims(results), "", tally(results)]
    lines += ["", "## Notes", "", *(f"- {note}" for note in NOTES)]
    return "\n".join([*lines, ""])


def _heading(run_dir: RunDir, facts: Mapping[str, Any]) -> list[str]:
    budget = run_dir.budget
    steps = ", ".join(f"{stage} {budget.config(VARIANTS[FULL], stage, 0).steps}" for stage in STAGES[GAMES])
    waiting, gpu = facts["not_scored"], facts["machine"]["gpu"]
    return [
        f"Budget `{budget.name}`: steps {steps} for every variant alike; {budget.clips} clips, "
        f"{counted(budget.games, 'game')} of {budget.turns} turns; seeds {', '.join(map(str, facts['seeds']))}; "
        f"{'no GPU' if gpu == 'none' else gpu}, torch {facts['machine']['torch']}.",
        f"Values with 95 % intervals; in brackets the paper's ({SOURCE}), if it gives one. `{facts['command']}`",
        *([f"Not scored yet: {', '.join(waiting)}."] if waiting else []),
    ]


def _table(rows: Sequence[tuple[Variant, Sequence[Samples]]], family: str, stand_in: bool) -> list[str]:
    scored = {name for _, seeds in rows for row in seeds for name in row.columns}.difference(NOT_SHOWN[family])
    seen = [name for name in COLUMNS if name in scored]
    heads = [f"{COLUMNS[name]} ({STAND_IN})" if stand_in and name in SIMILARITIES else COLUMNS[name] for name in seen]
    lines = [f"| variant | seeds | {' | '.join(heads)} |", f"| --- | --- | {' | '.join('---' for _ in seen)} |"]
    for variant, seeds in rows:
        paper = variant.published(family).values
        cells = (_cell(estimate(seeds, name), paper.get(name)) for name in seen)
        lines.append(f"| {variant.name} | {len(seeds)} | {' | '.join(cells)} |")
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
    lines = ["| the paper says | there | here | difference | seeds | agrees |", "| --- " * 6 + "|"]
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
        lines.append(f"| {claim.says} | {paper} | {here} | {apart} | {result.seeds} | {result.agrees} |")
    return lines


def _facts(run_dir: RunDir, command: str, scores: Scores) -> dict[str, Any]:
    due = [f"{row.name}/{family}" for row in VARIANTS.values() for family in row.families]
    return {
        "command": command,
        "budget": asdict(run_dir.budget),
        "seeds": sorted({seed for rows in scores.values() for seed in rows}),
        "base_world": {"name": run_dir.world.spec.name, "fingerprint": run_dir.world.fingerprint},
        "device": run_dir.device,
        "machine": machine(),
        "not_scored": [name for name in due if tuple(name.split("/")) not in scores],
    }


def _row(run_dir: RunDir, variant: Variant, family: str, samples: Mapping[int, Samples]) -> dict[str, Any]:
    paper, rows = variant.published(family), list(samples.values())
    return {
        "variant": variant.name,
        "family": family,
        "about": variant.about,
        "paper": {"table": paper.table, "name": paper.row, "figures": dict(paper.values)},
        "trained": {seed: trained_with(SeedRuns(run_dir, seed), variant, family) for seed in samples},
        "scored_with": {seed: row.facts for seed, row in samples.items()},
        "figures": {name: _plain(estimate(rows, name)) for name in rows[0].columns},
    }


def _claim(result: ClaimResult) -> dict[str, Any]:
    here, difference = result.here, result.difference
    return {
        **asdict(result.claim),
        "paper": result.claim.published,
        "seeds": result.seeds,
        "here": None if here is None else [_plain(value) for value in here],
        "difference": None if difference is None else _plain(difference),
        "agrees": result.agrees,
    }


def _plain(found: Estimate) -> dict[str, float | int | None]:
    return {name: value if math.isfinite(value) else None for name, value in asdict(found).items()}
