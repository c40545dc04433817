"""Which parameters train: whole modules by name, and low-rank updates (peft) of linear layers by name.

A stage file holds what a stage trained, as safetensors with the names of a world's parts in front (`decoder.`, ...).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoint.lora import (
    LowRank,
    attach,
    detach,
    free_name,
    inject,
    is_lora,
    linear_layers,
    note_changed,
    plain_tensors,
    set_strength,
    updates_of,
    weaken,
)
from ..files import replacing
from .material import forget_names
from .stages import BASELINE_STAGES, StageConfig, check_there, matching

ADAPTER = "default"
FORMAT = 1


def set_trainable(learner: nn.Module, config: StageConfig) -> tuple[str, ...]:
    """Freeze everything but what the configuration names, add its low-rank updates, and return the trained names.

    ValueError as `check_trainable` says.
    """
    check_trainable(learner, config)
    learner.requires_grad_(False)
    if config.lora_rank:
        _add_updates(learner, config)
    whole = set(matching(config.trainable, _plain_names(learner)))
    trained = []
    for name, parameter in learner.named_parameters():
        parameter.requires_grad_(name in whole or is_update(name))
        if parameter.requires_grad:
            trained.append(name)
    return tuple(trained)


def check_trainable(learner: nn.Module, config: StageConfig) -> None:
    """ValueError for a pattern that fits nothing, as it belongs to another model, and where nothing would train."""
    targets = set(_targets(learner, config)) if config.lora_rank else ()
    names = [name for name in _plain_names(learner) if name.rpartition(".")[0] not in targets]  # those get updates only
    for pattern in config.trainable:
        if not matching((pattern,), names):
            raise ValueError(f"trainable pattern {pattern!r} fits no parameter of this stage")
    if config.lora_rank and not targets:
        raise ValueError(
            f"no linear layer is named like {' or '.join(config.lora_targets)}; low-rank updates need some"
        )
    if not config.trainable and not config.lora_rank:
        raise ValueError("nothing would train: lora_rank is 0 and trainable names no parameter; set one of them")


def _targets(learner: nn.Module, config: StageConfig) -> tuple[str, ...]:
    """The linear layers that take low-rank updates."""
    return matching(config.lora_targets, linear_layers(learner))


def is_update(name: str) -> bool:
    """Whether a parameter belongs to the low-rank updates that a stage trains, not to those that it begins with."""
    return is_lora(name) and f".{ADAPTER}." in name


def _plain_names(learner: nn.Module) -> list[str]:
    """Parameters that are neither updates nor the matrices that updates lie on."""
    return [name for name, _ in learner.named_parameters() if not is_lora(name) and ".base_layer." not in name]


def _add_updates(learner: nn.Module, config: StageConfig) -> None:
    ranks = dict.fromkeys(_targets(learner, config), config.lora_rank)
    inject(learner, ranks, ADAPTER, lora_alpha=config.lora_alpha, lora_dropout=config.lora_dropout)


def drop_updates(learner: nn.Module) -> None:
    """Take the low-rank updates that a stage trains off its model again."""
    detach(learner, ADAPTER)


def keep_updates(learner: nn.Module) -> None:
    """Leave the low-rank updates that a stage trained with its model: in float32 weights, or else beside them."""
    updates = updates_of(learner, ADAPTER)
    detach(learner, ADAPTER)
    attach(learner, updates, free_name(learner))


@contextmanager
def updates_off(learner: nn.Module) -> Iterator[None]:
    """Inside, the model computes as if the low-rank updates that its stage trains were not there."""
    set_strength(learner, ADAPTER, 0.0)
    try:
        yield
    finally:
        set_strength(learner, ADAPTER, 1.0)


def save_stage_file(
    path: Path,
    stage: str,
    config: StageConfig,
    tensors: Mapping[str, Tensor],
    about: Any,
    stated: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write what a stage trained; the file's metadata says which stage, with which settings, of which spec.

    stated: how it is to be played, as `staged.TrainedFile` reads it: `reading` and `motion`.
    """
    from safetensors.torch import save_file

    notes = {"format": str(FORMAT), "stage": stage, "config": json.dumps(asdict(config)), "about": json.dumps(about)}
    notes |= {name: json.dumps(value) for name, value in stated.items()}
    with replacing(path) as part:
        save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, part, metadata=notes)


def trained_by(path: Path, baseline: bool = False) -> frozenset[str]:
    """Of `encoder`, `decoder`, `engine`, what a stage file changes; its tensors stay unread.

    baseline: whether a baseline is to get it, and no world. ValueError as for `read_stage_file`, and for a file that
    is the other's.
    """
    with _opened(path) as file:
        stage, names = file.metadata().get("stage", ""), file.keys()
    if baseline and stage not in BASELINE_STAGES:
        raise ValueError(
            f"{path} is of stage {stage}, a world's and no baseline's; give one of stage {' or '.join(BASELINE_STAGES)}"
        )
    if not baseline and stage in BASELINE_STAGES:
        raise ValueError(
            f"{path} is of stage {stage}, a baseline's and no world's; give it to evaluate --baseline-lora"
        )
    return frozenset(name.partition(".")[0] for name in names) - {"heads"}


def stated_in(path: Path) -> dict[str, str]:
    """A stage file's metadata; ValueError as for `read_stage_file`."""
    with _opened(path) as file:
        return dict(file.metadata())


def tensor_names(path: Path) -> tuple[str, ...]:
    """The names of a stage file's tensors, which stay unread; ValueError as for `read_stage_file`."""
    with _opened(path) as file:
        return tuple(file.keys())


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A stage file's header, and its tensors for those who ask."""
    from safetensors import SafetensorError, safe_open

    check_there(path)
    try:
        with safe_open(path, framework="pt") as file:
            if (file.metadata() or {}).get("format") != str(FORMAT):
                raise ValueError(f"{path} is no stage file of format {FORMAT}; train the stage again")
            yield file
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} cannot be read ({error}); it may be cut off, so copy it again") from error


def read_stage_file(path: Path) -> tuple[str, StageConfig, dict[str, Tensor]]:
    """(stage, configuration, tensors) of a stage file; ValueError names what is wrong with it."""
    with _opened(path) as file:
        notes, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    try:
        return notes["stage"], _config_of(json.loads(notes["config"])), tensors
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: its notes on stage and settings cannot be read ({error}); a newer program may have written it"
        ) from error


def _config_of(values: Mapping[str, Any]) -> StageConfig:
    """Settings as json keeps them."""
    return StageConfig(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


class _Modules(nn.Module):
    """Parts under the names that stage files use."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)


@torch.no_grad()
def apply_stage_file(path: Path, modules: Mapping[str, nn.Module], strength: float = 1.0, whole: bool = True) -> str:
    """Put a stage file's weights into the parts `encoder`, `decoder`, `engine` that it names; returns its stage.

    strength: the share of what the stage changed; 0 leaves the weights as they are, 1 gives the trained ones, others
    lie on the straight line through both. Low-rank updates are added to float32 weights, and lie beside others. whole:
    every part that the file trained has to be given; off, each may get its share in a call of its own. ValueError names
    the first tensor that the parts lack, or whose shape differs.
    """
    stage, config, tensors = read_stage_file(path)
    wanted = {name.partition(".")[0] for name in tensors} - {"heads"}
    missing = wanted - set(modules)
    if missing and whole:
        raise ValueError(f"{path} trains the {missing.pop()}, which was not given; it fits {', '.join(sorted(wanted))}")
    given = {name: modules[name] for name in sorted(wanted - missing)}
    holder = _Modules(given)
    places = plain_tensors(holder)
    theirs = {name: value for name, value in tensors.items() if name.partition(".")[0] in given}
    changes = _changes(path, theirs, places, config.lora_rank)
    updates = {}
    for name, change in changes.items():
        if isinstance(change, Tensor):
            place, trained = places[name], change.to(places[name].device, torch.float32)
            place.copy_(trained if strength == 1 else torch.lerp(place.float(), trained, strength))
            if name.endswith(".weight"):
                weaken(holder.get_submodule(name.removesuffix(".weight")), 1 - strength)
        else:
            updates[name.removesuffix(".weight")] = LowRank(*change, config.lora_alpha / config.lora_rank)
    attach(holder, updates, free_name(holder), strength)
    for kind, model in given.items():
        note_changed(model, (name.removeprefix(f"{kind}.") for name in changes if name.startswith(f"{kind}.")))
    forget_names(holder, changes)
    _follow_scale(path, tensors, given, strength)
    return stage


_Change = Tensor | tuple[Tensor, Tensor]  # a tensor's new value, or the two halves of a low-rank update of it


def _changes(path: Path, tensors: Mapping[str, Tensor], places: Mapping[str, Tensor], rank: int) -> dict[str, _Change]:
    """Tensor name -> its change; ValueError for a tensor that has no place, another shape, or no half of its rank."""
    changes: dict[str, _Change] = {}
    for name, value in tensors.items():
        if ".lora_B." in name:
            continue
        layer, is_low_rank, rest = name.partition(".lora_A.")
        up = tensors.get(f"{layer}.lora_B.{rest}")
        halves = up is not None and value.dim() == up.dim() == 2 and 0 < rank == len(value) == up.shape[1]
        if is_low_rank and not halves:
            raise ValueError(f"{path}: {name} has no lora_B of rank {rank} beside it; train the stage again")
        target = f"{layer}.weight" if is_low_rank else name
        shape = (len(up), value.shape[1]) if is_low_rank else tuple(value.shape)
        found = tuple(places[target].shape) if target in places else "nothing"
        if found != shape:
            raise ValueError(f"{path}: {name} is for {shape}, this world has {found}; it is of another spec")
        changes[target] = (value, up) if is_low_rank else value
    return changes


def _follow_scale(path: Path, tensors: Mapping[str, Tensor], modules: Mapping[str, nn.Module], strength: float) -> None:
    """A VAE whose encoder was trained scales its latents anew, and `decoder` with it."""
    from safetensors import safe_open

    if "decoder" not in modules or not any(name.startswith("decoder.vae.encoder.") for name in tensors):
        return
    with safe_open(path, framework="pt") as file:
        spec = json.loads(file.metadata()["about"])
    vae, trained = modules["decoder"].vae, spec["decoder"]["vae"]["scaling_factor"]
    base = vae.config.scaling_factor
    vae.register_to_config(scaling_factor=base + strength * (trained - base))
