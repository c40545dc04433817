"""Model folders in diffusers' layout: what each baseline needs, checked before models are loaded.

Downloads nothing, and does not import torch.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ...checkpoint.downloads import file_signature
from ...files import is_plain_name
from ...json_files import JsonError, Value, read_json
from ...messages import brief

INDEX = "model_index.json"
SAMPLING = "sampling.json"  # optional file with sampling settings, in a folder or next to a LoRA
LIBRARIES = ("diffusers", "transformers", None)  # any other name would mean running code from the folder
_WITHOUT_WEIGHTS = ("Scheduler", "Tokenizer", "TokenizerFast", "TokenizersBackend")


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
    remedy = f"fetch {kind.repository} ({kind.licence}) into it"
    if path is None:
        raise ValueError(
            f"{baseline} needs a folder of {kind.pipeline} as `{kind.setting}`; "
            f"fetch {kind.repository} ({kind.licence}) and name its folder (--baseline-{kind.setting})"
        )
    if not (path / INDEX).is_file():
        raise ValueError(f"{path} has no {INDEX}, which {baseline} reads as `{kind.setting}`; {remedy}")
    index = _read(path / INDEX, dict[str, Any])
    if index.get("_class_name") != kind.pipeline:
        found = repr(brief(index.get("_class_name"), 60))
        raise ValueError(
            f"{path} holds {found}, and {baseline} needs {kind.pipeline} as `{kind.setting}`; "
            f"fetch {kind.repository} ({kind.licence}), or name the folder of a model like it"
        )
    components = dict(_components(path, index))
    variants = {name: _variants(path / name, kind_of, remedy) for name, kind_of in components.items()}
    common = set.intersection(*(found for found in variants.values() if found is not None))
    if not common:
        raise ValueError(f"{path}: no variant of the weights is complete for all models; {remedy}")
    return ModelFolder(path, kind, None if None in common else sorted(common)[0], tuple(components))


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


class _WeightIndex(msgspec.Struct):
    weight_map: dict[str, str] = {}


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


def _components(path: Path, index: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(name, class) of the models in an index; null entries are left out."""
    found = []
    for name, value in index.items():
        if isinstance(value, list) and len(value) == 2 and value[1] is not None:
            if not is_plain_name(name):
                raise ValueError(f"{path / INDEX}: {brief(repr(name), 60)} does not name a folder in it")
            if value[0] not in LIBRARIES:
                raise ValueError(
                    f"{path / INDEX}: {brief(name)} is code of {brief(value[0])!r}; expected diffusers or transformers"
                )
            found.append((name, str(value[1])))
    if not found:
        raise ValueError(f"{path / INDEX} lists no model; fetch the folder again")
    return found


def _variants(folder: Path, class_name: str, remedy: str) -> set[str | None] | None:
    """The variants of a model's weights, None for the plain one; returns None for a component without weights."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is missing; {remedy}")
    if class_name.endswith(_WITHOUT_WEIGHTS):
        return None
    for listing in folder.glob("*.safetensors.index*.json"):
        for name in sorted(set(_read(listing, _WeightIndex).weight_map.values())):
            if not is_plain_name(name):
                raise ValueError(f"{listing}: {brief(repr(name), 60)} does not name a file in the folder; {remedy}")
            if not (folder / name).is_file():
                raise ValueError(f"{folder / name} is missing; {remedy}")
    names = [file.name.removesuffix(".safetensors") for file in folder.glob("*.safetensors")]
    if not names:
        raise ValueError(f"{folder} has no *.safetensors weights; {remedy}")
    return {name.partition(".")[2].partition("-")[0] or None for name in names}


def _read(path: Path, kind: type[Value]) -> Value:
    try:
        return read_json(path, kind)
    except JsonError as error:
        raise ValueError(f"{error}; fetch it again") from error
