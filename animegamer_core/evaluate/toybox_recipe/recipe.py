"""The recipe of the Toybox's shipped world: the stages in order, and their settings, in full and in miniature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...spec import SPECS, ModelSpec
from ...toybox.dataset import DatasetGames
from .probes import ProbeRecipe

TRAINED = ("vae", "towers", "warmup", "joint", "predict", "adapt", "polish", "distill")
STAGES = ("data", "games", "probes", "frames", *TRAINED, "calibrate")


@dataclass(frozen=True)
class Recipe:
    """The settings of a build.

    dataset_games: the games on which encoder and decoder are trained. engine_games: the games on which the engine is
    trained; more, since it would overfit on fewer. frames: probes of single frames. calibrated_on: number of training
    scenes for calibration. changes: stage -> the fields of its StageConfig that differ from the row in recipe
    `scratch`.
    """

    dataset_games: DatasetGames
    engine_games: DatasetGames
    probes: ProbeRecipe
    frames: ProbeRecipe
    calibrated_on: int
    changes: Mapping[str, Mapping[str, Any]]
    spec: ModelSpec = SPECS["toybox"]


# 16 steps keep a turn on two CPU cores under 5 s (docs/training.md). The adverbs of its clips say nothing, so that a
# shot moves as its motion value says, also against the words (docs/evaluation.md).
_DECODER: dict[str, Any] = {"batch": 128, "compile": True, "drop_motion": 0.1}  # half the row's batch: many tokens
FULL = Recipe(
    dataset_games=DatasetGames(games=2000, held_out=24, unmatched_adverbs=0.8),
    engine_games=DatasetGames(games=3000, held_out=24),
    probes=ProbeRecipe(steps=2500),
    frames=ProbeRecipe(steps=4000, seed=2),
    calibrated_on=16,
    changes={
        "vae": {
            "steps": 6000,
            "batch": 8,
            "lr": 4e-4,
            "lr_warmup": 200,
            "ema": 0.9995,
            "weight_decay": 1e-4,
            "edge": 0.3,
            "edge_scales": 3,
            "motion": 0.3,
            "kl": 1e-4,
        },
        "towers": {"steps": 2000},
        "warmup": {**_DECODER, "steps": 400, "lr": 1e-3},
        "joint": {**_DECODER, "steps": 15000, "lr": 1e-3},
        "predict": {"steps": 10000},
        "adapt": {**_DECODER, "steps": 3000, "true_states": 0.5},
        "polish": {
            "trainable": (r"^decoder\.vae\.decoder\.",),
            "steps": 3200,
            "batch": 8,
            "lr": 2e-4,
            "ema": 0.9995,
            "edge": 0.5,
            "edge_scales": 3,
            "motion": 0.6,
        },
        # Constant guidance sharpens fast shots, and lowers the PSNR of calm ones (docs/performance.md). The decoder
        # still learns the unconditional pass, which worlds that begin with its weights are guided by.
        "distill": {
            **_DECODER,
            "steps": 3000,
            "lr_warmup": 100,
            "ema": 0.998,
            "drop_both": 0.1,
            "true_states": 0.5,
            "teacher_guidance": "constant",
            "teacher_strengths": (0.1, 0.3, 0.4, 0.5, 0.65),
        },
    },
)
# Tests the pipeline; too short to learn anything.
MINIATURE: dict[str, Any] = {
    "batch": 4,
    "compile": False,
    "steps": 2,
    "lr_warmup": 1,
    "log_every": 1,
    "validate_every": 0,
}
QUICK = Recipe(
    dataset_games=DatasetGames(games=4, held_out=1, turns=5, unmatched_adverbs=0.8),
    engine_games=DatasetGames(games=6, held_out=1, turns=5),
    probes=ProbeRecipe(clips=24, held_out=8, steps=3, control_steps=2),
    frames=ProbeRecipe(clips=24, held_out=8, steps=3, control_steps=2, seed=2),
    calibrated_on=1,
    changes={stage: {**FULL.changes[stage], **MINIATURE} for stage in TRAINED},
)
