"""What to train: a stage or all of them, with the values that differ from the recipe's row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ..spec import ModelSpec
from .stages import StageConfig, stage_config

ALL = "all"  # in the place of a stage


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """What a run of `train` is asked for; the command line is made from these fields."""

    stage: str
    dataset: Path
    """Dataset folder."""
    world: str
    """World to start from: a folder, created if it is new; a small one is trained in place (see --recipe). 'toybox'
    also works, with a recipe that does not change it; for gc, the folder of CogVideoX-2b or of a small world."""
    out: Path
    """Folder for log, checkpoints and the adapter."""
    spec: str | None = None
    """Sizes of a new world: tiny, toybox, release."""
    resume: bool = False
    """Continue the run in --out."""
    recipe: Literal["lora", "lora24", "scratch"] | None = None
    """lora: as in the paper, for GPUs with 80 GB; lora24: for one with 24 GB; both write an adapter and do not change
    the world. scratch: train all weights, written into the world folder. Unset: scratch for specs tiny and toybox, else
    lora."""
    start: tuple[Path, ...] = ()
    """Adapters to start from, in order."""
    profile: Literal["paper", "reference"] | None = None
    """Prompt format in training, and then in play; unset: what the engine was trained with, or paper if this program
    has not trained it yet."""
    cache: Path | None = None
    """Folder of computed features (`dataset cache`); unset: one in --out."""
    stages: str | None = None
    """train all: only these stages, separated by commas."""
    set: tuple[str, ...] = ()
    """train all: options of one stage as STAGE.OPTION=VALUE, such as joint.steps=2000; separate several values of one
    option by spaces, in quotes."""
    plan: bool = False
    """train all: print the plan and stop."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Values of StageConfig by name."""

    @property
    def starts(self) -> list[tuple[Path, float]]:
        """The adapters to start from, each at full strength."""
        return [(file, 1.0) for file in self.start]

    def config(self, recipe: str, spec: ModelSpec | None = None) -> StageConfig:
        """The recipe's row for the stage, with the options applied. spec: of the world that is trained."""
        return replace(stage_config(self.stage, recipe, spec), **self.options)
