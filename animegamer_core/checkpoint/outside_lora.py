"""LoRA files of other programs for CogVideoX's transformer: the names of their tensors, and what fits a world.

They are safetensors files of diffusers, peft or kohya, as people keep them in ComfyUI's folder `loras`. Only LoRA of
the decoder's linear layers is taken, all of it or none. Importing this module imports no torch.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ..json_files import JsonError, parse_json
from ..messages import brief
from .lora_files import ADAPTER, CONFIG, LoraUpdate, LoraUpdates
from .storage import LONGEST, CheckpointError, SafetensorsSource, finite_extremes, number, read_json

if typing.TYPE_CHECKING:
    from ..spec import ModelSpec

STAGE = "other"  # what facts name as the stage of such a file
# Endings of the names of the two matrices: of peft and newer diffusers, of kohya, of older diffusers.
_PAIRS = (
    (".lora_A.weight", ".lora_B.weight"),
    (".lora_A.default.weight", ".lora_B.default.weight"),
    (".lora_down.weight", ".lora_up.weight"),
    (".lora.down.weight", ".lora.up.weight"),
)
_ALPHA = ".alpha"
_PREFIX = re.compile(r"(?:base_model\.model\.|diffusion_model\.|transformer\.)*")
_FLAT = re.compile(r"lora_(?:unet|transformer)_+(.+)")  # kohya writes the dots of a name as underscores
_BLOCK = ("attn1.to_q", "attn1.to_k", "attn1.to_v", "attn1.to_out.0", "ff.net.0.proj", "ff.net.2")
_BLOCK_LAYERS = (*_BLOCK, "norm1.linear", "norm2.linear")
_LAYERS = ("time_embedding.linear_1", "time_embedding.linear_2", "norm_out.linear", "proj_out")
_DOTTED = {name.replace(".", "_"): name for name in (*_BLOCK_LAYERS, *_LAYERS)}
_NUMBERED = re.compile(r"transformer_blocks[._](\d{1,4})[._](.+)")
_NOTES = "lora_adapter_metadata"  # where newer diffusers keep rank and alpha


@dataclass(frozen=True)
class _Tensors:
    """The names of one layer's tensors in a file; alpha is empty if there is none."""

    down: str = ""
    up: str = ""
    alpha: str = ""


def is_outside(path: Path) -> bool:
    """Whether a safetensors file is of another program and has LoRA; ValueError if it cannot be read."""
    if not path.is_file():
        return False
    stat = path.stat()
    return _is_outside(path, stat.st_mtime_ns, stat.st_size)


def fits_decoder(path: Path) -> bool:
    """Whether all tensors of a file are LoRA of CogVideoX's transformer, by their names; False if it is unreadable."""
    try:
        return is_outside(path) and bool(_layers(path, SafetensorsSource(path).keys()))
    except (ValueError, OSError):
        return False


def check_outside(path: Path, spec: ModelSpec) -> None:
    """CheckpointError that names the first tensor of a file that does not fit the decoder of a spec."""
    source, shapes = SafetensorsSource(path), _linear_shapes(spec)
    for layer, names in _layers(path, source.keys()).items():
        down, up = source.shape(names.down), source.shape(names.up)
        if layer not in shapes:
            raise _unfit(path, names.down, f"this world's transformer has no layer {layer!r}")
        found = (*up[:1], *down[1:])
        if len(down) != 2 or len(up) != 2 or down[0] != up[1] or not down[0] or found != shapes[layer]:
            raise _unfit(path, names.down, f"it has shapes {down} and {up} for a layer of {shapes[layer]}")


def read_outside(path: Path) -> LoraUpdates:
    """Layer of the transformer -> its LoRA. CheckpointError as for `check_outside`, but for shapes, and for NaN."""
    source, scales = SafetensorsSource(path), _Scales(path)
    found = {}
    for layer, names in _layers(path, source.keys()).items():
        down, up = source.tensor(names.down), source.tensor(names.up)
        for key in filter(None, (names.down, names.up, names.alpha)):
            finite_extremes(source.tensor(key), f"{path}: {key!r}")
        alpha = source.tensor(names.alpha).float().sum().item() if names.alpha else None
        found[layer] = LoraUpdate(down, up, scales.of(layer, len(down), alpha))
    return found


class _Scales:
    """What the product of two matrices is multiplied by: alpha / rank; 1 where a file states no alpha."""

    def __init__(self, path: Path) -> None:
        self.path, self.config = path, _config_of(path)

    def of(self, layer: str, rank: int, alpha: float | None) -> float:
        """alpha: of the layer's own tensor; None: as the file states for all layers."""
        if alpha is None:
            patterns = self.config.get("alpha_pattern")
            own = patterns if isinstance(patterns, dict) else {}
            key = next((key for key in own if layer == key or layer.endswith(f".{key}")), "lora_alpha")
            alpha = number({**self.config, **own}, key, self.path, rank)
        return alpha / (rank**0.5 if self.config.get("use_rslora") else rank)


def _config_of(path: Path) -> Mapping[str, typing.Any]:
    """The settings that diffusers writes into a file, or peft next to it; empty without either."""
    if path.name == ADAPTER and path.with_name(CONFIG).is_file():
        return read_json(path.with_name(CONFIG))
    try:
        notes = parse_json(_header(path)[0].get(_NOTES, "{}"), dict[str, typing.Any], _NOTES)
    except JsonError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return {name.removeprefix("transformer."): value for name, value in notes.items()}


def _header(path: Path) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """(metadata, names of the tensors)"""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}, tuple(file.keys())
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read ({brief(error)}); it may be cut off, so copy it again") from error


@lru_cache(maxsize=4096)
def _is_outside(path: Path, _changed: int, _size: int) -> bool:
    notes, names = _header(path)
    return "stage" not in notes and any("lora" in name for name in names)  # ours state their stage


def _layers(path: Path, keys: typing.Iterable[str]) -> dict[str, _Tensors]:
    """Layer -> the names of its tensors; CheckpointError names the first one that is not a LoRA for the transformer."""
    found: dict[str, dict[str, str]] = {}
    for key in keys:
        layer, kind = _layer_of(key)
        if layer is None:
            raise _unfit(path, key, "it is not a LoRA for a linear layer of CogVideoX's transformer")
        found.setdefault(layer, {})[kind] = key
    layers = {layer: _Tensors(**names) for layer, names in found.items()}
    for names in layers.values():
        if not (names.down and names.up):
            raise _unfit(path, names.down or names.up or names.alpha, "the other matrix of its layer is missing")
    return layers


def _layer_of(key: str) -> tuple[str | None, str]:
    """(layer of the transformer, or None; which of its tensors: down, up or alpha)."""
    endings = [(ending, kind) for pair in _PAIRS for ending, kind in zip(pair, ("down", "up"), strict=True)]
    for ending, kind in (*endings, (_ALPHA, "alpha")):
        if key.endswith(ending):
            return _transformer_layer(key.removesuffix(ending)), kind
    return None, ""


def _transformer_layer(name: str) -> str | None:
    flat = _FLAT.fullmatch(name)
    plain = flat[1] if flat else _PREFIX.sub("", name, count=1)
    block = _NUMBERED.fullmatch(plain)
    table = _DOTTED if flat else {own: own for own in _DOTTED.values()}
    layer = table.get(block[2] if block else plain)
    if layer is None or (layer in _BLOCK_LAYERS) != (block is not None):
        return None
    return f"transformer_blocks.{int(block[1])}.{layer}" if block else layer


def _unfit(path: Path, key: str, why: str) -> CheckpointError:
    return CheckpointError(
        f"{path}: {brief(key, LONGEST)!r} does not fit: {why}; choose a LoRA file that was trained on the decoder's "
        "base model (CogVideoX-2B for published worlds)"
    )


@lru_cache(maxsize=8)
def _linear_shapes(spec: ModelSpec) -> Mapping[str, tuple[int, ...]]:
    """Linear layer of the decoder's transformer -> the shape of its weight."""
    import torch

    from ..model.decoder import ShotDecoder

    with torch.device("meta"):
        modules = ShotDecoder(spec).transformer.named_modules()
    return {name: tuple(part.weight.shape) for name, part in modules if isinstance(part, torch.nn.Linear)}
