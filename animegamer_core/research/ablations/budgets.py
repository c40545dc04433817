"""How long variants are trained and on how much they are scored. All variants of a table have the same budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...toybox.dataset import DatasetGames
from ...train.stages import LORA, StageConfig, stage_config
from ..toybox_recipe.recipe import FULL as RECIPE
from ..toybox_recipe.recipe import QUICK as MINIATURE
from .variants import GAMES, NOTHING, PRETRAIN, STAGES, Variant


@dataclass(frozen=True)
class Budget:
    """casting: the games of the training dataset. played: other games for the engine, None for the same.

    changes: fields of StageConfig by stage that differ from the scratch recipe's. clips: held-out clips that are
    encoded and decoded. games, turns: played games of the frozen benchmark. decoder: fields of DecoderSpec that differ
    from the base world's. calibrated_on: training scenes on which the motion of a variant's shots is calibrated. Field
    names are saved in job.json.
    """

    name: str
    casting: DatasetGames
    changes: Mapping[str, Mapping[str, Any]]
    clips: int
    games: int
    turns: int = 10
    played: DatasetGames | None = None
    decoder: Mapping[str, Any] = field(default_factory=dict)
    calibrated_on: int = RECIPE.calibrated_on

    def config(self, variant: Variant, stage: str, seed: int) -> StageConfig:
        """The config with which a variant trains one of its stages."""
        config = self._config(stage)
        if stage == variant.prolonged:
            more = sum(self._config(skipped).steps for skipped in variant.skipped)
            config = replace(config, steps=config.steps + more)
        return replace(config, **variant.changes.get(stage, NOTHING), seed=seed)

    def _config(self, stage: str) -> StageConfig:
        row = stage_config("joint" if stage == PRETRAIN else stage)
        return replace(row, **_AS_PUBLISHED.get(stage, NOTHING), **self.changes.get(stage, NOTHING))


# As the paper's: CogVideoX knows no motion value, and warm-up trains the encoder and leaves the decoder alone.
_AS_PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    PRETRAIN: {"motion_scope": False},
    "warmup": {"trainable": LORA["warmup"].trainable},
}
_RECIPE = {
    PRETRAIN: {**RECIPE.changes["joint"], "steps": 2000},
    **{stage: dict(RECIPE.changes[stage]) for stage in STAGES[GAMES] if stage != PRETRAIN},
}
# Edition 1's decoder reads a quarter of the tokens of the shipped one, so a variant takes two minutes instead of eight;
# but only on a VAE with 8 channels like edition 1's (see `run_dir`).
_SMALL = {
    name: getattr(RECIPE.spec.decoder, name) for name in ("layers", "patch", "steps", "guidance_scale", "guides_motion")
}
_SHORT = {PRETRAIN: 1000, "warmup": 300, "joint": 2000, "predict": 3000, "adapt": 600}

BUDGETS: Mapping[str, Budget] = {
    # The steps of edition 1's world, after those of a decoder that can draw.
    "full": Budget(
        "full", RECIPE.dataset_games, _RECIPE, clips=400, games=50, played=RECIPE.engine_games, decoder=_SMALL
    ),
    "short": Budget(
        "short",
        RECIPE.dataset_games,
        {stage: {**row, "steps": _SHORT[stage]} for stage, row in _RECIPE.items()},
        clips=200,
        games=20,
        decoder=_SMALL,
    ),
    # Tests the code; too short to learn anything.
    "quick": Budget(
        "quick",
        MINIATURE.dataset_games,
        {stage: dict(MINIATURE.changes["joint" if stage == PRETRAIN else stage]) for stage in STAGES[GAMES]},
        clips=2,
        games=1,
        turns=2,
        decoder={"steps": 2, "guides_motion": False},
        calibrated_on=MINIATURE.calibrated_on,
    ),
}
