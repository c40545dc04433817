"""The recipe of the Toybox's shipped world: the stages in order, and their settings, in full and in miniature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...spec import SPECS, ModelSpec
from ...toybox.dataset import DatasetGames
from .probes import JudgeRecipe

TRAINED = ("vae", "towers", "warmup", "joint", "predict", "adapt")
OPTIONAL = ("distill",)
STAGES = ("data", "games", "probes", "frames", "scorers", *TRAINED, "calibrate")


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
    probes: JudgeRecipe
    frames: JudgeRecipe
    scoring: JudgeRecipe
    calibrated_on: int
    changes: Mapping[str, Mapping[str, Any]]
    spec: ModelSpec


# Drawn without guidance, so that a step is one pass.
SPEC = replace(SPECS["toybox"], decoder=replace(SPECS["toybox"].decoder, guidance_scale=0.0))
# The adverbs of the decoder's clips say nothing, so that a shot moves as its motion value says, also against the words.
_DECODER: dict[str, Any] = {"batch": 256, "compile": True, "drop_motion": 0.1, "muon": True, "lr": 1e-3}
FULL = Recipe(
    dataset_games=DatasetGames(games=4000, held_out=48, unmatched_adverbs=0.8),
    engine_games=DatasetGames(games=4000, held_out=48),
    probes=JudgeRecipe(steps=2500),
    frames=JudgeRecipe(steps=4000, seed=2),
    scoring=JudgeRecipe(steps=400, control_steps=80),
    calibrated_on=16,
    changes={
        "vae": {
            "steps": 6000,
            "batch": 32,
            "crop": (96, 144),
            "lr": 1e-3,
            "lr_warmup": 200,
            "ema": 0.999,
            "edge": 0.3,
            "edge_scales": 3,
            "motion": 0.3,
            "kl": 1e-4,
        },
        "towers": {"steps": 3000, "ema": 0.998},
        "warmup": {**_DECODER, "steps": 400},
        "joint": {**_DECODER, "steps": 12000},
        "predict": {"steps": 12000, "batch": 256},
        "adapt": {**_DECODER, "steps": 2000, "lr": 3e-4, "true_states": 0.5, "drop_both": 0.1},
        # Puts guidance into the weights, which sharpens fast shots and lowers the PSNR of calm ones.
        "distill": {
            **_DECODER,
            "steps": 3000,
            "lr": 3e-4,
            "drop_both": 0.1,
            "true_states": 0.5,
            "teacher_guidance": "constant",
            "teacher_strengths": (0.1, 0.3, 0.4, 0.5, 0.65),
        },
    },
    spec=SPEC,
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
    probes=JudgeRecipe(clips=24, held_out=8, steps=3, control_steps=2),
    frames=JudgeRecipe(clips=24, held_out=8, steps=3, control_steps=2, seed=2),
    scoring=JudgeRecipe(clips=24, held_out=8, steps=3, control_steps=2),
    calibrated_on=1,
    changes={stage: {**FULL.changes[stage], **MINIATURE} for stage in (*TRAINED, *OPTIONAL)},
    spec=SPEC,
)
