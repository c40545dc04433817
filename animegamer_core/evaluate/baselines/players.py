"""GC, GFC and GSC: the paper's baselines (supplement 3.2) as players of a benchmark, drawn by stock pipelines.

They have no state: each turn is drawn from its instruction alone, and no motion level or stat change is predicted. The
first frame and the clip of turn n both have the seed `seed` + n - 1. Pipelines are loaded on first use.

F frames, H height, W width.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from PIL import Image, ImageOps

from ...data.captions.pictures import evenly
from ...game.state import clean_text, motion_text
from ...weights.storage import note_of
from ..players import PlayedShot
from . import BaselineSettings
from .folders import FLUX, IMAGE_TO_VIDEO, SDXL, TEXT_TO_VIDEO, FolderKind, ModelFolder, load_pipeline, open_folder
from .sharing import shared

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline
    from numpy.typing import NDArray

    from ...data.benchmark import BenchmarkGame

FPS = 8  # CogVideoX's clips and the benchmark's shots
SHOT_FRAMES = 17


class _Row(NamedTuple):
    """A baseline: its video model, its model of first frames if any, what they read, and settings it has no use for."""

    video: FolderKind
    pictures: FolderKind | None
    prompts: str
    unused: tuple[str, ...]


_ROWS = {
    # A CogVideoX-2B, fine-tuned as the decoder D_a was. `lora` is the fine-tuning; without it the folder's weights must
    # be fine-tuned already.
    "GC": _Row(TEXT_TO_VIDEO, None, "clip: the whole instruction", ("pictures", "style")),
    # As in the paper, the image-to-video model gets the action instruction: the motion part with its adverb.
    "GFC": _Row(IMAGE_TO_VIDEO, FLUX, "first frame: the whole instruction; clip: its motion part", ("style",)),
    # SDXL with consistent self-attention draws all first frames of a game together. A turn's seconds are those of its
    # clip, plus an equal part of the seconds for all first frames of the game.
    "GSC": _Row(
        IMAGE_TO_VIDEO,
        SDXL,
        "first frames: the whole instructions of a game at once; clip: the motion part",
        ("lora",),
    ),
}


class _PipelineModel:
    """A pipeline from a folder, with a LoRA merged if there is one.

    size: (H, W) of what it draws. steps: None for the folder's.
    """

    def __init__(
        self,
        folder: ModelFolder,
        settings: BaselineSettings,
        lora: Path | None,
        size: tuple[int, int],
        steps: int | None,
    ) -> None:
        if lora and (lora.suffix != ".safetensors" or not lora.is_file()):
            raise ValueError(f"{lora} is not a LoRA file; give a .safetensors file in diffusers' format")
        self._folder, self._settings, self._lora, self.size = folder, settings, lora, size
        self.sampling = {"steps": steps or folder.kind.steps, "guidance_scale": folder.kind.guidance_scale}
        self.facts = {
            **folder.facts,
            "lora": {"file": lora.name, "sha256": note_of(lora).sha256} if lora else None,
            "size": list(size),
            "dtype": settings.dtype_name,
            **self.sampling,
        }

    @cached_property
    def pipeline(self) -> DiffusionPipeline:
        return load_pipeline(self._folder, self._settings, self._lora)

    def _run(self, seeds: Sequence[int], **options: Any) -> Any:
        """Run the pipeline at the model's size, with CPU noise, so that it is the same on every device."""
        import torch

        noise = [torch.Generator().manual_seed(seed % 2**64) for seed in seeds]
        height, width = self.size
        return self.pipeline(
            height=height,
            width=width,
            num_inference_steps=self.sampling["steps"],
            guidance_scale=self.sampling["guidance_scale"],
            generator=noise,
            **options,
        )


class VideoModel(_PipelineModel):
    """A CogVideoX folder that draws a clip from text, or from a picture and text.

    frames: of a drawn clip, as in the training, since stock models need that.
    """

    def __init__(self, folder: ModelFolder, settings: BaselineSettings, lora: Path | None = None) -> None:
        config, factor = folder.config("transformer"), folder.vae_scale_factor
        if config.patch_size_t is not None:
            raise ValueError(
                f"{folder.path} is a CogVideoX 1.5 model, which has another frame rate and no fixed size; give a "
                f"CogVideoX 1.0 model, such as {folder.kind.repository}"
            )
        size = (config.sample_height * factor, config.sample_width * factor)
        super().__init__(folder, settings, lora, size, settings.steps)
        self.frames = config.sample_frames
        self._text_length = config.max_text_seq_length

    def draw(self, prompt: str, seed: int, picture: Image.Image | None) -> NDArray[np.uint8]:
        """Draw a clip and return its shot, uint8 (F, H, W, 3). picture: the first frame, of any size."""
        first: dict[str, Any] = {}
        if picture is not None:
            first["image"] = ImageOps.fit(picture, self.size[::-1], method=Image.Resampling.BICUBIC)
        drawn = self._run(
            [seed],
            prompt=prompt,
            num_frames=self.frames,
            max_sequence_length=self._text_length,
            output_type="np",
            **first,
        )
        clip = drawn.frames[0][frame_indices(len(drawn.frames[0]), SHOT_FRAMES)]
        return (np.clip(clip, 0, 1) * 255).round().astype(np.uint8)


class ImageModel(_PipelineModel):
    """A FLUX or SDXL folder that draws first frames with the aspect of a clip. shape: (H, W) of the clip."""

    def __init__(
        self, folder: ModelFolder, settings: BaselineSettings, shape: tuple[int, int], lora: Path | None = None
    ) -> None:
        size = picture_size(folder, shape, settings.picture_side)
        super().__init__(folder, settings, lora, size, settings.picture_steps)

    def draw(self, prompts: Sequence[str], seeds: Sequence[int], **options: Any) -> list[Image.Image]:
        """Draw a picture for each text. options: of the pipeline."""
        return self._run(seeds, prompt=list(prompts), output_type="pil", **options).images

    def draw_together(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[Image.Image]:
        """Draw one picture for each text, with consistent self-attention (see `sharing`)."""
        with shared(self.pipeline, seeds) as sharing:
            return self.draw(prompts, seeds, callback_on_step_end=sharing.next_step)


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


def frame_indices(drawn: int, wanted: int) -> list[int]:
    """Which frames of a clip of `drawn` frames make a shot of `wanted` frames; all if the clip has no more.

    They are spread evenly from the first to the last, so that the whole action is judged: 17 of 49 frames are 0, 3, 6
    .. 48, and move three times as fast. The paper does not say which frames it took.
    """
    return evenly(drawn, min(drawn, wanted))


class Baseline:
    """A baseline as a player. facts: the models, their prompts, and how their clips become shots."""

    fps = float(FPS)

    def __init__(self, name: str, settings: BaselineSettings) -> None:
        row = _ROWS[name]
        for unused in row.unused:
            if value := getattr(settings, unused):
                raise ValueError(f"{unused} is {value}, but {name} has no use for it; drop it")
        self.name, self._style = name, clean_text(settings.style)
        lora_of_clips, lora_of_pictures = (None, settings.lora) if row.pictures else (settings.lora, None)
        self._clips = VideoModel(open_folder(settings.video, row.video, name), settings, lora_of_clips)
        drawn, self._pictures = self._clips.frames, None
        facts: dict[str, Any] = {
            "baseline": name,
            "prompts": row.prompts,
            "video": self._clips.facts,
            "frames_drawn": drawn,
            "frames": min(drawn, SHOT_FRAMES),
            "speed": round(max(1.0, (drawn - 1) / (SHOT_FRAMES - 1)), 3),  # both have the same frame rate
            "shot_size": list(self._clips.size),
            "offload": settings.offload,
            "style": self._style,
        }
        if row.pictures:
            folder = open_folder(settings.pictures, row.pictures, name)
            self._pictures = ImageModel(folder, settings, self._clips.size, lora_of_pictures)
            facts["pictures"] = self._pictures.facts
        self.facts: Mapping[str, Any] = facts

    def play(self, game: BenchmarkGame, seed: int) -> Iterator[PlayedShot]:
        """Yield the shots of a game's turns, which have no predictions.

        Only the text states a shot's motion, so nothing is calibrated.
        """
        for model in filter(None, (self._pictures, self._clips)):
            model.pipeline  # noqa: B018  loaded before timing starts
        prompts = [clean_text(f"{turn.instruction} {self._style}") for turn in game.turns]
        begun = time.perf_counter()
        together = self._pictures.draw_together(prompts, range(seed, seed + len(prompts))) if self.name == "GSC" else []
        part = (time.perf_counter() - begun) / len(prompts)
        for index, (turn, prompt) in enumerate(zip(game.turns, prompts, strict=True)):
            begun, picture = time.perf_counter() - part, None
            if self._pictures is not None:
                picture = together[index] if together else self._pictures.draw([prompt], [seed + index])[0]
            text = prompt if picture is None else motion_text(turn.instruction)
            frames = self._clips.draw(text, seed + index, picture)
            yield PlayedShot(frames, None, None, time.perf_counter() - begun, uncalibrated=frames)
