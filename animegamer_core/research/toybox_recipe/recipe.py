"""What a build of the embedded world makes: the stages in order, and their settings in full and in miniature."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...spec import SPECS, ModelSpec
from ...toybox.dataset import DatasetGames
from .probes import ProbeRecipe
from .scoring_checks import ScoringRecipe

DRAWN = ("data", "games")
TRAINED = ("vae", "towers", "warmup", "joint", "predict", "adapt", "polish")
STAGES = (*DRAWN, "probes", "scorers", *TRAINED, "calibrate")


@dataclass(frozen=True)
class Recipe:
    """What a build makes. changes: stage -> the fields of its StageConfig that differ from the scratch recipe's row.

    dataset_games: the games that encoder and decoder are trained on. engine_games: the games that the engine is trained
    on; they are more, since it overfits fewer.
    """

    spec: ModelSpec
    dataset_games: DatasetGames
    engine_games: DatasetGames
    probes: ProbeRecipe
    scoring: ScoringRecipe
    calibrated_on: int  # training scenes whose shots are measured
    changes: dict[str, dict[str, object]] = field(default_factory=dict)


FULL = Recipe(
    spec=SPECS["toybox"],
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
    spec=SPECS["toybox"],
    dataset_games=DatasetGames(games=4, held_out=1, turns=5),
    engine_games=DatasetGames(games=6, held_out=1, turns=5),
    probes=ProbeRecipe(clips=24, held_out=8, steps=3, control_steps=2),
    scoring=ScoringRecipe(scenes=24, held_out=8, steps=3, control_steps=2),
    calibrated_on=1,
    changes={stage: {"steps": 2, "batch": 4, "lr_warmup": 1, "log_every": 1, "validate_every": 0} for stage in TRAINED},
)
