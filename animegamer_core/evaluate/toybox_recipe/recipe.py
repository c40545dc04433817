"""The recipe of the Toybox's shipped world: the stages in order, and their settings, in full and in miniature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...spec import SPECS, ModelSpec
from ...toybox.dataset import DatasetGames
from .probes import ProbeRecipe

TRAINED = ("vae", "towers", "warmup", "joint", "predict", "adapt", "played", "distill", "tiny")
STAGES = ("data", "games", "probes", *TRAINED, "calibrate")
STEPS = ("steps", "lr_warmup", "pairs")  # the fields of a stage that a part of the recipe has fewer of
# stage -> how far the decoder's weights go towards those that it trained. All the way, what the words leave open is
# soft after `played` (`adapt` with latents that the decoder drew itself), and in crumbs after `distill`.
MIXED = {"played": 0.5, "distill": 0.3}


@dataclass(frozen=True)
class Recipe:
    """The settings of a build.

    dataset_games: the games on which encoder and decoder are trained. engine_games: the games on which the engine is
    trained: more of them, with the adverbs of their clips. calibrated_on: number of training scenes for calibration.
    changes: stage -> the fields of its StageConfig that differ from the row in recipe `scratch`.
    """

    dataset_games: DatasetGames
    engine_games: DatasetGames
    probes: ProbeRecipe
    calibrated_on: int
    changes: Mapping[str, Mapping[str, Any]]
    spec: ModelSpec = SPECS["toybox"]

    def part(self, part: float) -> Recipe:
        """The recipe with this part of its games, clips and steps, above 0 and up to 1; else ValueError."""
        if not 0 < part <= 1:
            raise ValueError(f"part is {part}; expected above 0, and 1 at most")

        def count(number: int) -> int:
            return max(1, round(part * number))

        probes = {name: count(getattr(self.probes, name)) for name in ("clips", "steps", "control_steps")}
        return replace(
            self,
            dataset_games=replace(self.dataset_games, games=count(self.dataset_games.games)),
            engine_games=replace(self.engine_games, games=count(self.engine_games.games)),
            probes=replace(self.probes, **probes),
            changes={
                stage: {name: count(value) if name in STEPS else value for name, value in own.items()}
                for stage, own in self.changes.items()
            },
        )


_MUON: dict[str, Any] = {"muon": 2.0, "ema": 0.998, "lr_warmup": 60}
# Many of the timesteps are those that play takes. Guidance and dropout, which it needs, are left out. The adverbs of
# its clips say nothing, so that a shot moves as its motion value says, also against the words (docs/evaluation.md).
_DECODER: dict[str, Any] = {
    **_MUON,
    "batch": 256,
    "lr": 1e-3,
    "compile": True,
    "moving": 3.0,
    "played_steps": 0.5,
    **dict.fromkeys(("drop_text", "drop_text_features", "drop_image", "drop_both"), 0.0),
}
_DISTILL: dict[str, Any] = {
    "timesteps": (800,), "steps": 590, "pairs": 150, "lr_warmup": 20, "batch": 64, "lr": 2e-4, "matching_lr": 3e-5,
    "fake_updates": 2, "collapse": 5.0, "moving": 3.0, "ema": 0.98,
}  # fmt: skip
# With noise in its latents, nothing that one sees is as small in them as the decoder's errors (docs/evaluation.md).
_VAE: dict[str, Any] = {
    **_MUON,
    "crop": (96, 144),
    "moving": 4.0,
    "edge": 0.3,
    "edge_scales": 3,
    "motion": 0.3,
    "kl": 3e-3,
    "latent_noise": 0.3,
}
FULL = Recipe(
    dataset_games=DatasetGames(games=1900, held_out=24, unmatched_adverbs=0.8),
    engine_games=DatasetGames(games=20_000, held_out=24),
    probes=ProbeRecipe(clips=12_000, steps=3600, control_steps=300),
    calibrated_on=16,
    changes={
        "vae": {**_VAE, "trainable": (r"^decoder\.vae\.(encoder|decoder)\.",), "steps": 6000, "batch": 32, "lr": 4e-4},
        "towers": {"steps": 485, "lr_warmup": 100},
        "warmup": {**_DECODER, "steps": 60},
        "joint": {**_DECODER, "steps": 1264},
        "predict": {**_MUON, "ema": 0.999, "steps": 2200, "batch": 512, "lr": 1.5e-3},
        "adapt": {**_DECODER, "steps": 5300, "true_states": 0.5, "played_steps": 0.3},
        "played": {**_DECODER, "steps": 1270, "batch": 128, "lr": 2.5e-4, "true_states": 0.5, "own_steps": 1.0},
        "distill": _DISTILL,
        "tiny": {**_VAE, "trainable": (r"^decoder\.vae\.tiny\.",), "steps": 1522, "batch": 24},
    },
)
# Tests the pipeline; too short to learn anything.
MINIATURE: dict[str, Any] = {
    "batch": 4,
    "compile": False,
    "steps": 2,
    "lr_warmup": 1,
    "pairs": 1,
    "log_every": 1,
    "validate_every": 0,
}
QUICK = Recipe(
    dataset_games=DatasetGames(games=4, held_out=1, turns=5, unmatched_adverbs=0.8),
    engine_games=DatasetGames(games=6, held_out=1, turns=5),
    probes=ProbeRecipe(clips=24, held_out=8, steps=3, control_steps=2),
    calibrated_on=1,
    changes={stage: {**FULL.changes[stage], **MINIATURE} for stage in TRAINED},
)
