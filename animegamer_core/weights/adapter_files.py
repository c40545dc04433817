"""Files of LoRA that training or other programs wrote, without the worlds that use them.

Importing this imports no torch.
"""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from ..files import replacing
from ..game.state import MotionTable
from ..json_files import JsonError, parse_json
from ..messages import shortened
from ..spec import LARGEST, UNSTATED, Reading, Sampling, get_profile
from . import storage
from .parts import LoraUpdate, LoraUpdates
from .storage import LONGEST, CheckpointError, SafetensorsSource, finite_extremes, note_of, number, read_json

if TYPE_CHECKING:
    from torch import Tensor

    from ..spec import ModelSpec


SAFETENSORS = (".safetensors", ".sft")  # what files of safetensors are called
STAGE = "other"  # what facts name as the stage of such a file
_ENDINGS = {  # of the names of a layer's tensors: of peft and diffusers, of kohya
    ".lora_A.weight": "down", ".lora_B.weight": "up", ".lora_down.weight": "down", ".lora_up.weight": "up",
    ".alpha": "alpha", ".lora.down.weight": "down", ".lora.up.weight": "up",
}  # fmt: skip
_PREFIX = re.compile(r"(?:base_model\.|model\.|module\.|_orig_mod\.|pipe\.|dit\.|diffusion_model\.|transformer\.)*")
_FLAT = re.compile(r"lora_(?:unet|transformer)_+(.+)")  # kohya writes the dots of a name as underscores
_BLOCK = ("attn1.to_q", "attn1.to_k", "attn1.to_v", "attn1.to_out.0", "ff.net.0.proj", "ff.net.2")
_BLOCK_LAYERS = (*_BLOCK, "norm1.linear", "norm2.linear")
_LAYERS = ("time_embedding.linear_1", "time_embedding.linear_2", "norm_out.linear", "proj_out")
_DOTTED = {name.replace(".", "_"): name for name in (*_BLOCK_LAYERS, *_LAYERS)}
_NUMBERED = re.compile(r"transformer_blocks[._](\d{1,4})[._](.+)")
_OTHER_BASE = ("pissa", "olora", "corda", "loftq")  # values of peft's init_lora_weights that change the base first
_NOTES = "lora_adapter_metadata"  # where newer diffusers keep rank and alpha
_PLAIN_LORA = "train a plain LoRA, or have the program that wrote this one extract it"
_UNREAD = (  # pattern in a tensor's name, what its file is, what to do about it
    (r"lora_magnitude_vector|dora_scale", "a DoRA", _PLAIN_LORA),
    (
        r"lokr_|hada_|oft_|lora_mid|\.diff(_b)?$|ia3_|vera_",
        "of LyCORIS or peft (LoKr, LoHa, OFT, IA3, VeRA or whole differences)",
        _PLAIN_LORA,
    ),
    (r"^(lora_te\d?_|text_encoder)", "also for a text encoder", "leave these tensors out"),
    (r"\.bias$|^(?!.*lora).*\.weight$", "no LoRA alone, it has whole weights", _PLAIN_LORA),
    (r"\.lora_[AB]\..+\.weight$", "an adapter with a name", "save it by peft's save_pretrained, which omits the name"),
)


def is_outside(path: Path) -> bool:
    """Whether a safetensors file is of another program; ValueError if it cannot be read."""
    return path.is_file() and _is_outside(path, *file_age(path))


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
        down, up = source.shape(names["down"]), source.shape(names["up"])
        if layer not in shapes:
            raise _unfit(path, names["down"], f"this world's transformer has no layer {layer!r}")
        found = (*up[:1], *down[1:])
        if len(down) != 2 or len(up) != 2 or down[0] != up[1] or not down[0] or found != shapes[layer]:
            raise _unfit(path, names["down"], f"it has shapes {down} and {up} for a layer of {shapes[layer]}")


def read_outside(path: Path) -> LoraUpdates:
    """Layer of the transformer -> its LoRA. CheckpointError as for `check_outside`, but for shapes, and for NaN."""
    source, config = SafetensorsSource(path), _config_of(path)
    found = {}
    for layer, names in _layers(path, source.keys()).items():
        tensors = {kind: source.tensor(key) for kind, key in names.items()}
        for kind, tensor in tensors.items():
            finite_extremes(tensor, f"{path}: {names[kind]!r}")
        down, up = tensors["down"], tensors["up"]
        alpha = tensors["alpha"].float().sum().item() if "alpha" in tensors else None
        found[layer] = LoraUpdate(down, up, _scale(path, config, layer, len(down), alpha))
    return found


@lru_cache(maxsize=64)
def strength_warnings(path: Path, _age: tuple[int, int], base: tuple[Path, ...]) -> tuple[str, ...]:
    """A sentence if a file states no alpha and changes a layer by more than its weights. base: the decoder's files."""
    layers, source = _layers(path, SafetensorsSource(path).keys()), SafetensorsSource(*base)
    if "lora_alpha" in _config_of(path) or any("alpha" in names for names in layers.values()):
        return ()
    updates = read_outside(path)
    factors = {
        layer: (one.delta().norm() / source.tensor(f"transformer.{layer}.weight").float().norm()).item()
        for layer, one in updates.items()
    }
    layer = max(factors, key=factors.__getitem__)
    if factors[layer] <= 1:
        return ()
    return (
        f"{path} states no alpha, and changes {layer} by {factors[layer]:.1f} times its weights, so shots may be "
        f"noise; ask its author for alpha, and give strength alpha / {len(updates[layer].down)}",
    )


def _scale(path: Path, config: Mapping[str, typing.Any], layer: str, rank: int, alpha: float | None) -> float:
    """What the product of two matrices is multiplied by: alpha / rank; 1 where a file states no alpha.

    alpha: of the layer's own tensor; None: as the file states for all layers.
    """
    if alpha is None:
        own = config.get("alpha_pattern") or {}
        try:
            # As in peft, whose names may have a prefix.
            fit = [key for key in own if re.match(rf"(.*\.)?({key})$", layer)]
            key = next(iter(fit or [key for key in own if re.match(f"{key}$", f"transformer.{layer}")]), "lora_alpha")
            alpha = number({**config, **own}, key, path, rank)
        except (re.error, TypeError) as error:
            raise CheckpointError(f"{path}: alpha_pattern is no object of regular expressions ({error})") from error
    return alpha / (rank**0.5 if config.get("use_rslora") else rank)


def _config_of(path: Path) -> Mapping[str, typing.Any]:
    """The settings that diffusers writes into a file, or peft next to it; empty without either."""
    beside = path.with_name("adapter_config.json")
    if path.name == "adapter_model.safetensors" and beside.is_file():
        config = read_json(beside)
        if (start := str(config.get("init_lora_weights")).lower()).startswith(_OTHER_BASE):
            remedy = "save it by peft with path_initial_model_for_weight_conversion"
            raise CheckpointError(f"{path} was trained by {start}, on other weights than its base has; {remedy}")
        return config
    with _opened(path) as file:
        notes = parse_json((file.metadata() or {}).get(_NOTES, "{}"), dict[str, typing.Any], f"{path}: {_NOTES}")
    return {name.removeprefix("transformer."): value for name, value in notes.items()}


@lru_cache(maxsize=4096)
def _is_outside(path: Path, _changed: int, _size: int) -> bool:
    with _opened(path) as file:
        return OURS not in (file.metadata() or {})


def _layers(path: Path, keys: typing.Iterable[str]) -> dict[str, dict[str, str]]:
    """Layer -> the keys of its `down`, `up` and perhaps `alpha`.

    CheckpointError names the first one that is not a LoRA for the transformer.
    """
    found: dict[str, dict[str, str]] = {}
    for key in keys:
        layer, kind = _layer_of(key)
        if layer is None:
            raise _unfit(path, key, "it is not a LoRA for a linear layer of CogVideoX's transformer")
        found.setdefault(layer, {})[kind] = key
    if not found:
        raise CheckpointError(f"{path} has no tensors: its trainer saved none; choose a LoRA file with some")
    for names in found.values():
        if not {"down", "up"} <= names.keys():
            raise _unfit(path, min(names.values()), "the other matrix of its layer is missing")
    return found


def _layer_of(key: str) -> tuple[str | None, str]:
    """(layer of the transformer, or None; which of its tensors: down, up or alpha)."""
    for ending, kind in _ENDINGS.items():
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
    for pattern, kind, remedy in _UNREAD:
        if re.search(pattern, key):
            return CheckpointError(f"{path} is {kind} ({shortened(key, LONGEST)!r}), which is not read; {remedy}")
    return CheckpointError(
        f"{path}: {shortened(key, LONGEST)!r} does not fit: {why}; choose a LoRA file that was trained on the "
        "decoder's base model (CogVideoX-2B for published worlds)"
    )


@lru_cache(maxsize=8)
def _linear_shapes(spec: ModelSpec) -> Mapping[str, tuple[int, ...]]:
    """Linear layer of the decoder's transformer -> the shape of its weight."""
    import torch

    from ..model.decoder import ShotDecoder

    with torch.device("meta"):
        modules = ShotDecoder(spec).transformer.named_modules()
    return {name: tuple(part.weight.shape) for name, part in modules if isinstance(part, torch.nn.Linear)}


FORMAT, OURS = 1, "animegamer"  # the key of our metadata
PLAYED = {"engine", "decoder"}  # models that turns are made with
Adapters = tuple[tuple[str, float], ...]  # (path, strength), in the order in which they are applied
# Facts about stages that playing needs too. Training's own table takes them from here.
GAME_STAGES = ("predict", "adapt", "distill")  # they read games, so their files state how turns are read
MOTION_STAGES = ("warmup", "joint", "adapt", "distill")  # they condition the decoder on motion values


class Motion(msgspec.Struct):
    """The motion values that a decoder was conditioned on. provenance: how they were measured."""

    table: MotionTable
    provenance: dict[str, str] = {}


class ReadingNotes(msgspec.Struct):
    """How turns were read in training: the profile's name, and the most past turns."""

    profile: Literal["paper", "reference", "as_run"]
    window: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)] | None = None


class Notes(msgspec.Struct):
    """The metadata of an adapter file that training wrote. config: the stage's settings. about: the world's spec."""

    format: Literal[1]
    stage: str
    config: dict[str, Any]
    about: dict[str, Any]
    reading: ReadingNotes | None = None
    motion: Motion | None = None
    sampling: Sampling | None = None


@dataclass(frozen=True)
class AdapterFacts:
    """What an adapter file states. parts: which of `encoder`, `decoder`, `engine` it changes.

    stage: for another program's LoRA file `other`. reading: how turns were read in its training; None for stages that
    read none. motion_table: what the decoder was conditioned on; None for stages without motion. provenance: how that
    motion was measured. sampling: what the decoder was taught for.
    """

    path: str
    stage: str
    parts: frozenset[str]
    reading: Reading | None = None
    motion_table: MotionTable | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    sampling: Sampling = UNSTATED


def save_adapter(
    path: Path,
    stage: str,
    config: Any,
    tensors: Mapping[str, Tensor],
    about: Any,
    stated: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write what a stage trained; the file's metadata holds the stage, its settings (a dataclass) and the world's spec.

    stated: how the adapter has to be played: `reading`, `motion` and `sampling` of Notes.
    """
    from safetensors.torch import save_file

    notes = json.dumps({"format": FORMAT, "stage": stage, "config": asdict(config), "about": about, **stated})
    with replacing(path) as part:
        kept = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
        save_file(kept, part, metadata={OURS: notes})


@contextmanager
def open_adapter(path: Path) -> Iterator[tuple[Notes, Any]]:
    """(what an adapter file states, the file, open for reading); ValueError if it is missing, damaged or of another
    format.
    """
    check_there(path)
    with _opened(path) as file:
        text = (file.metadata() or {}).get(OURS, "")
        try:
            notes = parse_json(text, Notes, "its metadata")
        except JsonError as error:
            raise ValueError(
                f"{path} is no adapter file of this version ({error}); update this pack, or train the stage again"
            ) from error
        yield notes, file


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        why = "it is cut off, or another kind of file under this name; copy it again"
        raise ValueError(f"{path} cannot be read ({shortened(error)}); {why}") from error


def read_adapter(path: Path) -> tuple[Notes, dict[str, Tensor]]:
    """(what an adapter file states, its tensors); ValueError as for `open_adapter`, and for NaN or infinity."""
    with open_adapter(path) as (notes, file):
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a mapping
    for name, tensor in tensors.items():
        finite_extremes(tensor, f"{path}: {name!r}")
    return notes, tensors


def check_there(path: str | Path) -> None:
    """ValueError unless there is a safetensors file at the path of an adapter."""
    path = Path(path)
    if path.is_dir():
        inside = ", ".join(sorted(file.name for file in path.glob("*.safetensors"))) or "none is there; save one"
        raise ValueError(f"{path} is a folder; give its safetensors file with the LoRA ({shortened(inside)})")
    if not path.is_file():
        raise ValueError(f"no adapter file {path}; give a file that a training stage or another LoRA trainer wrote")
    storage.refuse_pointer(path)
    if path.suffix.lower() not in SAFETENSORS:
        raise ValueError(
            f"{path} is no safetensors file; save its tensors by safetensors.torch.save_file, since other formats can "
            "run programs"
        )


def tensor_names(path: Path) -> tuple[str, ...]:
    """The names of an adapter file's tensors; ValueError as for `open_adapter`."""
    with open_adapter(path) as (_, file):
        return tuple(file.keys())


def adapted_models(path: Path) -> frozenset[str]:
    """Which of `encoder`, `decoder`, `engine` an adapter file changes; ValueError as for `open_adapter`."""
    return frozenset(name.partition(".")[0] for name in tensor_names(path))


def adapter_facts(path: str | Path) -> AdapterFacts:
    """What an adapter file states; ValueError for one that is missing or cannot be read."""
    return _facts(str(path), *file_age(str(path)))


def file_age(path: str | Path) -> tuple[int, int]:
    """(time of change, size) of an adapter file, by which cached results are looked up."""
    check_there(path)
    stat = Path(path).stat()
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=64)
def _facts(path: str, _changed: int, _size: int) -> AdapterFacts:
    if is_outside(Path(path)):
        return AdapterFacts(path, STAGE, frozenset({"decoder"}))
    with open_adapter(Path(path)) as (notes, _):
        parts, motion, read = adapted_models(Path(path)), notes.motion, notes.reading
    reading = None if read is None else Reading(get_profile(read.profile), read.window)
    facts = AdapterFacts(path, notes.stage, parts, reading, sampling=notes.sampling or UNSTATED)
    return facts if motion is None else replace(facts, motion_table=motion.table, provenance=motion.provenance)


def adapter_checksum(path: str) -> str:
    """The sha256 of an adapter file; ValueError if it is gone."""
    return _checksum(path, *file_age(path))


@lru_cache(maxsize=64)
def _checksum(path: str, _changed: int, _size: int) -> str:
    return note_of(Path(path)).sha256
