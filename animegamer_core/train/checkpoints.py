"""Checkpoints of a run: everything that it needs to go on as if it had never stopped.

`checkpoints/step-0000120/` holds trained weights, their average and AdamW's moments as safetensors, and state.json. A
folder is renamed into place when it is whole, so a kill leaves the one before. Order and noise follow from seed and
step (`order.py`) and need no state.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoint.storage import SafetensorsSource, StagedFolder, find_safetensors, read_json, write_json
from ..files import PART
from .stages import StageConfig

CHECKPOINTS = "checkpoints"  # in a run's folder
KEPT = 2
FORMAT = 1
# fields that may differ between a run and its continuation without changing its numbers
FREE_FIELDS = (
    "minutes",
    "log_every",
    "save_every",
    "validate_every",
    "shard_mb",
    "compile",
    "checkpointing",
)


@dataclasses.dataclass
class RunState:
    """What changes while a stage runs. `parameters` are the trained ones by name; `average` is empty without EMA.

    processes: how many share a batch; each draws its own noise, so a run cannot go on with another number.
    """

    stage: str
    config: StageConfig
    parameters: dict[str, nn.Parameter]
    optimizer: torch.optim.Optimizer
    average: dict[str, Tensor]
    step: int = 0
    seconds: float = 0.0
    processes: int = 1


def save_checkpoint(folder: Path, state: RunState) -> Path:
    """Write a checkpoint, and remove all but the last two and what a kill left half written."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{state.step:07d}"
    part = folder / f"{PART}{os.getpid()}-{path.name}"
    tensors = _tensors_of(state)
    staged = StagedFolder(part)
    sizes = {name: value.nbytes for name, value in tensors.items()}
    staged.write_tensors(sizes, lambda name: tensors[name].detach().cpu(), state.config.shard_mb * 2**20)
    staged.commit()
    info = {
        "format": FORMAT,
        "stage": state.stage,
        "step": state.step,
        "seconds": state.seconds,
        "optimizer_steps": _optimizer_steps(state),
        "processes": state.processes,
        "config": dataclasses.asdict(state.config),
    }
    write_json(part / "state.json", info)
    if path.exists():
        shutil.rmtree(path)
    os.replace(part, path)
    for old in (*list_checkpoints(folder)[:-KEPT], *folder.glob(f"{PART}*")):
        shutil.rmtree(old)
    return path


def list_checkpoints(folder: Path) -> list[Path]:
    """Whole checkpoints of a run, oldest first."""
    return sorted(path for path in folder.glob("step-*") if (path / "state.json").is_file())


def load_checkpoint(path: Path, state: RunState) -> None:
    """Put a checkpoint into a run that was just set up; ValueError names the field or tensor that does not fit."""
    info = read_json(path / "state.json")
    if info.get("format") != FORMAT or info.get("stage") != state.stage:
        raise ValueError(f"{path} is of stage {info.get('stage')!r}, not {state.stage!r}; give another folder (--out)")
    stored = {**info["config"], "processes": info.get("processes", state.processes)}
    _check_config(path, stored, {**dataclasses.asdict(state.config), "processes": state.processes})
    source = SafetensorsSource(find_safetensors(path))
    for name, parameter in state.parameters.items():
        _copy(source, f"weight.{name}", parameter)
        if state.average:
            _copy(source, f"average.{name}", state.average[name])
        steps = info["optimizer_steps"].get(name)
        if steps is not None:
            state.optimizer.state[parameter] = _moments(source, name, parameter, steps, state.optimizer)
    state.step, state.seconds = info["step"], info["seconds"]


def write_slimmed(path: Path, folder: Path) -> Path:
    """Copy a checkpoint with its weights as they are, averages as fp16 and moments as bf16; returns `folder`.

    It is five eighths as large. A run that goes on from it differs in the last digits from one that never stopped.
    """
    kinds = {"average": torch.float16, "exp_avg": torch.bfloat16, "exp_avg_sq": torch.bfloat16}
    source = SafetensorsSource(find_safetensors(path))
    types = {name: kinds.get(name.partition(".")[0], torch.float32) for name in source.keys()}  # noqa: SIM118
    sizes = {name: math.prod(source.shape(name)) * kind.itemsize for name, kind in types.items()}
    staged = StagedFolder(folder)
    staged.write_tensors(sizes, lambda name: source.tensor(name).to(types[name]), max(1, sum(sizes.values())))
    staged.commit()
    shutil.copyfile(path / "state.json", folder / "state.json")
    return folder


def _tensors_of(state: RunState) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for name, parameter in state.parameters.items():
        tensors[f"weight.{name}"] = parameter
        if state.average:
            tensors[f"average.{name}"] = state.average[name]
        for moment in ("exp_avg", "exp_avg_sq"):
            value = state.optimizer.state.get(parameter, {}).get(moment)
            if value is not None:
                tensors[f"{moment}.{name}"] = value
    return tensors


def _optimizer_steps(state: RunState) -> dict[str, float]:
    return {
        name: float(state.optimizer.state[parameter]["step"])
        for name, parameter in state.parameters.items()
        if parameter in state.optimizer.state
    }


def _moments(
    source: SafetensorsSource, name: str, parameter: nn.Parameter, steps: float, optimizer: torch.optim.Optimizer
) -> dict[str, Tensor]:
    fused = optimizer.param_groups[0].get("fused")
    moments = {"step": torch.tensor(steps, device=parameter.device if fused else "cpu")}
    for moment in ("exp_avg", "exp_avg_sq"):
        moments[moment] = torch.empty_like(parameter, memory_format=torch.preserve_format)
        _copy(source, f"{moment}.{name}", moments[moment])
    return moments


def _copy(source: SafetensorsSource, name: str, into: Tensor) -> None:
    if name not in source.keys() or source.shape(name) != tuple(into.shape):  # noqa: SIM118  not a mapping
        raise ValueError(f"{source.path}: {name} is missing or not {tuple(into.shape)}; it is of another spec")
    with torch.no_grad():
        into.copy_(source.tensor(name))


def _check_config(path: Path, stored: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    now = json.loads(json.dumps(settings))
    for name, value in now.items():
        if name not in FREE_FIELDS and stored.get(name) != value:
            raise ValueError(
                f"{path} was trained with {name} {stored.get(name)!r}, now it is {value!r}; "
                "continue with the same settings, or in another folder"
            )
