"""The verb `train`: a stage, or all of them. The stage options are read off StageConfig's fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

from tyro.conf import OmitArgPrefixes, Positional, UseAppendAction

from ..train.stages import ALL, ALL_STAGES, StageConfig, TrainRequest
from .options import one_of, typed

StageOptions = typed(StageConfig)


@dataclass(frozen=True, kw_only=True)
class Options(TrainRequest):
    stage: Positional[Annotated[str, one_of((*ALL_STAGES, ALL))]]
    """What to train. A new world needs vae, towers, warmup, joint, predict and adapt, in this order. distill: the
    decoder learns to draw with one pass per step; always writes an adapter. all: the stages of the recipe one after
    another, each in a folder of its name in --out; it prints a plan first, and stage options apply to every stage."""
    set: UseAppendAction[tuple[str, ...]] = ()
    options: OmitArgPrefixes[StageOptions] = field(default_factory=dict)
    """Options of a stage; unset: the recipe's row for the stage."""

    def run(self, report: Callable[[str], object] | None = None) -> int:
        """Train; returns the exit status. ValueError for arguments, data or files that do not fit.

        Of the processes of `accelerate launch`, only the main one reports.
        """
        from ..train.all import train_all  # these load torch, which --help does not need
        from ..train.distributed import processes
        from ..train.job import train_one_stage

        report = (report or partial(print, flush=True)) if processes().is_main_process else lambda line: None
        if self.stage == ALL:
            return train_all(self, report)
        for name in ("stages", "set", "plan"):
            if getattr(self, name):
                raise ValueError(f"--{name} is for `train all`; drop it from `train {self.stage}`")
        return train_one_stage(self, report)
