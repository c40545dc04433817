"""Stock diffusers pipelines that draw clips or first frames. They are loaded on first use.

F frames, H height, W width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageOps

from . import SHOT_FRAMES, BaselineSettings
from .folders import (
    IMAGE_TO_VIDEO,
    ModelFolder,
    checked_lora,
    dtype_name,
    load_pipeline,
    picture_size,
    sampling_of,
)
from .sharing import SharedAttention, Sharing, groups

if TYPE_CHECKING:
    import torch
    from diffusers import DiffusionPipeline
    from numpy.typing import NDArray


class _PipelineModel:
    """A pipeline from a folder, with a LoRA merged if there is one."""

    size: Any  # (H, W) of what it draws
    _sampling: Any  # settings of its sampling, for reports

    def __init__(self, folder: ModelFolder, settings: BaselineSettings, lora: Path | None = None) -> None:
        self._folder = folder
        self._settings = settings
        self._lora = lora
        self._loaded: DiffusionPipeline | None = None
        self._lora_sha256 = checked_lora(lora) if lora else None
        self._defaults = sampling_of(folder, lora)

    @property
    def facts(self) -> dict[str, Any]:
        """The folder, its sampling settings, and the LoRA."""
        lora = {"file": self._lora.name, "sha256": self._lora_sha256} if self._lora else None
        dtype = dtype_name(self._settings)
        return {**self._folder.facts, "lora": lora, "size": list(self.size), "dtype": dtype, **self._sampling}

    def load(self) -> DiffusionPipeline:
        """The pipeline on its device; loads it on the first call."""
        if self._loaded is None:
            self._loaded = load_pipeline(self._folder, self._settings, self._lora)
        return self._loaded


class VideoModel(_PipelineModel):
    """A CogVideoX folder that draws a clip from text, or from a picture and text."""

    def __init__(self, folder: ModelFolder, settings: BaselineSettings, lora: Path | None = None) -> None:
        super().__init__(folder, settings, lora)
        if folder.config("transformer").patch_size_t is not None:
            raise ValueError(
                f"{folder.path} is a CogVideoX 1.5 model, which has another frame rate and no fixed size; give a "
                f"CogVideoX 1.0 model, such as {folder.kind.repository}"
            )

    @property
    def size(self) -> tuple[int, int]:
        """(H, W) of its clips, as in the transformer's training."""
        config, factor = self._folder.config("transformer"), self._folder.vae_scale_factor
        return config.sample_height * factor, config.sample_width * factor

    @property
    def frames(self) -> int:
        """The number of frames of a drawn clip: the setting, else as in the training, since stock models need that."""
        trained = self._defaults.get("frames") or self._folder.config("transformer").sample_frames
        return self._settings.clip_frames or trained

    @property
    def _sampling(self) -> dict[str, Any]:
        given = {"steps": self._settings.steps, "guidance_scale": self._settings.guidance_scale}
        return {name: self._defaults[name] if value is None else value for name, value in given.items()}

    def draw(self, prompt: str, seed: int, picture: Image.Image | None = None) -> NDArray[np.uint8]:
        """Draw a clip and return its shot, uint8 (F, H, W, 3). picture: the first frame, of any size."""
        height, width = self.size
        first = {"image": fitted(picture, self.size)} if self._folder.kind is IMAGE_TO_VIDEO else {}
        pipeline = self.load()
        clip = pipeline(
            **first,
            prompt=prompt,
            height=height,
            width=width,
            num_frames=self.frames,
            num_inference_steps=self._sampling["steps"],
            guidance_scale=self._sampling["guidance_scale"],
            max_sequence_length=self._folder.config("transformer").max_text_seq_length,
            generator=_generator(seed),
            output_type="np",
        ).frames[0]
        return to_frames(clip[frame_indices(len(clip), SHOT_FRAMES, self._settings.take)])


class ImageModel(_PipelineModel):
    """A FLUX or SDXL folder that draws first frames with the aspect of a clip. shape: (H, W) of the clip."""

    def __init__(
        self, folder: ModelFolder, settings: BaselineSettings, shape: tuple[int, int], lora: Path | None = None
    ) -> None:
        super().__init__(folder, settings, lora)
        self.size = picture_size(folder, shape, settings.picture_side)

    @property
    def _sampling(self) -> dict[str, Any]:
        steps = self._settings.picture_steps or self._defaults["steps"]
        return {"steps": steps, "guidance_scale": self._defaults["guidance_scale"]}

    def draw(self, prompt: str, seed: int) -> Image.Image:
        """Draw one text."""
        return self._draw([prompt], [seed])[0]

    def draw_together(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[Image.Image]:
        """Draw one picture for each text, with consistent self-attention (see `sharing`)."""
        drawn: dict[int, Image.Image] = {}
        settings = self._settings
        batches = groups(len(prompts), settings.batch)
        for batch in batches:
            own = [seeds[index] for index in batch]
            identity = settings.batch // 2 if len(batches) > 1 else 0
            with _shared(self.load(), Sharing(own, identity, settings.share, settings.share_after)) as on_step:
                pictures = self._draw([prompts[index] for index in batch], own, callback_on_step_end=on_step)
            for index, picture in zip(batch, pictures, strict=True):
                drawn.setdefault(index, picture)
        return [drawn[index] for index in range(len(prompts))]

    def _draw(self, prompts: list[str], seeds: Sequence[int], **options: Any) -> list[Image.Image]:
        pipeline, (height, width) = self.load(), self.size
        return pipeline(
            prompt=prompts,
            height=height,
            width=width,
            num_inference_steps=self._sampling["steps"],
            guidance_scale=self._sampling["guidance_scale"],
            generator=[_generator(seed) for seed in seeds],
            output_type="pil",
            **options,
        ).images


@contextmanager
def _shared(pipeline: DiffusionPipeline, sharing: Sharing) -> Iterator[Any]:
    """Give the pipeline's up blocks shared self-attention; yields the callback for the end of each step."""
    stock = pipeline.unet.attn_processors
    shared = SharedAttention(sharing)
    replaced = [name for name in stock if name.startswith("up_blocks.") and name.endswith(".attn1.processor")]
    pipeline.unet.set_attn_processor({**stock, **dict.fromkeys(replaced, shared)})

    def on_step(_pipeline: Any, _step: int, _timestep: Any, values: dict[str, Any]) -> dict[str, Any]:
        sharing.next_step()
        return values

    try:
        yield on_step
    finally:
        pipeline.unet.set_attn_processor(stock)


def _generator(seed: int) -> torch.Generator:
    """A CPU generator, so that noise is the same on every device."""
    import torch

    return torch.Generator().manual_seed(seed % 2**64)


def frame_indices(drawn: int, wanted: int, take: str) -> list[int]:
    """Which frames of a clip of `drawn` frames make a shot of `wanted` frames; all if the clip has no more.

    take "even": frame i is round(i (drawn - 1) / (wanted - 1)), so 17 of 49 frames are 0, 3, 6 .. 48. "first": frames
    0 .. wanted - 1.
    """
    if drawn <= wanted:
        return list(range(drawn))
    if take == "first":
        return list(range(wanted))
    return [round(index * (drawn - 1) / (wanted - 1)) for index in range(wanted)]


def speed(drawn: int, wanted: int, take: str) -> float:
    """How many times as fast the shot moves as the drawn clip, if both have the same frame rate."""
    return (drawn - 1) / (wanted - 1) if take == "even" and drawn > wanted else 1.0


def to_frames(clip_FHW3: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Convert a clip in [0, 1] to uint8 (F, H, W, 3)."""
    return (np.clip(clip_FHW3, 0, 1) * 255).round().astype(np.uint8)


def fitted(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    """A picture, centre-cropped and resized to `size` (height, width)."""
    return ImageOps.fit(picture, size[::-1], method=Image.Resampling.BICUBIC)
