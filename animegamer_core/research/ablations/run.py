"""Trains and scores variants until all are done or the time is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...evaluate.world.records import differences
from .run_dir import Deadline, RunDir
from .scores import Samples, VariantScorer
from .variants import VARIANTS, Variant


def run_ablations(
    run_dir: RunDir, scorer: VariantScorer, variants: Sequence[Variant], deadline: Deadline, score_only: bool = False
) -> bool:
    """Train and score what is not done yet; False if the time ran out or a variant to score is not trained.

    What this or another process has finished is skipped. ValueError if a variant was scored with other scoring models,
    whose similarities cannot be compared with these.
    """
    _check_models(run_dir, scorer)
    done = True
    for variant in variants:
        for family in variant.families:
            path = run_dir.scores_file(variant.name, family)
            if path.is_file():
                continue
            if not score_only and not run_dir.train(variant, family, deadline):
                run_dir.say(f"{variant.name}: the time is over; the same command continues here")
                return False
            if not all(run_dir.is_trained(*step) for step in variant.path(family)):
                run_dir.say(f"{variant.name}: not trained yet, so its {family} are not scored")
                done = False
                continue
            if deadline.over:
                return False
            # The variant may be trained by others meanwhile, so scoring has a lock of its own.
            with run_dir.lock(f"variants/{variant.name}/scoring", deadline, path.is_file) as owned:
                if owned and not path.is_file():
                    scorer.score(variant, family).save(path)
                    run_dir.say(f"{variant.name}: {family} scored")
            if not path.is_file():
                run_dir.say(f"{variant.name}: the time is over while another process scores its {family}")
                return False
    return done


def _check_models(run_dir: RunDir, scorer: VariantScorer) -> None:
    now = _files(None if scorer.models is None else scorer.models.facts)
    for path in (run_dir.scores_file(row.name, family) for row in VARIANTS.values() for family in row.families):
        if path.is_file() and (found := list(differences(_files(Samples.read(path).facts["towers"]), now))):
            raise ValueError(
                f"{path} was scored with other scoring models: {'; '.join(found[:3])}; give those, or delete it and "
                "all files like it to score again"
            )


def _files(models: Mapping[str, Any] | None) -> dict[str, Any]:
    """The files of scoring models with their hashes, which alone decide a similarity; names of folders may differ."""
    return {name: (models.get(name) or {}).get("files") for name in ("clip", "dreamsim")} if models else {}
