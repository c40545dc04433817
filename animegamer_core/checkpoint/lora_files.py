"""LoRA of linear layers: what one layer's is, the names of its tensors, and the file of a part's in its folder.

The file is as peft keeps an adapter: adapter_model.safetensors with adapter_config.json. Importing this module imports
no torch. R rank.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .storage import CheckpointError, FolderWriter, SafetensorsSource, finite_extremes, number, read_json

if typing.TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

ADAPTER, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_KEYS = ("base_model.model.{}.lora_A.weight", "base_model.model.{}.lora_B.weight")  # base_model: peft's wrapper
_KEY = re.compile(r"base_model\.model\.(.+)\.lora_[AB]\.weight")
_LORA = re.compile(r"\.lora_[AB]\.")


@dataclass(frozen=True)
class LoraUpdate:
    """The LoRA of one layer: W + scale * up @ down. down: (R, inputs). up: (outputs, R)."""

    down: Tensor
    up: Tensor
    scale: float = 1.0

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the weight that it updates."""
        return self.up.shape[0], self.down.shape[1]

    def delta(self, device: torch.device | str = "cpu") -> Tensor:
        """(outputs, inputs) fp32: the update that it adds to the weight."""
        return self.scale * (self.up.to(device).float() @ self.down.to(device).float())


LoraUpdates = Mapping[str, LoraUpdate]  # name of a linear layer -> its LoRA


def is_lora(name: str) -> bool:
    """Whether a parameter of that name belongs to a LoRA."""
    return _LORA.search(name) is not None


def plain_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The model's parameters and stored buffers without LoRA, by the names that they have in a model without LoRA."""
    state = model.state_dict(keep_vars=True)
    return {name.replace(".base_layer.", "."): value for name, value in state.items() if not is_lora(name)}


def write_lora(writer: FolderWriter, updates: LoraUpdates) -> None:
    """Write a part's LoRA to its own file; the numbers keep their type."""
    from safetensors.torch import save_file

    if not updates:
        return
    tensors = {}
    for name, update in updates.items():
        for key, value in zip(_KEYS, (update.down, update.up), strict=True):
            tensors[key.format(name)] = value.detach().cpu().contiguous()
    writer.write_file(ADAPTER, lambda path: save_file(tensors, path, metadata={"format": "pt"}))
    writer.write_json(CONFIG, _config(updates))


def _config(updates: LoraUpdates) -> dict[str, typing.Any]:
    """The settings that peft needs to load the file; layers that differ from the first one are listed in patterns."""
    ranks = {name: len(update.down) for name, update in updates.items()}
    alphas = {name: update.scale * len(update.down) for name, update in updates.items()}
    rank, alpha = next(iter(ranks.values())), next(iter(alphas.values()))
    return {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": alpha,
        "target_modules": sorted(updates),
        "rank_pattern": {name: own for name, own in ranks.items() if own != rank},
        "alpha_pattern": {name: own for name, own in alphas.items() if own != alpha},
        "bias": "none",
    }


def read_lora(folder: Path) -> LoraUpdates:
    """The LoRA in a part's folder; CheckpointError where lora_A or lora_B is missing, or their shapes do not fit."""
    source, config = SafetensorsSource(folder / ADAPTER), read_json(folder / CONFIG)
    alphas = config.get("alpha_pattern", {})
    if not isinstance(alphas, dict):
        raise CheckpointError(f"{folder / CONFIG}: alpha_pattern is not an object of layer names and numbers")
    keys, found = set(source.keys()), {}
    for name in dict.fromkeys(match[1] if (match := _KEY.fullmatch(key)) else key for key in keys):
        down_key, up_key = (key.format(name) for key in _KEYS)
        if not {down_key, up_key} <= keys:
            raise CheckpointError(f"{source.path}: {name!r} has only one of lora_A and lora_B; expected both")
        down, up = source.tensor(down_key), source.tensor(up_key)
        for key, tensor in ((down_key, down), (up_key, up)):
            finite_extremes(tensor, f"{source.path}: {key!r}")
        if down.dim() != 2 or up.dim() != 2 or not 0 < len(down) == up.shape[1]:
            raise CheckpointError(
                f"{source.path}: lora_A and lora_B of {name!r} have shapes {tuple(down.shape)} and {tuple(up.shape)}; "
                "expected (rank, inputs) and (outputs, rank)"
            )
        alpha = number(alphas, name, folder / CONFIG, number(config, "lora_alpha", folder / CONFIG, 0))
        found[name] = LoraUpdate(down, up, alpha / len(down))
    return found
