"""A request to train one stage, with the values that differ from the recipe's row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..spec import ModelSpec
from .stages import StageConfig, stage_config


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """One stage to train.

    world: a folder, or the name of an embedded world. spec: the sizes of a world that does not exist yet. recipe: None
    for the spec's default. start: adapters to start from, in order. profile: how turns are read, None for the world's
    own. cache: folder of computed features. options: values of StageConfig by name. after_step: called after each step;
    True stops the run.
    """

    stage: str
    dataset: Path
    world: str
    out: Path
    spec: str | None = None
    resume: bool = False
    recipe: str | None = None
    start: tuple[Path, ...] = ()
    profile: str | None = None
    cache: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    after_step: Callable[[], bool] | None = None

    @property
    def starts(self) -> list[tuple[Path, float]]:
        """The adapters to start from, each at full strength."""
        return [(file, 1.0) for file in self.start]

    def config(self, recipe: str, spec: ModelSpec | None = None) -> StageConfig:
        """The recipe's row for the stage, with the options applied. spec: of the world that is trained."""
        return replace(stage_config(self.stage, recipe, spec), **self.options)
