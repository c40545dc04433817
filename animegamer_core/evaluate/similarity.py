"""The scoring models behind CLIP-I, CLIP-T and DreamSim: published ones from the user's folders; downloads nothing.

M images or texts, E embedding width, H height, W width, C channels.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from PIL import Image

from ..game.state import clean_text
from ..json_files import read_json
from ..model.encoder import CLIP_MEAN, CLIP_STD
from ..weights.storage import note_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn
    from transformers import CLIPModel

FACTS = "scoring models"  # key of a run's settings
ROWS = {"clip": "CLIP-I, CLIP-T", "dreamsim": "DreamSim"}  # by the model that they need, which is also its option
CLIP_SOURCE = "https://huggingface.co/laion/CLIP-ViT-B-16-laion2B-s34B-b88K or openai/clip-vit-large-patch14 there"
PREPROCESSOR = "preprocessor_config.json"
CLIP_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
TOKENIZERS = ("tokenizer.json", "vocab.json")
# CLIP was trained with straight quotes; its authors' tokenizer replaces curly ones, transformers' does not.
STRAIGHT = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")
# The files that the `dreamsim` package reads for each of its models. It loads DINO (code and weights) by torch.hub.
_HUB = ("facebookresearch_dino_main/hubconf.py", "checkpoints/dino_vitbase16_pretrain.pth")
_DINO = ("dino_vitb16_pretrain.pth", *_HUB)
DREAMSIM_FILES: dict[str, tuple[str, ...]] = {
    "ensemble": (*_DINO, "open_clip_vitb16_pretrain.pth.tar", "clip_vitb16_pretrain.pth.tar"),
    "dino_vitb16": _DINO,
    "open_clip_vitb32": ("open_clip_vitb32_pretrain.pth.tar",),
    "clip_vitb32": ("clip_vitb32_pretrain.pth.tar",),
}
ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin")  # the fine-tuned weights (LoRA)
DREAMSIM_SIZE = 224  # px
BATCH = 32  # images or texts that are embedded at once

Rgb = tuple[float, float, float]


@dataclass(frozen=True)
class Preprocessing:
    """CLIP's preprocessing: resize the shorter side to `size` px (bicubic, antialiased), centre-crop, normalise."""

    size: int
    mean: Rgb = CLIP_MEAN
    std: Rgb = CLIP_STD

    def __call__(self, frames_MHWC: NDArray[np.uint8]) -> Tensor:
        """Preprocess RGB images of one size: (M, 3, size, size) fp32.

        The longer side and the crop are rounded as in the code of CLIP's authors.
        """
        sides = frames_MHWC.shape[1:3]
        target = int(self.size * sides[0] / min(sides)), int(self.size * sides[1] / min(sides))
        pixels = resized(frames_MHWC, target)
        top, left = (round((side - self.size) / 2) for side in target)
        square = pixels[..., top : top + self.size, left : left + self.size]
        mean, std = (square.new_tensor(values)[:, None, None] for values in (self.mean, self.std))
        return (square - mean) / std


def resized(frames_MHWC: NDArray[np.uint8], size: tuple[int, int]) -> Tensor:
    """Resize images to `size` (height, width): (M, 3, H, W) in [0, 1].

    Pillow resizes the bytes, as when the published models were trained; other libraries' bicubic interpolation differs
    enough to change a score.
    """
    scaled = [Image.fromarray(frame).resize(size[::-1], Image.Resampling.BICUBIC) for frame in frames_MHWC]
    return rearrange(torch.from_numpy(np.stack([np.asarray(one) for one in scaled])), "m h w c -> m c h w") / 255


@dataclass(frozen=True)
class PublishedClip:
    """A published CLIP model with its tokenizer and preprocessing.

    The encoders and projections are called directly, since the return types of CLIPModel's own methods differ between
    versions of transformers.
    """

    name: str
    facts: Mapping[str, Any]
    model: CLIPModel
    tokenizer: Any
    preprocessing: Preprocessing

    @torch.inference_mode()
    def embed_images(self, frames_MHWC: NDArray[np.uint8]) -> Tensor:
        """Embed RGB images of one size: (M, E) fp32 unit vectors on the CPU."""

        def features(part_MHWC: NDArray[np.uint8]) -> Tensor:
            pixels_MCHW = self.preprocessing(part_MHWC).to(self.model.device)
            return self.model.visual_projection(self.model.vision_model(pixel_values=pixels_MCHW).pooler_output)

        return _embed(features, frames_MHWC)

    @torch.inference_mode()
    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Embed texts: (M, E) fp32 unit vectors on the CPU.

        Texts are truncated to the model's length, and cannot contain its special tokens.
        """
        model, length = self.model, self.model.config.text_config.max_position_embeddings

        def features(part: list[str]) -> Tensor:
            tokens = self.tokenizer(part, padding=True, truncation=True, max_length=length, return_tensors="pt")
            inputs = {name: tokens[name].to(model.device) for name in ("input_ids", "attention_mask")}
            return model.text_projection(model.text_model(**inputs).pooler_output)

        return _embed(features, [clean_text(text).translate(STRAIGHT) for text in texts])


@dataclass(frozen=True)
class PublishedDreamSim:
    """The `dreamsim` package's model with its preprocessing."""

    name: str
    facts: Mapping[str, Any]
    model: nn.Module
    device: torch.device | str

    @torch.inference_mode()
    def embed_images(self, frames_MHWC: NDArray[np.uint8]) -> Tensor:
        """Embed RGB images of one size, resized to 224 x 224 px: (M, E) fp32 unit vectors on the CPU."""
        size = (DREAMSIM_SIZE, DREAMSIM_SIZE)
        return _embed(lambda part: self.model.embed(resized(part, size).to(self.device)), frames_MHWC)


def _embed(embed: Callable[[Any], Tensor], items: Any) -> Tensor:
    """Embed a list or an array in batches: (M, E) fp32 unit vectors on the CPU."""
    parts = [items[start : start + BATCH] for start in range(0, len(items), BATCH)]
    return F.normalize(torch.cat([embed(part).float().cpu() for part in parts]), dim=-1)


def open_clip_model(folder: Path, device: torch.device | str = "cpu") -> PublishedClip:
    """Open the CLIP model in a folder in transformers' format; ValueError names the missing files if there are any."""
    from safetensors import SafetensorError
    from transformers import AutoTokenizer, CLIPModel

    if lacking := _missing(folder, ("config.json", PREPROCESSOR, CLIP_WEIGHTS, TOKENIZERS)):
        raise ValueError(
            f"{folder} has no complete CLIP model in transformers' format: {', '.join(lacking)} is missing; download a "
            f"model yourself, for example {CLIP_SOURCE}"
        )
    wanted, weights = read_json(folder / PREPROCESSOR, dict[str, Any]), _first_file(folder, CLIP_WEIGHTS)
    try:
        model, notes = CLIPModel.from_pretrained(
            folder, local_files_only=True, dtype=torch.float32, output_loading_info=True
        )
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, RuntimeError, KeyError, SafetensorError) as error:
        raise ValueError(f"{folder}: transformers cannot read this CLIP model ({error}); download it again") from error
    if notes["missing_keys"]:  # transformers would initialise them randomly
        raise ValueError(f"{folder}: the weights lack {sorted(notes['missing_keys'])[0]}; download the model again")
    colours = wanted.get("image_mean", CLIP_MEAN), wanted.get("image_std", CLIP_STD)
    preprocessing = Preprocessing(model.config.vision_config.image_size, *colours)
    facts = {"format": "transformers", "files": _hashes([weights]), "size": preprocessing.size}
    return PublishedClip(folder.resolve().name, facts, model.to(device).eval(), tokenizer, preprocessing)


def open_dreamsim(folder: Path, device: torch.device | str = "cpu") -> PublishedDreamSim:
    """Open the DreamSim model in a folder; the ensemble if there are several. ValueError if none is complete.

    The package downloads files that it does not find, so it is only called if all are there. It runs the DINO code in
    the folder, so give a folder that you downloaded yourself.
    """
    tuned = {kind: "ensemble_lora" if kind == "ensemble" else f"{kind}_single_lora" for kind in DREAMSIM_FILES}
    kind = next((kind for kind, lora in tuned.items() if (folder / lora).is_dir()), "ensemble")
    adapters = tuple(f"{tuned[kind]}/{name}" for name in ADAPTERS)
    if lacking := _missing(folder, (*DREAMSIM_FILES[kind], f"{tuned[kind]}/adapter_config.json", adapters)):
        raise ValueError(
            f"{folder} has no complete DreamSim model; {kind!r} is missing {', '.join(lacking)}. Download "
            'it yourself on a machine with network access: `python -c "from dreamsim import dreamsim; '
            f"dreamsim(device='cpu', cache_dir='DIR', dreamsim_type='{kind}')\"`, and give DIR "
            "(https://github.com/ssundaram21/dreamsim)"
        )
    hub = torch.hub.get_dir()
    try:
        import dreamsim

        with contextlib.redirect_stdout(io.StringIO()):
            model, _ = dreamsim.dreamsim(device=str(device), cache_dir=str(folder), dreamsim_type=kind)
    except (ImportError, RuntimeError, KeyError, OSError) as error:
        raise ValueError(
            f"the package dreamsim cannot be imported or cannot read {kind!r} in {folder} ({error}); run `pip install "
            "dreamsim`, with a torchvision that matches your torch, or download the model again"
        ) from error
    finally:
        torch.hub.set_dir(hub)  # which the package changes
    weights = [folder / name for name in DREAMSIM_FILES[kind] if name.endswith((".pth", ".tar"))]
    facts = {"files": _hashes([*weights, _first_file(folder, adapters)])}
    return PublishedDreamSim(f"DreamSim {kind}", facts, model, device)


def _missing(folder: Path, names: Sequence[str | tuple[str, ...]]) -> list[str]:
    """The names that are missing in the folder. A tuple lists alternatives; its first name stands for all of them."""
    choices = [(name,) if isinstance(name, str) else name for name in names]
    return [each[0] for each in choices if not any((folder / name).exists() for name in each)]


def _first_file(folder: Path, names: Sequence[str]) -> Path:
    return next(folder / name for name in names if (folder / name).is_file())


def _hashes(paths: Sequence[Path]) -> dict[str, str]:
    return {path.name: note_of(path).sha256 for path in paths}


@dataclass(frozen=True)
class ScoringModels:
    """The models that score pictures: by the cosine of what they make of two. Without one, its rows are left out."""

    clip: PublishedClip | None = None
    dreamsim: PublishedDreamSim | None = None

    @property
    def given(self) -> dict[str, PublishedClip | PublishedDreamSim]:
        """The models by their options."""
        models: dict[str, Any] = {"clip": self.clip, "dreamsim": self.dreamsim}
        return {option: model for option, model in models.items() if model is not None}

    @property
    def by_row(self) -> dict[str, PublishedClip | PublishedDreamSim]:
        """The models by the row of their similarity between pictures."""
        return {"clip_i" if option == "clip" else option: model for option, model in self.given.items()}

    @property
    def facts(self) -> dict[str, Any]:
        """What a report says about the models by their options, as plain JSON values."""
        return {option: {"name": model.name, **model.facts} for option, model in self.given.items()}

    @property
    def remarks(self) -> tuple[str, ...]:
        """A remark about the rows that are left out, if there are any."""
        lacking = [key for key in ROWS if key not in self.given]
        rows, options = ", ".join(ROWS[key] for key in lacking), ", ".join(f"--{key} FOLDER" for key in lacking)
        return (f"left out: {rows}; the command's {options} (published weights) brings them",) if lacking else ()


def open_scoring_models(
    *, clip: Path | None = None, dreamsim: Path | None = None, device: torch.device | str = "cpu"
) -> ScoringModels:
    """Open the models in the user's folders of published weights, which are never downloaded.

    ValueError says which files are missing, and where to get them.
    """
    return ScoringModels(
        None if clip is None else open_clip_model(clip, device),
        None if dreamsim is None else open_dreamsim(dreamsim, device),
    )
