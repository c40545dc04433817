"""The low-rank updates of a part in its folder, as peft keeps an adapter: adapter_model.safetensors and its config."""

from __future__ import annotations

import typing
from pathlib import Path

from .lora import LowRank, LowRanks
from .sizes import number
from .storage import CheckpointError, SafetensorsSource, StagedFolder, read_json

ADAPTER, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_PREFIX = "base_model.model."  # peft's own wrapper around a model
_HALVES = (".lora_A.weight", ".lora_B.weight")


def stage_lora(staged: StagedFolder, updates: LowRanks) -> None:
    """Stage a part's updates beside its weights; the numbers keep their type."""
    from safetensors.torch import save_file

    if not updates:
        return
    tensors = {}
    for name, update in updates.items():
        for half, value in zip(_HALVES, (update.down, update.up), strict=True):
            tensors[f"{_PREFIX}{name}{half}"] = value.detach().cpu().contiguous()
    staged.write_file(ADAPTER, lambda path: save_file(tensors, path, metadata={"format": "pt"}))
    staged.write_json(CONFIG, _config(updates))


def _config(updates: LowRanks) -> dict[str, typing.Any]:
    """What peft needs to put the updates on a model; the first layer's numbers stand for those that share them."""
    first = next(iter(updates.values()))
    rank, alpha = len(first.down), first.scale * len(first.down)
    own = {name: (len(update.down), update.scale * len(update.down)) for name, update in updates.items()}
    return {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": alpha,
        "target_modules": sorted(updates),
        "rank_pattern": {name: its[0] for name, its in own.items() if its[0] != rank},
        "alpha_pattern": {name: its[1] for name, its in own.items() if its[1] != alpha},
        "bias": "none",
    }


def read_lora(folder: Path) -> LowRanks:
    """The updates in a part's folder; CheckpointError where a half is missing, or both do not multiply."""
    source, config = SafetensorsSource(folder / ADAPTER), read_json(folder / CONFIG)
    alphas = config.get("alpha_pattern", {})
    if not isinstance(alphas, dict):
        raise CheckpointError(f"{folder / CONFIG}: alpha_pattern is no object of layer to number")
    keys, found = set(source.keys()), {}
    for name in dict.fromkeys(key.removeprefix(_PREFIX).removesuffix(half) for key in keys for half in _HALVES):
        down_key, up_key = (f"{_PREFIX}{name}{half}" for half in _HALVES)
        if name.endswith(_HALVES):  # a key seen through the other half's ending
            continue
        if not {down_key, up_key} <= keys:
            raise CheckpointError(f"{source.path}: {name!r} has one half of a low-rank update; expected A and B")
        down, up = source.tensor(down_key), source.tensor(up_key)
        if down.dim() != 2 or up.dim() != 2 or not 0 < len(down) == up.shape[1]:
            raise CheckpointError(
                f"{source.path}: the halves of {name!r} have shapes {tuple(down.shape)} and {tuple(up.shape)}; "
                "expected (rank, inputs) and (outputs, rank)"
            )
        alpha = number(alphas, name, folder / CONFIG, number(config, "lora_alpha", folder / CONFIG, 0))
        found[name] = LowRank(down, up, alpha / len(down))
    return found
