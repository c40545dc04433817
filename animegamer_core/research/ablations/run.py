"""Trains and scores variants until all are done or the time is over."""

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
    """Train and score what is not done yet, seed after seed; False if the time ran out or a variant to score is not
    trained.

    What this or another process has finished is skipped. ValueError if a variant was scored with other scoring models,
    whose similarities cannot be compared with these.
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
    """Whether one family of a variant's scores is there in the end; None if the time ran out."""
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
    # The variant may be trained by others meanwhile, so scoring has a lock of its own.
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
    """The files of scoring models with their hashes, which alone decide a similarity; names of folders may differ."""
    return {name: (models.get(name) or {}).get("files") for name in ("clip", "dreamsim")} if models else {}
