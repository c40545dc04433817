"""Model folders in diffusers' layout: what each baseline needs, and the stock pipelines loaded from them.

Downloads nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...files import is_plain_name
from ...json_files import JsonError, Value, read_json
from ...messages import shortened
from ...runtime.device import choose_device
from ...weights.downloads import file_signature

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

    from . import BaselineSettings

INDEX = "model_index.json"
LIBRARIES = ("diffusers", "transformers")  # any other name would mean running code from the folder


@dataclass(frozen=True)
class FolderKind:
    """A kind of model: its diffusers pipeline, the setting that names its folder, its repository with its licence.

    steps, guidance_scale: the pipeline's defaults, repeated here so that a new version of diffusers changes no results.
    """

    pipeline: str
    setting: str
    repository: str
    steps: int
    guidance_scale: float


_2B = "THUDM/CogVideoX-2b (Apache-2.0)"
_5B = "THUDM/CogVideoX-5b-I2V (CogVideoX LICENSE: registration for commercial use)"
_FLUX = "black-forest-labs/FLUX.1-dev (FLUX.1 [dev] Non-Commercial License)"
_SDXL = "stabilityai/stable-diffusion-xl-base-1.0 (CreativeML Open RAIL++-M License)"
TEXT_TO_VIDEO = FolderKind("CogVideoXPipeline", "video", _2B, 50, 6.0)
IMAGE_TO_VIDEO = FolderKind("CogVideoXImageToVideoPipeline", "video", _5B, 50, 6.0)
FLUX = FolderKind("FluxPipeline", "pictures", _FLUX, 28, 3.5)
SDXL = FolderKind("StableDiffusionXLPipeline", "pictures", _SDXL, 50, 5.0)


class ModelConfig(msgspec.Struct):
    """The keys that are read from the config.json of a transformer, UNet or VAE, with diffusers' defaults."""

    sample_height: int = 60
    sample_width: int = 90
    sample_frames: int = 49
    sample_size: int = 128
    max_text_seq_length: int = 226
    patch_size_t: int | None = None
    block_out_channels: tuple[int, ...] = (0,) * 4


@dataclass(frozen=True)
class ModelFolder:
    """A complete folder. variant: of the weights, such as fp16 in names like model.fp16.safetensors; None if plain."""

    path: Path
    kind: FolderKind
    variant: str | None
    components: tuple[str, ...]

    def config(self, component: str) -> ModelConfig:
        return _read(self.path / component / "config.json", ModelConfig)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What a report says about the folder. fingerprint: a hash of all paths, sizes, first and last bytes."""
        inside = [self.path / INDEX]
        inside += [file for name in self.components for file in sorted((self.path / name).rglob("*"))]
        digest = hashlib.sha256()
        for file in inside:
            if file.is_file():
                note = file_signature(file)
                digest.update(f"{file.relative_to(self.path).as_posix()} {note.bytes} {note.sha256}\n".encode())
        return {
            "folder": self.path.resolve().name,
            "pipeline": self.kind.pipeline,
            "fingerprint": digest.hexdigest(),
        }

    @property
    def vae_scale_factor(self) -> int:
        """How many pixels one latent of the folder's VAE stands for along one side."""
        return 2 ** (len(self.config("vae").block_out_channels) - 1)


def open_folder(path: Path | None, kind: FolderKind, baseline: str) -> ModelFolder:
    """Check that a folder is complete; ValueError says what is missing and what to download."""
    fetch = f"fetch {kind.repository}, or a model like it, and name its folder"
    needs = f"{baseline} needs {kind.pipeline} as --baseline-{kind.setting}; {fetch}"
    if path is None or not (path / INDEX).is_file():
        raise ValueError(f"{path or 'no folder'} has no {INDEX}, and {needs}")
    index = _read(path / INDEX, dict[str, Any])
    if index.get("_class_name") != kind.pipeline:
        raise ValueError(f"{path} holds {shortened(index.get('_class_name'), 60)!r}, and {needs}")
    components = []
    for name, value in index.items():
        if isinstance(value, list) and len(value) == 2 and value[1] is not None:
            if not is_plain_name(name) or value[0] not in (*LIBRARIES, None):
                raise ValueError(f"{path / INDEX}: {shortened(name)} of {shortened(value[0])!r} is no stock model")
            if not (path / name).is_dir():
                raise ValueError(f"{path / name} is missing; fetch the folder again")
            components.append(name)
    names = [file.name.removesuffix(".safetensors") for file in path.glob("*/*.safetensors")]
    variants = {name.partition(".")[2].partition("-")[0] for name in names}  # "" for plain weights
    return ModelFolder(path, kind, min(variants, default="") or None, tuple(components))


def _read(path: Path, kind: type[Value]) -> Value:
    try:
        return read_json(path, kind)
    except JsonError as error:
        raise ValueError(f"{error}; fetch it again") from error


def load_pipeline(folder: ModelFolder, settings: BaselineSettings, lora: Path | None) -> DiffusionPipeline:
    """Load a folder's pipeline on its device, without progress bars; merges the LoRA, if any. ValueError if damaged."""
    import diffusers
    import torch

    device = choose_device(settings.device)
    if settings.offload and device == "cpu":
        raise ValueError("offload needs a GPU, but none is used; drop it")
    diffusers.utils.logging.disable_progress_bar()
    options: dict[str, Any] = {"variant": folder.variant, "local_files_only": True, "use_safetensors": True}
    version = tuple(int(part) for part in diffusers.__version__.split(".")[:2])
    options["dtype" if version >= (0, 42) else "torch_dtype"] = getattr(torch, settings.dtype_name)  # 0.42 renamed it
    if folder.kind is SDXL:
        options["add_watermarker"] = False  # the watermark package, if installed, would change the pictures
    try:
        pipeline = getattr(diffusers, folder.kind.pipeline).from_pretrained(str(folder.path), **options)
    except (OSError, ImportError, ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"{folder.path} does not load ({_first_line(error)}); fetch it again") from error
    if lora:
        _merge_lora(pipeline, lora)
    pipeline.set_progress_bar_config(disable=True)
    pipeline.vae.enable_slicing()  # decode the pictures of a batch one by one
    if not settings.offload:
        return pipeline.to(device)
    pipeline.vae.enable_tiling()
    pipeline.enable_model_cpu_offload(device=device)
    return pipeline


def _merge_lora(pipeline: DiffusionPipeline, path: Path) -> None:
    """Merge a LoRA file into the weights, so that it takes no extra time; ValueError if it does not fit."""
    try:
        pipeline.load_lora_weights(str(path.parent), weight_name=path.name, local_files_only=True, use_safetensors=True)
        parts = list(pipeline.get_list_adapters())
        if parts:
            pipeline.fuse_lora(components=parts)
            pipeline.unload_lora_weights()
    except (OSError, ValueError, RuntimeError, KeyError, IndexError) as error:
        raise ValueError(f"{path} does not fit {type(pipeline).__name__} ({_first_line(error)})") from error
    if not parts:
        raise ValueError(f"{path} has no weights for {type(pipeline).__name__}; give a LoRA of this model")


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {shortened(error)}"
