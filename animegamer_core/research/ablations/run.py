"""Trains and scores variants until all are done or the time runs out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...evaluate.world.records import differences
from .run_dir import Deadline, RunDir
from .scores import Samples, VariantScorer
from .seed_runs import SeedRuns, scores_files
from .variants import Variant


def run_ablations(
    scorer: VariantScorer,
    variants: Sequence[Variant],
    seeds: Sequence[int],
    deadline: Deadline,
    score_only: bool = False,
) -> bool:
    """Train and score variants, seed after seed; skips what this or another process has finished.

    score_only: train nothing. Returns False if the time ran out, or if a variant to be scored is not trained.
    ValueError if variants were scored with other scoring models, since similarities could then not be compared.
    """
    run_dir = scorer.run_dir
    _check_models(run_dir, scorer)
    done = True
    for runs in (SeedRuns(run_dir, seed) for seed in seeds):
        for variant in variants:
            for family in variant.families:
                finished = _finish(runs, scorer, variant, family, deadline, score_only)
                if finished is None:
                    return False
                done = done and finished
    return done


def _finish(
    runs: SeedRuns, scorer: VariantScorer, variant: Variant, family: str, deadline: Deadline, score_only: bool
) -> bool | None:
    """Train and score one family of a variant. True if its scores exist in the end; None if the time ran out."""
    path, run_dir, named = runs.scores_file(variant.name, family), runs.run_dir, f"{variant.name}, seed {runs.seed}"
    if path.is_file():
        return True
    if not score_only and not runs.train(variant, family, deadline):
        run_dir.say(f"{named}: time is up; the same command continues here")
        return None
    if not all(runs.is_trained(*step) for step in variant.path(family)):
        run_dir.say(f"{named}: not trained yet, so its {family} cannot be scored")
        return False
    if deadline.over:
        return None
    # Another process may be training the variant, so scoring has a lock of its own.
    with run_dir.lock(f"{runs.variant_name(variant.name)}/scoring", deadline, path.is_file) as owned:
        if owned and not path.is_file():
            scorer.score(runs, variant, family).save(path)
            run_dir.say(f"{named}: {family} scored")
    if path.is_file():
        return True
    run_dir.say(f"{named}: time is up while another process scores its {family}")
    return None


def _check_models(run_dir: RunDir, scorer: VariantScorer) -> None:
    now = _files(None if scorer.models is None else scorer.models.facts)
    for path in scores_files(run_dir).values():
        if found := list(differences(_files(Samples.read(path).facts["towers"]), now)):
            raise ValueError(
                f"{path} was scored with other scoring models: {'; '.join(found[:3])}; use those, or delete it and "
                "all files like it to score again"
            )


def _files(models: Mapping[str, Any] | None) -> dict[str, Any]:
    """The hashes of the scoring models' files, which alone decide similarities; the folders' names may differ."""
    return {name: (models.get(name) or {}).get("files") for name in ("clip", "dreamsim")} if models else {}
