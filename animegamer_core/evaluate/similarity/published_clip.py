"""A published CLIP model from the user's own folder; nothing is downloaded.

M images or texts, E embedding width, H height, W width, C channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import msgspec
import torch
import torch.nn.functional as F

from ...checkpoint.weight_files import read_state
from ...json_files import to_type
from ...messages import brief
from ...model.encoder import CLIP_MEAN, CLIP_STD
from ...state import clean_text
from .files import file_facts, in_parts, missing, package, read_config
from .pixels import Preprocessing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

CLIP_SOURCE = "https://huggingface.co/laion/CLIP-ViT-B-16-laion2B-s34B-b88K or openai/clip-vit-large-patch14 there"
CONFIG, PREPROCESSOR = "config.json", "preprocessor_config.json"
TRANSFORMERS_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
TOKENIZERS = ("tokenizer.json", "vocab.json")
OPEN_CLIP_CONFIG = "open_clip_config.json"
OPEN_CLIP_WEIGHTS = (
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.safetensors",
    "open_clip_pytorch_model.bin",
)
ENCODERS = ("text_cfg", "vision_cfg")
OPEN_CLIP_FIELDS = {"embed_dim", *ENCODERS, "quick_gelu"}
LARGEST_SIDE = 2048  # pixels of an image that a model reads
# CLIP was trained with straight quotes: open_clip's tokenizer replaces curly ones, transformers' does not.
STRAIGHT = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")


_Number = Annotated[float, msgspec.Meta(ge=-1000, le=1000)]
_Positive = Annotated[float, msgspec.Meta(gt=0, le=1000)]
Rgb = tuple[_Number, _Number, _Number]
PositiveRgb = tuple[_Positive, _Positive, _Positive]


class _Config(msgspec.Struct):
    """The keys of transformers' config.json that are read."""

    model_type: str


class _Preprocessor(msgspec.Struct):
    """The keys of preprocessor_config.json that are read."""

    image_mean: Rgb | None = None
    image_std: PositiveRgb | None = None


class _OpenClipPictures(msgspec.Struct):
    mean: Rgb | None = None
    std: PositiveRgb | None = None
    interpolation: str = "bicubic"
    resize_mode: str = "shortest"


class _OpenClipConfig(msgspec.Struct):
    """The keys of open_clip_config.json that are read."""

    model_cfg: dict[str, Any]
    preprocess_cfg: _OpenClipPictures = msgspec.field(default_factory=_OpenClipPictures)


class ClipModel(Protocol):
    """The two encoders of a CLIP model, of transformers or open_clip."""

    def image_features(self, pixels_MCHW: Tensor) -> Tensor:
        """(M, E), not normalised."""

    def text_features(self, texts: Sequence[str]) -> Tensor:
        """(M, E), not normalised."""


@dataclass(frozen=True)
class PublishedClip:
    """A published CLIP model with its own preprocessing."""

    name: str
    facts: Mapping[str, Any]
    model: ClipModel
    preprocessing: Preprocessing

    @torch.inference_mode()
    def embed_images(self, frames_MHWC: NDArray[np.uint8]) -> Tensor:
        """Embed RGB images of one size: (M, E) fp32 unit vectors on the CPU."""
        rows = [self.model.image_features(self.preprocessing(part)).float().cpu() for part in in_parts(frames_MHWC)]
        return F.normalize(torch.cat(rows), dim=-1)

    @torch.inference_mode()
    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Embed texts: (M, E) fp32 unit vectors on the CPU.

        Texts are truncated to the model's length, and cannot contain its special tokens.
        """
        plain = [clean_text(text).translate(STRAIGHT) for text in texts]
        rows = [self.model.text_features(part).float().cpu() for part in in_parts(plain)]
        return F.normalize(torch.cat(rows), dim=-1)


def open_clip_model(folder: Path, device: torch.device | str = "cpu") -> PublishedClip:
    """Open the CLIP model in a folder: in transformers' format, or as open_clip's two files.

    ValueError names the missing files if the folder has no complete model.
    """
    folder = Path(folder)
    in_transformers = missing(folder, (CONFIG, PREPROCESSOR, TRANSFORMERS_WEIGHTS, TOKENIZERS))
    if not in_transformers:
        return _from_transformers(folder, device)
    in_open_clip = missing(folder, (OPEN_CLIP_CONFIG, OPEN_CLIP_WEIGHTS))
    if not in_open_clip:
        return _from_open_clip(folder, device)
    raise ValueError(
        f"{folder} has no complete CLIP model: {', '.join(in_transformers)} is missing for transformers' format, "
        f"{', '.join(in_open_clip)} for open_clip's; download a model yourself, for example {CLIP_SOURCE}"
    )


class _TransformersClip:
    """transformers' CLIPModel.

    Calls its encoders and projections directly, since the return types of its own methods differ between versions.
    """

    def __init__(self, model: nn.Module, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer

    def image_features(self, pixels_MCHW: Tensor) -> Tensor:
        seen = self.model.vision_model(pixel_values=pixels_MCHW.to(self.model.device)).pooler_output
        return self.model.visual_projection(seen)

    def text_features(self, texts: Sequence[str]) -> Tensor:
        length = self.model.config.text_config.max_position_embeddings
        tokens = self.tokenizer(list(texts), padding=True, truncation=True, max_length=length, return_tensors="pt")
        inputs = {name: tokens[name].to(self.model.device) for name in ("input_ids", "attention_mask")}
        return self.model.text_projection(self.model.text_model(**inputs).pooler_output)


def _from_transformers(folder: Path, device: torch.device | str) -> PublishedClip:
    from transformers import AutoTokenizer, CLIPModel

    config, wanted = read_config(folder / CONFIG, _Config), read_config(folder / PREPROCESSOR, _Preprocessor)
    if config.model_type != "clip":
        raise ValueError(
            f"{folder / CONFIG}: the model's type is {brief(config.model_type)!r}; give one of type 'clip'"
        )
    weights = _first_file(folder, TRANSFORMERS_WEIGHTS)
    read_state(weights)  # ValueError for a damaged file
    try:
        model, notes = CLIPModel.from_pretrained(
            folder, local_files_only=True, dtype=torch.float32, output_loading_info=True
        )
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, RuntimeError, KeyError) as error:
        raise ValueError(f"{folder}: transformers cannot read this CLIP model ({error}); download it again") from error
    if notes["missing_keys"]:  # transformers would initialise them randomly
        raise ValueError(f"{folder}: the weights lack {sorted(notes['missing_keys'])[0]}; download the model again")
    size = model.config.vision_config.image_size
    preprocessing = _preprocessing(folder / PREPROCESSOR, size, wanted.image_mean, wanted.image_std)
    facts = {"format": "transformers", "files": file_facts([weights]), "size": preprocessing.size}
    clip = _TransformersClip(model.to(device).eval(), tokenizer)
    return PublishedClip(folder.resolve().name, facts, clip, preprocessing)


class _OpenClip:
    """open_clip's CLIP with the package's own tokenizer."""

    def __init__(self, model: nn.Module, tokenizer: Any, device: torch.device | str) -> None:
        self.model, self.tokenizer, self.device = model, tokenizer, device

    def image_features(self, pixels_MCHW: Tensor) -> Tensor:
        return self.model.encode_image(pixels_MCHW.to(self.device))

    def text_features(self, texts: Sequence[str]) -> Tensor:
        return self.model.encode_text(self.tokenizer(list(texts)).to(self.device))


def _from_open_clip(folder: Path, device: torch.device | str) -> PublishedClip:
    open_clip = package("open_clip", "open_clip_torch")
    path = folder / OPEN_CLIP_CONFIG
    values = read_config(path, _OpenClipConfig)
    model_cfg, wanted = values.model_cfg, values.preprocess_cfg
    text_cfg, vision_cfg = (to_type(model_cfg.get(name, {}), dict, f"{path}: {name}") for name in ENCODERS)
    named = {name for part in (text_cfg, vision_cfg) for name in part if name.startswith(("hf_", "timm_"))}
    other = sorted(set(model_cfg) - OPEN_CLIP_FIELDS | named)  # encoders of other packages, which may download files
    if other or not text_cfg or not vision_cfg:
        why = brief(", ".join(other)) or "an encoder is missing"
        raise ValueError(f"{path}: not a plain CLIP ({why}); give one like {CLIP_SOURCE}")
    resizing = wanted.interpolation, wanted.resize_mode
    if resizing != ("bicubic", "shortest"):
        raise ValueError(f"{path}: images are resized by {resizing}; only bicubic and shortest are supported")
    weights = _first_file(folder, OPEN_CLIP_WEIGHTS)
    try:
        model = open_clip.CLIP(**model_cfg)
        model.load_state_dict(read_state(weights), strict=True)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"{weights}: the weights do not fit {path.name} ({error}); download both again") from error
    tokenizer = open_clip.SimpleTokenizer(context_length=text_cfg.get("context_length", 77))
    preprocessing = _preprocessing(path, vision_cfg.get("image_size"), wanted.mean, wanted.std)
    made_by = f"open_clip {open_clip.__version__}"
    facts = {"format": made_by, "files": file_facts([weights]), "size": preprocessing.size}
    clip = _OpenClip(model.to(device).eval(), tokenizer, device)
    return PublishedClip(folder.resolve().name, facts, clip, preprocessing)


def _preprocessing(path: Path, size: Any, mean: Rgb | None, std: Rgb | None) -> Preprocessing:
    """The preprocessing that a model's configuration states; ValueError for an impossible image size."""
    if type(size) is not int or not 1 <= size <= LARGEST_SIDE:
        raise ValueError(f"{path}: images of {brief(size)} px; expected 1 to {LARGEST_SIDE}, download the file again")
    return Preprocessing(size, mean or CLIP_MEAN, std or CLIP_STD)


def _first_file(folder: Path, names: Sequence[str]) -> Path:
    return next(folder / name for name in names if (folder / name).is_file())
