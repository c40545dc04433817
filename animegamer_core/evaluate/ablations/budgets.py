"""How long variants are trained and on how much they are scored. All of a table share one budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...toybox.build import FULL as RECIPE
from ...toybox.build import QUICK as MINIATURE
from ...toybox.dataset import Casting
from ...train.stages import StageConfig, stage_config
from .variants import GAMES, NOTHING, STAGES, Variant


@dataclass(frozen=True)
class Budget:
    """casting: the games that everything is trained on. played: other games for the engine, None for the same.

    changes: fields of StageConfig by stage that differ from the scratch recipe's. clips: held-out clips that are
    encoded and decoded. games: of the frozen benchmark, each of so many turns. sampler_steps: None for the world's.
    calibrated_on: training scenes on which it is measured how far a variant's shots move.
    """

    name: str
    casting: Casting
    changes: Mapping[str, Mapping[str, Any]]
    clips: int
    games: int
    turns: int = 10
    played: Casting | None = None
    sampler_steps: int | None = None
    calibrated_on: int = RECIPE.calibrated_on

    def config(self, variant: Variant, stage: str, seed: int) -> StageConfig:
        """How a variant trains one of its stages."""
        config = self._row(stage)
        if stage == variant.prolonged:
            more = sum(self._row(skipped).steps for skipped in variant.skipped)
            config = replace(config, steps=config.steps + more)
        return replace(config, **variant.changes.get(stage, NOTHING), seed=seed)

    def _row(self, stage: str) -> StageConfig:
        return replace(stage_config(stage), **self.changes.get(stage, NOTHING))


_RECIPE = {stage: dict(RECIPE.changes[stage]) for stage in STAGES[GAMES]}
_SHORT = {"warmup": 200, "joint": 2500, "predict": 2000, "adapt": 600}

BUDGETS: Mapping[str, Budget] = {
    # The steps of the shipped world: about 18 minutes of an H200 for full, 8 for each other encoder.
    "full": Budget("full", RECIPE.casting, _RECIPE, clips=400, games=50, played=RECIPE.played),
    # Eleven of the thirteen variants took 10 minutes of four H200s, which other work shared.
    "short": Budget(
        "short",
        RECIPE.casting,
        {stage: {**row, "steps": _SHORT[stage]} for stage, row in _RECIPE.items()},
        clips=200,
        games=20,
    ),
    # Tries the machinery, learns nothing.
    "quick": Budget(
        "quick",
        MINIATURE.casting,
        {stage: dict(MINIATURE.changes[stage]) for stage in STAGES[GAMES]},
        clips=2,
        games=1,
        turns=2,
        sampler_steps=2,
        calibrated_on=MINIATURE.calibrated_on,
    ),
}
