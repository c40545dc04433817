"""The verb `train`: a stage, or all of them. The stage options are read off StageConfig's fields."""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from tyro.conf import OmitArgPrefixes, Positional, UseAppendAction, arg

from ..train.stages import ALL, ALL_STAGES, StageConfig, TrainRequest
from .options import one_of

_KINDS = typing.get_type_hints(StageConfig)


def _kind_of(field: dataclasses.Field) -> Any:
    """The type of a stage option, with its help, range and choices."""
    choices, ranges = field.metadata["choices"], [expected for _, expected in field.metadata["checks"]]
    kind = Annotated[str, one_of(choices)] if choices else _KINDS[field.name]
    text = "; ".join([field.metadata["help"], *ranges])
    return Annotated[kind, arg(help=text, help_behavior_hint="")]


# A TypedDict without defaults holds what was typed, and nothing else: the rest is the recipe's.
StageOptions = TypedDict(
    "StageOptions", {field.name: _kind_of(field) for field in dataclasses.fields(StageConfig)}, total=False
)


@dataclass(frozen=True, kw_only=True)
class Options(TrainRequest):
    stage: Positional[Annotated[str, one_of((*ALL_STAGES, ALL))]]
    """What to train. A new world needs vae, towers, warmup, joint, predict and adapt, in this order. distill: the
    decoder learns to draw with one pass per step; always writes an adapter. gc: the text-to-video baseline; writes a
    folder gc in --out. all: the stages of the recipe one after another, each in a folder of its name in --out; it
    prints a plan first, and stage options apply to every stage."""
    set: UseAppendAction[tuple[str, ...]] = ()
    options: OmitArgPrefixes[StageOptions] = dataclasses.field(default_factory=lambda: StageOptions())
    """Options of a stage; unset: the recipe's row for the stage."""

    def run(self, report: Callable[[str], object] | None = None) -> int:
        """Train; returns the exit status. ValueError for arguments, data or files that do not fit.

        Of the processes of `accelerate launch`, only the main one reports.
        """
        from ..train.all import train_all  # these load torch, which --help does not need
        from ..train.distributed import processes
        from ..train.job import train_one_stage

        report = (report or _print) if processes().is_main_process else lambda line: None
        if self.stage == ALL:
            return train_all(self, report)
        for name in ("stages", "set", "plan"):
            if getattr(self, name):
                raise ValueError(f"--{name} is for `train all`; drop it from `train {self.stage}`")
        return train_one_stage(self, report)


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
