"""Which parameters train: whole modules by name, and low-rank updates (peft) of linear layers by name.

A stage file holds what a stage trained, as safetensors with the names of a world's parts in front (`decoder.`, ...).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..files import replacing
from .stages import StageConfig, matching

ADAPTER = "default"
FORMAT = 1


def set_trainable(learner: nn.Module, config: StageConfig) -> tuple[str, ...]:
    """Freeze everything but what the configuration names, add its low-rank updates, and return the trained names.

    ValueError for a pattern that fits nothing: the configuration belongs to another model.
    """
    learner.requires_grad_(False)
    if config.lora_rank:
        _add_updates(learner, config)
    whole = set(matching(config.trainable, _plain_names(learner)))
    for pattern in config.trainable:
        if not matching((pattern,), whole):
            raise ValueError(f"trainable pattern {pattern!r} fits no parameter of this stage")
    trained = []
    for name, parameter in learner.named_parameters():
        parameter.requires_grad_(name in whole or is_update(name))
        if parameter.requires_grad:
            trained.append(name)
    return tuple(trained)


def is_update(name: str) -> bool:
    """Whether a parameter belongs to a low-rank update."""
    return ".lora_A." in name or ".lora_B." in name


def _plain_names(learner: nn.Module) -> list[str]:
    """Parameters that are neither updates nor the matrices that updates lie on."""
    return [name for name, _ in learner.named_parameters() if not is_update(name) and ".base_layer." not in name]


def _add_updates(learner: nn.Module, config: StageConfig) -> None:
    from peft import LoraConfig, inject_adapter_in_model

    linears = [name for name, module in learner.named_modules() if isinstance(module, nn.Linear)]
    targets = matching(config.lora_targets, linears)
    if not targets:
        raise ValueError(
            f"no linear layer is named like {' or '.join(config.lora_targets)}; low-rank updates need some"
        )
    lora = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules="|".join(re.escape(name) for name in targets),
    )
    inject_adapter_in_model(lora, learner, adapter_name=ADAPTER)


def take_off_updates(learner: nn.Module, merge: bool) -> None:
    """Make the model a plain one again: every low-rank update is added to its matrix, or dropped."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = [(name, module) for name, module in learner.named_modules() if isinstance(module, BaseTunerLayer)]
    for name, layer in layers:
        if merge:
            layer.merge(safe_merge=False)
        parent, _, child = name.rpartition(".")
        setattr(learner.get_submodule(parent), child, layer.get_base_layer())


def save_stage_file(path: Path, stage: str, config: StageConfig, tensors: Mapping[str, Tensor], about: Any) -> None:
    """Write what a stage trained; the file's metadata says which stage, with which settings, of which spec."""
    from safetensors.torch import save_file

    notes = {"format": str(FORMAT), "stage": stage, "config": json.dumps(asdict(config)), "about": json.dumps(about)}
    with replacing(path) as part:
        save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, part, metadata=notes)


def read_stage_file(path: Path) -> tuple[str, StageConfig, dict[str, Tensor]]:
    """(stage, configuration, tensors) of a stage file; ValueError names what is wrong with it."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            notes = file.metadata() or {}
            if notes.get("format") != str(FORMAT):
                raise ValueError(f"{path} is no stage file of format {FORMAT}; train the stage again")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a mapping
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} cannot be read ({error}); it may be cut off, so copy it again") from error
    values = {
        name: tuple(value) if isinstance(value, list) else value for name, value in json.loads(notes["config"]).items()
    }
    return notes["stage"], StageConfig(**values), tensors


class _Modules(nn.Module):
    """Parts under the names that stage files use."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)


def apply_stage_file(path: Path, modules: Mapping[str, nn.Module]) -> str:
    """Put a stage file's weights into the parts `encoder`, `decoder`, `engine` that it names; returns its stage.

    Low-rank updates are merged. ValueError names the first tensor that the parts lack, or whose shape differs.
    """
    stage, config, tensors = read_stage_file(path)
    wanted = {name.partition(".")[0] for name in tensors} - {"heads"}
    missing = wanted - set(modules)
    if missing:
        raise ValueError(f"{path} trains the {missing.pop()}, which was not given; it fits {', '.join(sorted(wanted))}")
    holder = _Modules({name: modules[name] for name in sorted(wanted)})
    if config.lora_rank:
        _add_updates(holder, config)
    places = dict(holder.named_parameters())
    places.update(holder.named_buffers())
    for name, value in tensors.items():
        if name.startswith("heads."):
            continue
        if name not in places or places[name].shape != value.shape:
            found = tuple(places[name].shape) if name in places else "nothing"
            raise ValueError(f"{path}: {name} is {tuple(value.shape)}, this world has {found}; it is of another spec")
        with torch.no_grad():
            places[name].copy_(value)
    take_off_updates(holder, merge=True)
    return stage
