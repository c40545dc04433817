"""Put an adapter file's tensors into loaded models. R rank."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from ..json_files import parse_json, to_type
from ..spec import ModelSpec
from .adapter_files import read_settings, read_tensors, unreadable_settings
from .lora import attach, check_fit, free_name, note_changed, weaken
from .lora_files import LoraUpdate, plain_tensors
from .outside_lora import STAGE, is_outside, read_outside

_Change = Tensor | tuple[Tensor, Tensor]  # a tensor's new value, or (lora_A, lora_B)


class _Lora(msgspec.Struct):
    """The settings of an adapter file that its tensors are put in by."""

    lora_rank: int = 0
    lora_alpha: float = 1.0


@torch.no_grad()
def apply_adapter(path: Path, modules: Mapping[str, nn.Module], strength: float = 1.0, whole: bool = True) -> str:
    """Put an adapter file's weights into the models `encoder`, `decoder`, `engine` that it names; returns its stage.

    strength: 0 leaves the weights as they are, 1 gives the trained ones, others interpolate or extrapolate. LoRA is
    merged into float32 weights, and stays unmerged for narrower ones. whole: all models that the file trained must be
    given; False allows to apply it model by model. ValueError names the first tensor that the models lack, or whose
    shape differs.
    """
    if is_outside(path):
        return _apply_outside(path, modules, strength)
    notes, tensors = read_tensors(path)
    stage, rank, alpha = _lora_settings(path, notes)
    wanted = {name.partition(".")[0] for name in tensors} - {"heads"}
    missing = wanted - set(modules)
    if missing and whole:
        raise ValueError(f"{path} trains the {missing.pop()}, which was not given; it fits {', '.join(sorted(wanted))}")
    given = {name: modules[name] for name in sorted(wanted - missing)}
    models = nn.Module()
    for name, model in given.items():
        models.add_module(name, model)
    parameters = plain_tensors(models)
    ours = {name: value for name, value in tensors.items() if name.partition(".")[0] in given}
    changes = _changes(path, ours, parameters, rank)
    updates = {}
    for name, change in changes.items():
        if isinstance(change, Tensor):
            parameter, trained = parameters[name], change.to(parameters[name].device, torch.float32)
            parameter.copy_(trained if strength == 1 else torch.lerp(parameter.float(), trained, strength))
            if name.endswith(".weight"):
                weaken(models.get_submodule(name.removesuffix(".weight")), 1 - strength)
        else:
            updates[name.removesuffix(".weight")] = LoraUpdate(*change, alpha / rank)
    attach(models, updates, free_name(models), strength)
    for kind, model in given.items():
        note_changed(model, (name.removeprefix(f"{kind}.") for name in changes if name.startswith(f"{kind}.")))
    if "decoder" in given and any(name.startswith("decoder.vae.encoder.") for name in tensors):
        # latents of a newly trained encoder have another scale
        vae, trained = given["decoder"].vae, _scaling_factor(path, notes)
        before = vae.config.scaling_factor
        vae.register_to_config(scaling_factor=before + strength * (trained - before))
    return stage


def _apply_outside(path: Path, modules: Mapping[str, nn.Module], strength: float) -> str:
    """Put another program's LoRA onto the decoder, if it is given."""
    if decoder := modules.get("decoder"):
        updates = {f"transformer.{layer}": update for layer, update in read_outside(path).items()}
        check_fit(decoder, updates, path)
        attach(decoder, updates, free_name(decoder), strength)
        note_changed(decoder, (f"{name}.weight" for name in updates))
    return STAGE


def _scaling_factor(path: Path, notes: Mapping[str, str]) -> float:
    """The scale of the latents of the VAE that the file's stage trained."""
    try:
        values = parse_json(notes.get("about", ""), dict[str, Any], "about")
        return ModelSpec.from_dict(values).decoder.vae.scaling_factor
    except ValueError as error:
        raise unreadable_settings(path, error) from error


def _lora_settings(path: Path, notes: Mapping[str, str]) -> tuple[str, int, float]:
    """(stage, rank, alpha) of an adapter file."""
    stage, settings = read_settings(path, notes)
    try:
        found = to_type(settings, _Lora, "config")
    except ValueError as error:
        raise unreadable_settings(path, error) from error
    return stage, found.lora_rank, found.lora_alpha


def _changes(path: Path, tensors: Mapping[str, Tensor], parameters: Mapping[str, Any], rank: int) -> dict[str, _Change]:
    """Tensor name -> its change; ValueError for a tensor that the models lack, of another shape, or of another rank."""
    changes: dict[str, _Change] = {}
    for name, value in tensors.items():
        if ".lora_B." in name:
            continue
        layer, is_low_rank, rest = name.partition(".lora_A.")
        up = tensors.get(f"{layer}.lora_B.{rest}")
        fits = up is not None and value.dim() == up.dim() == 2 and 0 < rank == len(value) == up.shape[1]
        if is_low_rank and not fits:
            raise ValueError(f"{path}: {name} has no matching lora_B of rank {rank}; train the stage again")
        target = f"{layer}.weight" if is_low_rank else name
        shape = (len(up), value.shape[1]) if is_low_rank else tuple(value.shape)
        found = tuple(parameters[target].shape) if target in parameters else "nothing"
        if found != shape:
            raise ValueError(
                f"{path}: {name} is for shape {shape}, this world has {found}; the file is for another spec"
            )
        changes[target] = (value, up) if is_low_rank else value
    return changes
