"""Checkpoints of a run: everything that it needs to continue as if it had never stopped.

`checkpoints/step-0000120/` holds the trained weights, their average and AdamW's moments as safetensors, and state.json.
A folder is renamed into place when it is complete, so a killed run keeps the one before. The order of samples and the
noise depend only on seed and step (`sampling.py`), so they need no stored state.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import torch
from torch import Tensor, nn

from ..checkpoint.storage import FolderWriter, SafetensorsSource, find_safetensors, write_json
from ..files import PART, rename
from ..json_files import JsonError, read_json
from ..messages import quoted
from .distributed import distributed_like, full_tensor, is_sharded, local_shard
from .stages import STAGES, StageConfig

CHECKPOINTS = "checkpoints"  # folder in a run's folder
MOMENTS = ("exp_avg", "exp_avg_sq")  # AdamW's
KEPT = 2  # checkpoints that are kept
FORMAT = 1
# fields that may differ between a run and its continuation, since they change results by rounding at most
SPLITTING = ("accumulation", "per_card")  # free unless the loss compares the samples of a micro-batch
FREE_FIELDS = (
    *SPLITTING,
    "shots_every",
    "shots_steps",
    "minutes",
    "log_every",
    "save_every",
    "validate_every",
    "shard_mb",
    "compile",
    "checkpointing",
    "deterministic",
)


class ChangedSetting(ValueError):
    """A run is continued with another value of a setting (a field of StageConfig)."""

    def __init__(self, path: Path, name: str, before: object, now: object) -> None:
        super().__init__(
            f"{path} was trained with {name} {quoted(before)}, now it is {quoted(now)}; continue with the same "
            "settings, or use another folder"
        )
        self.name, self.before, self.now = name, before, now


@dataclasses.dataclass
class RunState:
    """What changes while a stage runs. parameters: the trained ones, by name. average: their EMA, empty without EMA.

    Tensors may be sharded over several processes (FSDP2). A checkpoint holds full tensors, so that any number of
    processes can continue from it.
    """

    stage: str
    config: StageConfig
    parameters: dict[str, nn.Parameter]
    optimizer: torch.optim.Optimizer
    average: dict[str, Tensor]
    step: int = 0
    seconds: float = 0.0


def save_checkpoint(folder: Path, state: RunState, writes: bool = True) -> Path:
    """Write a checkpoint; then remove all but the last two, and the partial ones of a killed run. Returns its folder.

    If tensors are sharded, every process of the run must call this; only those with `writes` write.
    """
    path = folder / f"step-{state.step:07d}"
    tensors = _tensors_of(state, writes)
    if not writes:
        return path
    part = folder / f"{PART}{os.getpid()}-{path.name}"
    staged = FolderWriter(part)
    sizes = {name: value.nbytes for name, value in tensors.items()}
    staged.write_tensors(sizes, lambda name: tensors[name].detach().cpu(), state.config.shard_mb * 2**20)
    staged.commit()
    info = {
        "format": FORMAT,
        "stage": state.stage,
        "step": state.step,
        "seconds": state.seconds,
        "optimizer_steps": {
            name: float(state.optimizer.state[parameter]["step"])
            for name, parameter in state.parameters.items()
            if parameter in state.optimizer.state
        },
        "config": dataclasses.asdict(state.config),
    }
    write_json(part / "state.json", info)
    if path.exists():
        os.replace(path, folder / f"{PART}{os.getpid()}-old")  # removed below; a kill leaves no half here
    rename(part, path)
    for old in (*list_checkpoints(folder)[:-KEPT], *folder.glob(f"{PART}*")):
        shutil.rmtree(old)
    return path


def list_checkpoints(folder: Path) -> list[Path]:
    """The complete checkpoints of a run, oldest first."""
    return sorted(path for path in folder.glob("step-*") if (path / "state.json").is_file())


def step_of(path: Path) -> int:
    """The number of steps that were done at a checkpoint."""
    return int(path.name.removeprefix("step-"))


class StoredState(msgspec.Struct):
    """The content of a checkpoint's state.json."""

    format: int
    stage: str
    step: Annotated[int, msgspec.Meta(ge=0)]
    seconds: float
    optimizer_steps: dict[str, float]
    config: dict[str, Any]


def read_state(path: Path) -> StoredState:
    """Read a checkpoint's state.json; ValueError names a damaged field."""
    try:
        return read_json(path / "state.json", StoredState)
    except JsonError as error:
        raise ValueError(f"{error}; delete this folder to continue from the checkpoint before") from error


def load_checkpoint(path: Path, state: RunState) -> None:
    """Load a checkpoint into a run that was just set up; ValueError names the setting or tensor that does not fit."""
    info = checked_state(path, state.stage, state.config)
    weights = find_safetensors(path)
    if weights is None:
        raise ValueError(f"{path}: holds no weights; delete this folder to continue from the checkpoint before")
    source = SafetensorsSource(weights)
    for name, parameter in state.parameters.items():
        _copy(source, f"weight.{name}", parameter)
        if state.average:
            stored = f"average.{name}"  # a reduced checkpoint has none: its weights are the average
            _copy(source, stored if stored in source.keys() else f"weight.{name}", state.average[name])  # noqa: SIM118
        if (steps := info.optimizer_steps.get(name)) is not None:
            fused = state.optimizer.param_groups[0].get("fused")
            moments = {"step": torch.tensor(steps, device=parameter.device if fused else "cpu")}
            for moment in MOMENTS:
                moments[moment] = distributed_like(_checked(source, f"{moment}.{name}", parameter), parameter)
            state.optimizer.state[parameter] = moments
    state.step, state.seconds = info.step, info.seconds


def checked_state(path: Path, stage: str, config: StageConfig) -> StoredState:
    """Read the state of a checkpoint from which this stage continues, perhaps with more steps.

    ValueError if the checkpoint is of another stage or format, ChangedSetting if it has other settings.
    """
    info = read_state(path)
    if (info.format, info.stage) != (FORMAT, stage):
        raise ValueError(f"{path} is from stage {info.stage!r}, not {stage!r}; choose another folder")
    stored = info.config.get("steps", 0)
    steps = max(config.steps, stored) if isinstance(stored, int) else stored
    check_settings(path, stage, {**info.config, "steps": steps}, config)
    return info


def _tensors_of(state: RunState, keep: bool) -> dict[str, Tensor]:
    """A checkpoint's full tensors. Sharded ones are gathered one at a time, and freed again unless `keep`."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in state.parameters.items():
        moments = state.optimizer.state.get(parameter, {})
        found = {f"weight.{name}": parameter}
        found |= {f"{moment}.{name}": moments[moment] for moment in MOMENTS if moment in moments}
        if state.average:
            found[f"average.{name}"] = state.average[name]
        for key, value in found.items():
            full = full_tensor(value.detach())
            if keep:  # an unsharded tensor stays on its device until its file is written
                tensors[key] = full.cpu() if is_sharded(value) else full
    return tensors


def _copy(source: SafetensorsSource, name: str, into: Tensor) -> None:
    stored = _checked(source, name, into)
    with torch.no_grad():
        local_shard(into).copy_(local_shard(distributed_like(stored, into)))


def _checked(source: SafetensorsSource, name: str, like: Tensor) -> Tensor:
    """A stored tensor; ValueError if it is missing or has another shape than `like`."""
    if name not in source.keys() or source.shape(name) != tuple(like.shape):  # noqa: SIM118  not a mapping
        raise ValueError(
            f"{source.path}: {name} is missing or not {tuple(like.shape)}; the checkpoint is for another spec"
        )
    return source.tensor(name)


def check_settings(path: Path, stage: str, stored: Mapping[str, Any], config: StageConfig) -> None:
    """ChangedSetting for the first setting that differs from those `stored` at `path`, except FREE_FIELDS."""
    free = set(FREE_FIELDS) - set(SPLITTING if STAGES[stage].contrasts else ())
    for name, value in dataclasses.asdict(config).items():
        before = stored.get(name)
        before = tuple(before) if isinstance(before, list) else before
        if name not in free and before != value:
            raise ChangedSetting(path, name, before, value)
