"""Whether Train LoRA Stage may continue a run; messages use the names of its widgets."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from contextlib import contextmanager

if typing.TYPE_CHECKING:
    from pathlib import Path

    from ..animegamer_core.train.stages import StageConfig

WIDGETS = {"lora_rank": "rank"}  # StageConfig's fields that have another name on the node
GIVEN = {  # what a run starts from -> the node's words for it
    "world": "the weights of the widget world",
    "dataset": "the clips of the widget dataset or the input game_dataset",
    "start": "the LoRA files of the input lora",
    "profile": "the widget profile",
}


def check_run(run: str, stage: str, config: StageConfig, out: Path, resume: bool) -> None:
    """ValueError if the run may not be continued, or was trained with other settings than these."""
    from ..animegamer_core.train.checkpoints import CHECKPOINTS, ChangedSetting, list_checkpoints
    from ..animegamer_core.train.trainer import continued_config

    if not resume and list_checkpoints(out / CHECKPOINTS):
        raise ValueError(
            f"run {run!r} already has stage {stage}; switch the widget resume on to continue it, or give the widget "
            "run another name"
        )
    try:
        continued_config(stage, config, out)
    except ChangedSetting as error:
        name = WIDGETS.get(error.name, error.name)
        raise ValueError(
            f"run {run!r} was trained with {name} {error.before}, now {name} is {error.now}; set it back to "
            f"{error.before}, or give the widget run another name"
        ) from None


def check_games(run: str, out: Path, drawn: Path, games: int, seed: int) -> None:
    """ValueError if the run was trained on another number of drawn games, before they are drawn.

    drawn: the folder of these games, whose name has their number and seed.
    """
    from ..animegamer_core.checkpoint.storage import read_json
    from ..animegamer_core.data.dataset import INFO, DatasetFolder
    from ..animegamer_core.train.checkpoints import CHECKPOINTS, list_checkpoints
    from ..animegamer_core.train.job import JOB

    if not (out / JOB).is_file() or not list_checkpoints(out / CHECKPOINTS):
        return
    noted = read_json(out / JOB).get("dataset")
    for info in drawn.parent.glob(f"toybox-*-{seed}/{INFO}"):
        trained_on = info.parent.name.split("-")[1]
        if trained_on == str(games) or DatasetFolder.open(info.parent, clips=False).digest(captions=True) != noted:
            continue
        raise ValueError(
            f"run {run!r} was trained with games {trained_on}, now games is {games}; set it back to {trained_on}, or "
            "give the widget run another name"
        )


@contextmanager
def in_widget_words(run: str) -> Iterator[None]:
    """Within the block, a run that started from something else is refused with the node's names."""
    from ..animegamer_core.train.job import ChangedOrigin

    try:
        yield
    except ChangedOrigin as error:
        given = GIVEN.get(error.name, error.name)
        raise ValueError(
            f"run {run!r} started from other contents of {given}; restore them, or give the widget run another name"
        ) from None
