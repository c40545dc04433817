"""The recipes of the Toybox's worlds: the stages in order, and their settings, in full and in miniature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...spec import SPECS, ModelSpec
from ...toybox.dataset import DatasetGames
from ...toybox.editions import EDITION, GamesEdition
from .probes import ProbeRecipe
from .scoring_checks import ScoringRecipe

DRAWN = ("data", "games")
TRAINED = ("vae", "towers", "warmup", "joint", "predict", "adapt", "polish")
HARD_TRAINED = (*TRAINED, "distill")  # of edition 2
STAGES = (*DRAWN, "probes", "scorers", *TRAINED, "calibrate")
HARD_STAGES = (*DRAWN, "probes", "frames", "scorers", *HARD_TRAINED, "calibrate")


@dataclass(frozen=True)
class Recipe:
    """The settings of a build.

    dataset_games: the games on which encoder and decoder are trained. engine_games: the games on which the engine is
    trained; more, since it would overfit on fewer. changes: stage -> the fields of its StageConfig that differ from the
    row in recipe `scratch`.
    """

    spec: ModelSpec
    dataset_games: DatasetGames
    engine_games: DatasetGames
    probes: ProbeRecipe
    scoring: ScoringRecipe
    calibrated_on: int  # number of training scenes for calibration
    changes: dict[str, dict[str, object]] = field(default_factory=dict)
    frames: ProbeRecipe | None = None  # probes of single frames; None without stage `frames`
    stages: tuple[str, ...] = STAGES

    @property
    def edition(self) -> GamesEdition:
        """The edition of its games."""
        return EDITION


# The sizes of edition 1, with which the ablations still train.
FIRST_SPEC = replace(
    SPECS["toybox"],
    decoder=replace(
        SPECS["toybox"].decoder,
        layers=7,
        patch=4,
        steps=20,
        guides_motion=False,
        vae=replace(SPECS["toybox"].decoder.vae, latent_channels=8),
    ),
)
FULL = Recipe(
    spec=FIRST_SPEC,
    dataset_games=DatasetGames(games=1000, held_out=20),
    engine_games=DatasetGames(games=3000, held_out=20),
    probes=ProbeRecipe(clips=6000, held_out=500, steps=2500, control_steps=500),
    scoring=ScoringRecipe(scenes=6000, held_out=500, steps=400, control_steps=80),
    calibrated_on=16,
    changes={
        "vae": {"steps": 3200, "batch": 8, "lr": 1e-3, "kl": 1e-4},
        "towers": {"steps": 2000},
        "warmup": {"steps": 400, "lr": 1e-3},
        "joint": {"steps": 6500, "lr": 1e-3},
        "predict": {"steps": 8000},
        "adapt": {"steps": 2000},
        "polish": {"trainable": (r"^decoder\.vae\.decoder\.",), "steps": 2600, "batch": 8, "lr": 5e-4, "motion": 1.0},
    },
)
QUICK = Recipe(
    spec=FIRST_SPEC,
    dataset_games=DatasetGames(games=4, held_out=1, turns=5),
    engine_games=DatasetGames(games=6, held_out=1, turns=5),
    probes=ProbeRecipe(clips=24, held_out=8, steps=3, control_steps=2),
    scoring=ScoringRecipe(scenes=24, held_out=8, steps=3, control_steps=2),
    calibrated_on=1,
    changes={stage: {"steps": 2, "batch": 4, "lr_warmup": 1, "log_every": 1, "validate_every": 0} for stage in TRAINED},
)

# Edition 2. Its transformer reads tokens of 2x2 latents instead of 4x4, so it has four times as many, and is one layer
# shallower; 16 steps instead of 20 keep a turn on two CPU cores under 5 s (docs/training.md). The adverbs of its clips
# say nothing, so that a shot moves as its motion value says, also against the words (docs/evaluation.md).
_PATCH_2: dict[str, object] = {"batch": 128, "compile": True, "drop_motion": 0.1}  # half the batch: more tokens
HARD = Recipe(
    spec=SPECS["toybox"],
    dataset_games=DatasetGames(games=2000, held_out=24, unmatched_adverbs=0.8),
    engine_games=DatasetGames(games=3000, held_out=24),
    probes=FULL.probes,
    frames=ProbeRecipe(clips=6000, held_out=500, steps=4000, control_steps=500, seed=2),
    scoring=FULL.scoring,
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
        "warmup": {**_PATCH_2, "steps": 400, "lr": 1e-3},
        "joint": {**_PATCH_2, "steps": 15000, "lr": 1e-3},
        "predict": {"steps": 10000},
        "adapt": {**_PATCH_2, "steps": 3000, "true_states": 0.5},
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
            **_PATCH_2,
            "steps": 3000,
            "lr_warmup": 100,
            "ema": 0.998,
            "drop_both": 0.1,
            "true_states": 0.5,
            "teacher_guidance": "constant",
            "teacher_strengths": (0.1, 0.3, 0.4, 0.5, 0.65),
        },
    },
    stages=HARD_STAGES,
)
_MINIATURE: dict[str, object] = {"batch": 4, "compile": False, **{"steps": 2, "lr_warmup": 1, "log_every": 1}}
HARD_QUICK = replace(
    QUICK,
    spec=SPECS["toybox"],
    dataset_games=replace(QUICK.dataset_games, unmatched_adverbs=HARD.dataset_games.unmatched_adverbs),
    engine_games=replace(QUICK.engine_games),
    frames=replace(QUICK.probes, seed=2),
    changes={stage: {**HARD.changes.get(stage, {}), **_MINIATURE, "validate_every": 0} for stage in HARD_TRAINED},
    stages=HARD_STAGES,
)
RECIPES: Mapping[tuple[int, bool], Recipe] = {  # (edition, whether in miniature) -> recipe
    (1, False): FULL,
    (1, True): QUICK,
    (2, False): HARD,
    (2, True): HARD_QUICK,
}
