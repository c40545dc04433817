"""The parts of a world: which tensors of which model are in which folder; load and write them.

Tensors have the model's own names, less the part's prefix where the part is one stock model (so vae/ and the text and
image encoders have diffusers' and transformers' names).
"""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..json_files import parse_json
from .storage import LONGEST, CheckpointError, SafetensorsSource, TensorSource, finite_extremes, in_8_bits

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


_KEYS, _SCALES = ("{}.lora_A.weight", "{}.lora_B.weight"), "scales"
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


def lora_file(updates: LoraUpdates) -> tuple[dict[str, Tensor], dict[str, str]]:
    """(tensors, metadata) of the file that holds a part's LoRA; the numbers keep their type."""
    tensors = {}
    for name, update in updates.items():
        for key, value in zip(_KEYS, (update.down, update.up), strict=True):
            tensors[key.format(name)] = value.detach().cpu().contiguous()
    return tensors, {_SCALES: json.dumps({name: update.scale for name, update in updates.items()})}


def read_lora(path: Path) -> LoraUpdates:
    """The LoRA in the file of a part; ValueError where it is damaged."""
    source = SafetensorsSource(path)
    scales = parse_json(source.metadata.get(_SCALES, ""), dict[str, float], f"{path}: {_SCALES}")
    keys = {name: [key.format(name) for key in _KEYS] for name in scales}
    return {name: LoraUpdate(source.tensor(down), source.tensor(up), scales[name]) for name, (down, up) in keys.items()}


def empty_parameters() -> AbstractContextManager[None]:
    """Within it, new parameters are on the meta device; buffers keep their memory, since many are computed."""
    from accelerate import init_empty_weights

    return init_empty_weights(include_buffers=False)


Module = typing.TypeVar("Module", bound="nn.Module")


@dataclass(frozen=True)
class Part:
    """One part: its folder, its model, the prefix of its tensor names, and the published files it is made from."""

    folder: str
    model: str  # engine, decoder or encoder
    prefix: str  # removed in the file; "" for all tensors that no other part of the model has
    source: str


PARTS: dict[str, Part] = {
    "engine": Part("engine", "engine", "", "MLLM-*/pytorch_model.bin and the Mistral-7B-Instruct-v0.1 folder"),
    "decoder": Part("decoder", "decoder", "", "VDM_Decoder-*/"),
    "vae": Part("vae", "decoder", "vae.", "3d-vae.pt, or the vae/ folder of CogVideoX-2b"),
    "encoder": Part("encoder", "encoder", "", "VDM_Decoder-*/"),
    "text_tower": Part("encoder/text_tower", "encoder", "text_tower.", "the t5-v1_1-xxl/ folder"),
    "image_tower": Part("encoder/image_tower", "encoder", "image_tower.", "the CLIP-ViT-B-16-laion2B/ folder"),
}
PLAY_PARTS = ("engine", "decoder", "vae")
ENCODER_PARTS = ("encoder", "text_tower", "image_tower")

# transformers 4 puts CLIP's tensors below `vision_model.`, transformers 5 does not; files hold the shorter names
_OPTIONAL = ("image_tower.vision_model.", "image_tower.")
# one tensor under two names is stored once
_ALIASES = {"text_tower.encoder.embed_tokens.weight": "text_tower.shared.weight"}


def parts_of_model(model: str) -> tuple[str, ...]:
    """The parts that one model is stored in."""
    return tuple(name for name, part in PARTS.items() if part.model == model)


def part_names(model: str, part: str, names: typing.Iterable[str]) -> dict[str, str]:
    """Name in the part's file -> name in the model, for those of the model's `names` that the part holds."""
    claimed = {PARTS[other].prefix for other in parts_of_model(model)} - {""}
    found = {}
    for name in names:
        if name in _ALIASES:
            continue
        prefix = next((prefix for prefix in claimed if name.startswith(prefix)), "")
        if prefix == PARTS[part].prefix:
            found[name.replace(*_OPTIONAL, 1)[len(prefix) :]] = name
    return found


def build_model(build: Callable[[], Module]) -> Module:
    """What `build` returns, with parameters on the meta device; buffers have memory, since many are computed."""
    with empty_parameters():
        return build()


def load_model(
    build: Callable[[], Module],
    sources: Mapping[str, TensorSource],
    device: str | torch.device,
    dtype: torch.dtype | None,
) -> Module:
    """A model from `build`, with the tensors of these parts; names and shapes must match exactly.

    Parameters have no memory of their own before, so host memory holds one copy at most.
    dtype None: as stored, float32 as the source's half. Parts of the model without a source stay on the meta device.
    """
    import torch

    (model,) = check_parts(sources, lambda _: build()).values()
    target = torch.device(device)
    state = model.state_dict()
    for part, source in sources.items():
        for name, full in part_names(PARTS[part].model, part, state).items():
            state[full] = _placed(source, name, target, dtype)
    for alias, full in _ALIASES.items():
        if alias in state:
            state[alias] = state[full]
    model.load_state_dict(state, strict=True, assign=True)
    _finish(model, target)
    return model.eval()


def on_cpu(stored: torch.dtype) -> torch.dtype:
    """The type in which this CPU computes with weights of a stored type: float32, or bfloat16 for weights in 16 bits
    where the CPU multiplies bfloat16 itself, in about half the time; elsewhere 16-bit numbers are slower.
    """
    import torch

    can = getattr(torch.cpu, "get_capabilities", dict)()
    native = can.get("avx512_bf16") or can.get("amx_bf16")
    return torch.bfloat16 if native and stored != torch.float32 else torch.float32


class Stored(typing.NamedTuple):
    """The tensors of a part: name -> bytes in its file, and a function that reads one as stored, in 8 bits as two."""

    sizes: Mapping[str, int]
    read: Callable[[str], Mapping[str, Tensor]]


def live_tensors(model: nn.Module, part: str, dtype: torch.dtype | None) -> Stored:
    """The tensors of one part of a loaded model, without unmerged LoRA; dtype as for `save_part`."""
    import torch

    state = plain_tensors(model)
    tensors = {name: state[full].detach() for name, full in part_names(PARTS[part].model, part, state).items()}

    def stored(name: str, tensor: Tensor) -> Mapping[str, Tensor]:
        kind = tensor.dtype if dtype is None or not tensor.is_floating_point() else dtype
        # smaller ones save nothing, and kernels over pictures (4 dimensions) are few, but their errors are seen
        if kind == torch.int8 and tensor.dim() not in (1, 4) and tensor.numel() >= 1024:
            return in_8_bits(tensor, name)
        return {name: narrowed(tensor, torch.float16 if kind == torch.int8 else kind, name)}

    sizes = {name: sum(each.nbytes for each in stored(name, one.to("meta")).values()) for name, one in tensors.items()}
    return Stored(sizes, lambda name: stored(name, tensors[name]))


def narrowed(tensor: Tensor, dtype: torch.dtype, where: str) -> Tensor:
    """A tensor in `dtype`; CheckpointError where it holds NaN or infinity, or a value that would become infinite."""
    extremes = finite_extremes(tensor, where)
    if extremes is not None and not extremes.to(dtype).isfinite().all():
        raise CheckpointError(f"{where}: a value of {extremes.abs().max():.3g} does not fit {dtype}; use a wider type")
    return tensor.to(dtype)


def _placed(source: TensorSource, name: str, device: torch.device, dtype: torch.dtype | None) -> Tensor:
    import torch

    tensor = source.tensor(name)
    if not tensor.is_floating_point():
        return tensor.to(device)
    if dtype is None:
        dtype = getattr(torch, source.half) if tensor.dtype == torch.float32 else tensor.dtype
    return narrowed(tensor.to(device), dtype, source.where(name))


def check_names(source: TensorSource, expected: Mapping[str, Tensor]) -> None:
    """CheckpointError that names the first tensors that are missing, unknown, or of another shape."""
    stored = set(source.keys())
    if missing := sorted(set(expected) - stored):
        raise CheckpointError(f"{source.path}: {listed(missing, 'missing')}; expected every tensor of the world's spec")
    if unknown := sorted(stored - set(expected)):
        raise CheckpointError(f"{source.path}: {listed(unknown, 'unknown')}; the world's spec has no such tensor")
    for name, tensor in expected.items():
        if source.shape(name) != tuple(tensor.shape):
            raise CheckpointError(
                f"{source.path}: tensor {name!r} has shape {source.shape(name)}, "
                f"the world's spec expects {tuple(tensor.shape)}"
            )


def check_parts(sources: Mapping[str, TensorSource], build: Callable[[str], nn.Module]) -> dict[str, nn.Module]:
    """Check the tensors of parts against empty models; returns these by kind. CheckpointError as for `check_names`.

    Names and shapes are compared before anything is built with memory: wrong sizes could ask for any.
    """
    import torch

    models = {}
    for kind in dict.fromkeys(PARTS[part].model for part in sources):
        with torch.device("meta"):
            state = build(kind).state_dict()
        for part in (part for part in sources if PARTS[part].model == kind):
            check_names(sources[part], {name: state[full] for name, full in part_names(kind, part, state).items()})
        models[kind] = build_model(partial(build, kind))
    return models


def listed(names: list[str], what: str) -> str:
    """How many tensors are missing or unknown, and the first three of them."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{len(names)} {what} tensor(s): {', '.join(repr(name[:LONGEST])[1:-1] for name in names[:3])}{more}"


def _finish(model: nn.Module, device: torch.device) -> None:
    """Tie parameters that share one stored tensor, and move the computed buffers."""
    text_encoder = getattr(model, "text_tower", None)
    if text_encoder is not None:
        text_encoder.encoder.embed_tokens.weight = text_encoder.shared.weight
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.device.type != "meta":
                module._buffers[name] = buffer.to(device)
