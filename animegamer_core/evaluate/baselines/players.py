"""GC, GFC and GSC: the paper's baselines (supplement 3.2) as players of a benchmark, drawn by stock pipelines.

They have no state: each turn is drawn from its instruction alone, and no motion level or stat change is predicted. The
first frame and the clip of turn n both have the seed `seed` + n - 1. Pipelines are loaded on first use.

F frames, H height, W width.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageOps

from ...game.state import clean_text, motion_text
from ...weights.storage import note_of
from ..players import PlayedShot
from . import FPS, SHOT_FRAMES, BaselineSettings
from .folders import FLUX, IMAGE_TO_VIDEO, SDXL, TEXT_TO_VIDEO, FolderKind, ModelFolder, load_pipeline, open_folder
from .sharing import SharedAttention, Sharing, groups

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline
    from numpy.typing import NDArray

    from ...data.benchmark import BenchmarkGame


class _PipelineModel:
    """A pipeline from a folder, with a LoRA merged if there is one.

    size: (H, W) of what it draws. sampling: its steps and guidance_scale: those given, else the folder's.
    """

    def __init__(
        self, folder: ModelFolder, settings: BaselineSettings, lora: Path | None, size: tuple[int, int], **given: Any
    ) -> None:
        if lora and (lora.suffix != ".safetensors" or not lora.is_file()):
            raise ValueError(f"{lora} is not a LoRA file; give a .safetensors file in diffusers' format")
        self._folder, self._settings, self._lora, self.size = folder, settings, lora, size
        self._defaults = folder.sampling(lora)
        wanted = {name: self._defaults[name] for name in ("steps", "guidance_scale")}
        self._sampling = wanted | {name: value for name, value in given.items() if value is not None}
        self.facts = {
            **folder.facts,
            "lora": {"file": lora.name, "sha256": note_of(lora).sha256} if lora else None,
            "size": list(size),
            "dtype": settings.dtype_name,
            **self._sampling,
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
            num_inference_steps=self._sampling["steps"],
            guidance_scale=self._sampling["guidance_scale"],
            generator=noise,
            **options,
        )


class VideoModel(_PipelineModel):
    """A CogVideoX folder that draws a clip from text, or from a picture and text.

    frames: of a drawn clip: the setting, else as in the training, since stock models need that.
    """

    def __init__(self, folder: ModelFolder, settings: BaselineSettings, lora: Path | None = None) -> None:
        config, factor = folder.config("transformer"), folder.vae_scale_factor
        if config.patch_size_t is not None:
            raise ValueError(
                f"{folder.path} is a CogVideoX 1.5 model, which has another frame rate and no fixed size; give a "
                f"CogVideoX 1.0 model, such as {folder.kind.repository}"
            )
        size = (config.sample_height * factor, config.sample_width * factor)
        super().__init__(folder, settings, lora, size, steps=settings.steps, guidance_scale=settings.guidance_scale)
        self.frames = settings.clip_frames or self._defaults.get("frames") or config.sample_frames
        self._text_length = config.max_text_seq_length

    def draw(self, prompt: str, seed: int, picture: Image.Image | None = None) -> NDArray[np.uint8]:
        """Draw a clip and return its shot, uint8 (F, H, W, 3). picture: the first frame, of any size."""
        first: dict[str, Any] = {}
        if self._folder.kind is IMAGE_TO_VIDEO:
            first["image"] = ImageOps.fit(picture, self.size[::-1], method=Image.Resampling.BICUBIC)
        drawn = self._run(
            [seed],
            prompt=prompt,
            num_frames=self.frames,
            max_sequence_length=self._text_length,
            output_type="np",
            **first,
        )
        clip = drawn.frames[0][frame_indices(len(drawn.frames[0]), SHOT_FRAMES, self._settings.take)]
        return (np.clip(clip, 0, 1) * 255).round().astype(np.uint8)


class ImageModel(_PipelineModel):
    """A FLUX or SDXL folder that draws first frames with the aspect of a clip. shape: (H, W) of the clip."""

    def __init__(
        self, folder: ModelFolder, settings: BaselineSettings, shape: tuple[int, int], lora: Path | None = None
    ) -> None:
        size = picture_size(folder, shape, settings.picture_side)
        super().__init__(folder, settings, lora, size, steps=settings.picture_steps)

    def draw(self, prompts: Sequence[str], seeds: Sequence[int], **options: Any) -> list[Image.Image]:
        """Draw a picture for each text. options: of the pipeline."""
        return self._run(seeds, prompt=list(prompts), output_type="pil", **options).images

    def draw_together(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[Image.Image]:
        """Draw one picture for each text, with consistent self-attention (see `sharing`)."""
        drawn: dict[int, Image.Image] = {}
        settings = self._settings
        batches = groups(len(prompts), settings.batch)
        for batch in batches:
            own = [seeds[index] for index in batch]
            identity = settings.batch // 2 if len(batches) > 1 else 0
            with _shared(self.pipeline, Sharing(own, identity, settings.share, settings.share_after)) as on_step:
                pictures = self.draw([prompts[index] for index in batch], own, callback_on_step_end=on_step)
            for index, picture in zip(batch, pictures, strict=True):
                drawn.setdefault(index, picture)
        return [drawn[index] for index in range(len(prompts))]


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


class _Baseline:
    """What the baselines share: frame rate, facts for the report, and drawing one turn."""

    name = ""
    prompts = ""
    fps = float(FPS)

    def __init__(self, settings: BaselineSettings, video: FolderKind, lora: Path | None = None) -> None:
        self._settings = settings
        self._clips = VideoModel(open_folder(settings.video, video, self.name), settings, lora)
        drawn = self._clips.frames
        self.facts: dict[str, Any] = {  # the models, their prompts, and how their clips become shots
            "baseline": self.name,
            "prompts": self.prompts,
            "video": self._clips.facts,
            "frames_drawn": drawn,
            "frames": min(drawn, SHOT_FRAMES),
            "take": settings.take,
            "speed": round(speed(drawn, SHOT_FRAMES, settings.take), 3),
            "shot_size": list(self._clips.size),
            "offload": settings.offload,
        }

    def _open_pictures(self, kind: FolderKind, lora: Path | None = None) -> None:
        """The model of the first frames."""
        folder = open_folder(self._settings.pictures, kind, self.name)
        self._pictures = ImageModel(folder, self._settings, self._clips.size, lora)
        self.facts["pictures"] = self._pictures.facts

    def _shot(self, begun: float, text: str, seed: int, picture: Image.Image | None = None) -> PlayedShot:
        """Draw a turn's shot. It has no predictions; only the text states its motion, so nothing is calibrated."""
        frames = self._clips.draw(text, seed, picture)
        return PlayedShot(frames, None, None, time.perf_counter() - begun, uncalibrated=frames)


class GC(_Baseline):
    """A CogVideoX-2B, fine-tuned as the decoder D_a was, draws every clip from the whole instruction.

    `lora` is the fine-tuning. Without it, the folder's weights must be fine-tuned already, like those that stage `gc`
    makes in the Toybox.
    """

    name = "GC"
    prompts = "clip: the whole instruction"

    def __init__(self, settings: BaselineSettings) -> None:
        if settings.pictures is not None:
            raise ValueError(f"pictures is {settings.pictures}, but GC draws no first frames; drop it")
        super().__init__(settings, TEXT_TO_VIDEO, settings.lora)

    def play(self, game: BenchmarkGame, seed: int) -> Iterator[PlayedShot]:
        self._clips.pipeline  # noqa: B018  loaded before timing starts
        for index, turn in enumerate(game.turns):
            yield self._shot(time.perf_counter(), clean_text(turn.instruction), seed + index)


class GFC(_Baseline):
    """FLUX with a LoRA draws a first frame from the instruction; CogVideoX-5B-I2V animates it.

    As in the paper, the image-to-video model gets the action instruction: the motion part with its adverb.
    """

    name = "GFC"
    prompts = "first frame: the whole instruction; clip: its motion part"

    def __init__(self, settings: BaselineSettings) -> None:
        super().__init__(settings, IMAGE_TO_VIDEO)
        self._open_pictures(FLUX, settings.lora)

    def play(self, game: BenchmarkGame, seed: int) -> Iterator[PlayedShot]:
        self._pictures.pipeline, self._clips.pipeline  # noqa: B018
        for index, turn in enumerate(game.turns):
            begun = time.perf_counter()
            (picture,) = self._pictures.draw([clean_text(turn.instruction)], [seed + index])
            yield self._shot(begun, motion_text(turn.instruction), seed + index, picture)


class GSC(_Baseline):
    """SDXL with consistent self-attention draws all first frames of a game together; they are animated as in GFC.

    A turn's seconds are those of its clip, plus an equal part of the seconds for all first frames of the game.
    """

    name = "GSC"
    prompts = "first frames: the whole instructions of a game at once; clip: the motion part"

    def __init__(self, settings: BaselineSettings) -> None:
        if settings.lora is not None:
            raise ValueError(f"lora is {settings.lora}, but GSC uses no LoRA; drop it")
        super().__init__(settings, IMAGE_TO_VIDEO)
        self._open_pictures(SDXL)
        self.facts |= {name: getattr(settings, name) for name in ("style", "share", "share_after", "batch")}
        self.facts["seconds"] = "a clip's own, and an equal share of the time of the game's first frames"

    def play(self, game: BenchmarkGame, seed: int) -> Iterator[PlayedShot]:
        """Yield the shots of a game's turns; draws all first frames before the first one."""
        self._pictures.pipeline, self._clips.pipeline  # noqa: B018
        style = clean_text(self._settings.style)
        begun = time.perf_counter()
        prompts = [" ".join(filter(None, (clean_text(turn.instruction), style))) for turn in game.turns]
        pictures = self._pictures.draw_together(prompts, [seed + index for index in range(len(prompts))])
        shared = (time.perf_counter() - begun) / len(prompts)
        for index, (turn, picture) in enumerate(zip(game.turns, pictures, strict=True)):
            yield self._shot(time.perf_counter() - shared, motion_text(turn.instruction), seed + index, picture)
