"""Model folders in diffusers' layout: what each baseline needs, and the stock pipelines loaded from them.

Downloads nothing.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from ...files import is_plain_name
from ...json_files import JsonError, Value, read_json
from ...messages import shortened
from ...runtime.device import choose_device
from ...weights.downloads import file_signature
from ...weights.storage import note_of

if TYPE_CHECKING:
    import torch
    from diffusers import DiffusionPipeline

    from . import BaselineSettings

INDEX = "model_index.json"
SAMPLING = "sampling.json"  # optional file with sampling settings, in a folder or next to a LoRA
LIBRARIES = ("diffusers", "transformers", None)  # any other name would mean running code from the folder
PEFT = "base_model.model."  # prefix of every name in peft's own format


@dataclass(frozen=True)
class FolderKind:
    """A kind of model: its diffusers pipeline, the setting that names its folder, its repository and its licence.

    steps, guidance_scale: the pipeline's defaults, repeated here so that a new version of diffusers changes no results.
    """

    pipeline: str
    setting: str
    repository: str
    licence: str
    steps: int
    guidance_scale: float


TEXT_TO_VIDEO = FolderKind("CogVideoXPipeline", "video", "THUDM/CogVideoX-2b", "Apache-2.0", 50, 6.0)
IMAGE_TO_VIDEO = FolderKind(
    "CogVideoXImageToVideoPipeline",
    "video",
    "THUDM/CogVideoX-5b-I2V",
    "CogVideoX LICENSE: registration for commercial use",
    50,
    6.0,
)
FLUX = FolderKind(
    "FluxPipeline", "pictures", "black-forest-labs/FLUX.1-dev", "FLUX.1 [dev] Non-Commercial License", 28, 3.5
)
SDXL = FolderKind(
    "StableDiffusionXLPipeline",
    "pictures",
    "stabilityai/stable-diffusion-xl-base-1.0",
    "CreativeML Open RAIL++-M License",
    50,
    5.0,
)


_Size = Annotated[int, msgspec.Meta(ge=1, le=100_000)]


class ModelConfig(msgspec.Struct):
    """The keys that are read from the config.json of a transformer, UNet or VAE, with diffusers' defaults."""

    sample_height: _Size = 60
    sample_width: _Size = 90
    sample_frames: _Size = 49
    sample_size: _Size = 128
    max_text_seq_length: _Size = 226
    patch_size_t: int | None = None
    block_out_channels: Annotated[tuple[int, ...], msgspec.Meta(min_length=1, max_length=20)] = (0,) * 4


@dataclass(frozen=True)
class ModelFolder:
    """A complete folder. variant: of the weights, such as fp16 in names like model.fp16.safetensors; None if plain."""

    path: Path
    kind: FolderKind
    variant: str | None
    components: tuple[str, ...]

    def config(self, component: str) -> ModelConfig:
        """The configuration of one model in the folder."""
        return _read(self.path / component / "config.json", ModelConfig)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What a report says about the folder. fingerprint: a hash of all paths, sizes, first and last bytes."""
        inside = [self.path / INDEX, self.path / SAMPLING]
        inside += [file for name in self.components for file in sorted((self.path / name).rglob("*"))]
        digest = hashlib.sha256()
        for file in inside:
            if file.is_file():
                note = file_signature(file)
                digest.update(f"{file.relative_to(self.path).as_posix()} {note.bytes} {note.sha256}\n".encode())
        return {
            "folder": self.path.resolve().name,
            "pipeline": self.kind.pipeline,
            "index_sha256": hashlib.sha256((self.path / INDEX).read_bytes()).hexdigest(),
            "fingerprint": digest.hexdigest(),
        }

    @property
    def vae_scale_factor(self) -> int:
        """How many pixels one latent of the folder's VAE stands for along one side."""
        return 2 ** (len(self.config("vae").block_out_channels) - 1)


def open_folder(path: Path | None, kind: FolderKind, baseline: str) -> ModelFolder:
    """Check that a folder is complete; ValueError says what is missing and what to download."""
    if path is None:
        raise ValueError(
            f"{baseline} needs a folder of {kind.pipeline} as `{kind.setting}`; "
            f"fetch {kind.repository} ({kind.licence}) and name its folder (--baseline-{kind.setting})"
        )
    if not (path / INDEX).is_file():
        raise ValueError(f"{path} has no {INDEX}, which {baseline} reads; fetch {kind.repository} ({kind.licence})")
    index = _read(path / INDEX, dict[str, Any])
    if index.get("_class_name") != kind.pipeline:
        found = repr(shortened(index.get("_class_name"), 60))
        raise ValueError(
            f"{path} holds {found}, and {baseline} needs {kind.pipeline} as `{kind.setting}`; "
            f"fetch {kind.repository} ({kind.licence}), or name the folder of a model like it"
        )
    return ModelFolder(path, kind, _variant(path), _components(path, index))


def sampling_of(folder: ModelFolder, lora: Path | None) -> dict[str, Any]:
    """The settings for a clip: `steps`, `guidance_scale` and perhaps `frames`.

    Each is from sampling.json next to the LoRA, else in the folder, else the stock pipeline's default.
    """
    found: dict[str, Any] = {"steps": folder.kind.steps, "guidance_scale": folder.kind.guidance_scale}
    for place in (folder.path, *([lora.parent] if lora else [])):
        if (place / SAMPLING).is_file():
            stated = msgspec.structs.asdict(_read(place / SAMPLING, _Sampling))
            found |= {name: value for name, value in stated.items() if value is not None}
    return found


class _Sampling(msgspec.Struct, forbid_unknown_fields=True):
    """The keys that sampling.json may have."""

    steps: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    guidance_scale: Annotated[float, msgspec.Meta(ge=0, le=1000)] | None = None
    frames: Annotated[int, msgspec.Meta(ge=9, le=10_001)] | None = None

    def __post_init__(self) -> None:
        if self.frames is not None and self.frames % 8 != 1:
            raise ValueError(f"frames is {self.frames}; expected 8n + 1")


def picture_size(folder: ModelFolder, shape: tuple[int, int], side: int | None) -> tuple[int, int]:
    """(height, width) of a first frame: the area of a square of `side` px, with the aspect of a clip of `shape`.

    side: None for that of the model's training, 1024 for SDXL and FLUX. Both numbers are multiples of 16, as FLUX
    requires: 832 x 1248 for clips of 480 x 720.
    """
    trained = folder.config("unet").sample_size if folder.kind is SDXL else 128  # FLUX's files do not state it
    side = side or trained * folder.vae_scale_factor
    ratio = math.sqrt(shape[1] / shape[0])
    height, width = (max(1, round(length / 16)) * 16 for length in (side / ratio, side * ratio))
    return height, width


def _components(path: Path, index: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the models in an index; null entries are left out. ValueError for one whose code is not stock."""
    found = []
    for name, value in index.items():
        if isinstance(value, list) and len(value) == 2 and value[1] is not None:
            if not is_plain_name(name) or value[0] not in LIBRARIES:
                raise ValueError(
                    f"{path / INDEX}: {shortened(name)} of {shortened(value[0])!r} is no stock model in this folder; "
                    "expected one of diffusers or transformers"
                )
            if not (path / name).is_dir():
                raise ValueError(f"{path / name} is missing; fetch the folder again")
            found.append(name)
    return tuple(found)


def _variant(path: Path) -> str | None:
    """The variant of the weights, such as fp16 in model.fp16.safetensors; None if some are plain."""
    names = [file.name.removesuffix(".safetensors") for file in path.glob("*/*.safetensors")]
    variants = {name.partition(".")[2].partition("-")[0] or None for name in names}
    return None if None in variants or not variants else sorted(variants, key=str)[0]


def _read(path: Path, kind: type[Value]) -> Value:
    try:
        return read_json(path, kind)
    except JsonError as error:
        raise ValueError(f"{error}; fetch it again") from error


def load_pipeline(folder: ModelFolder, settings: BaselineSettings, lora: Path | None) -> DiffusionPipeline:
    """Load a folder's pipeline on its device, without progress bars; merges the LoRA, if any. ValueError if damaged."""
    device = choose_device(settings.device)
    if settings.offload and device == "cpu":
        raise ValueError("offload needs a GPU, but none is used; drop it")
    pipeline = _stock_pipeline(folder, dtype_name(settings))
    if lora:
        _merge_lora(pipeline, lora)
    pipeline.set_progress_bar_config(disable=True)
    pipeline.vae.enable_slicing()  # decode the pictures of a batch one by one
    if not settings.offload:
        return pipeline.to(device)
    pipeline.vae.enable_tiling()
    pipeline.enable_model_cpu_offload(device=device)
    return pipeline


def _stock_pipeline(folder: ModelFolder, dtype: str) -> DiffusionPipeline:
    import diffusers
    import torch

    from ...train.text_video import dtype_option

    diffusers.utils.logging.disable_progress_bar()
    options: dict[str, Any] = {"variant": folder.variant, "local_files_only": True, "use_safetensors": True}
    options[dtype_option(diffusers.__version__)] = getattr(torch, dtype)
    if folder.kind is SDXL:
        options["add_watermarker"] = False  # the watermark package, if installed, would change the pictures
    try:
        return getattr(diffusers, folder.kind.pipeline).from_pretrained(str(folder.path), **options)
    except (OSError, ImportError, ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"{folder.path} does not load ({_first_line(error)}); fetch it again") from error


def dtype_name(settings: BaselineSettings) -> str:
    """The name of the models' dtype: the setting, or if that is `auto`, float32 on a CPU and bfloat16 elsewhere."""
    on_cpu = choose_device(settings.device) == "cpu"
    return settings.dtype if settings.dtype != "auto" else "float32" if on_cpu else "bfloat16"


def checked_lora(path: Path) -> str:
    """The SHA-256 of a LoRA file; ValueError if it is missing or not a safetensors file."""
    if path.suffix != ".safetensors" or not path.is_file():
        raise ValueError(f"{path} is not a LoRA file; give a .safetensors file in diffusers' or peft's format")
    return note_of(path).sha256


def _merge_lora(pipeline: DiffusionPipeline, path: Path) -> None:
    """Merge a LoRA file into the weights, so that it takes no extra time; ValueError if it does not fit."""
    from ...weights.weight_files import read_state

    tensors = read_state(path)
    lora = _from_peft(path, tensors) if all(name.startswith(PEFT) for name in tensors) else str(path.parent)
    try:
        pipeline.load_lora_weights(lora, weight_name=path.name, local_files_only=True, use_safetensors=True)
        parts = list(pipeline.get_list_adapters())
        if parts:
            pipeline.fuse_lora(components=parts)
            pipeline.unload_lora_weights()
    except (OSError, ValueError, RuntimeError, KeyError, IndexError) as error:
        raise ValueError(f"{path} does not fit {type(pipeline).__name__} ({_first_line(error)})") from error
    if not parts:
        raise ValueError(f"{path} has no weights for {type(pipeline).__name__}; give a LoRA of this model")


def _from_peft(path: Path, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Rename the tensors of peft's format to diffusers' names, scaled as adapter_config.json next to the file says."""
    scale = _peft_scale(path)
    return {
        f"transformer.{name.removeprefix(PEFT)}": tensor * scale if "lora_B" in name else tensor
        for name, tensor in tensors.items()
    }


def _peft_scale(path: Path) -> float:
    """alpha / rank, or alpha / sqrt(rank), from adapter_config.json next to the file; ValueError if it is missing."""
    beside = path.with_name("adapter_config.json")
    if not beside.is_file():
        raise ValueError(f"{beside} is missing, but it holds the scale; copy it from where {path.name} was saved")
    config = read_json(beside, dict)
    alpha, rank = config.get("lora_alpha"), config.get("r")
    if type(alpha) not in (int, float) or type(rank) is not int or rank < 1:
        raise ValueError(f"{beside}: lora_alpha is {alpha!r} and r {rank!r}; expected a number and a rank above 0")
    return alpha / (rank**0.5 if config.get("use_rslora") else rank)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {shortened(error)}"
