"""The options of `evaluate world` that let a baseline play in the world's place."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from ..research.baselines.settings import NAMES, TAKES, BaselineSettings
from .options import Flag, one_of

_PREFIX = "baseline_"


@dataclass(frozen=True, kw_only=True)
class BaselineOptions:
    """A baseline to play instead of the world, from folders in diffusers' layout."""

    baseline: Annotated[str, one_of(NAMES)] | None = None
    """Play a baseline instead of the world: text to video, FLUX to video, StoryDiffusion to video."""
    baseline_video: Path | None = None
    """Folder: CogVideoX-2b for gc; CogVideoX-5b-I2V, or one like it such as AniSora, for gfc and gsc."""
    baseline_pictures: Path | None = None
    """Folder that draws first frames: FLUX.1-dev for gfc, SDXL for gsc."""
    baseline_lora: Path | None = None
    """Safetensors file: LoRA of the video model for gc, of FLUX for gfc."""
    baseline_offload: Flag = False
    """Keep only the running model on the GPU, and decode in tiles: slower, less memory."""
    baseline_guidance_scale: float | None = None
    """Guidance scale of a clip; unset: the folder's, or 6."""
    baseline_clip_frames: int | None = None
    """Frames per clip, 8n + 1; choose what a LoRA was trained on; unset: the folder's."""
    baseline_picture_steps: int | None = None
    """Sampling steps of a first frame; unset: 28 for FLUX, 50 for SDXL."""
    baseline_picture_side: int | None = None
    """Size of a first frame, as the side of a square with the same area; unset: the folder's."""
    baseline_take: Annotated[str, one_of(TAKES)] | None = None
    """Frames to take from a longer clip: even, spread over all of it; first, its start at the original speed."""
    baseline_style: str | None = None
    """Words to append to every instruction for SDXL, such as `anime style` (gsc)."""
    baseline_batch: int | None = None
    """First frames drawn at once; fewer save memory; 0: those of a whole game (gsc)."""
    baseline_share: float | None = None
    """Fraction of each picture's tokens that the others see (gsc)."""
    baseline_share_after: int | None = None
    """Steps before pictures see each other (gsc)."""


def check_unused(args: BaselineOptions) -> None:
    """ValueError for an option of baselines without --baseline."""
    if args.baseline is None:
        for name in _given(args):
            option = f"--baseline-{name.replace('_', '-')}"
            names = " or ".join(NAMES)
            raise ValueError(f"{option} needs a baseline; drop it, or add --baseline {names}")


def settings_of(args: Any, device: str) -> BaselineSettings:
    """The settings that were typed, on this device."""
    return BaselineSettings(**_given(args), device=device, dtype=args.dtype, steps=args.steps)


def _given(args: BaselineOptions) -> dict[str, Any]:
    """The baseline's options that were typed, by the names of their settings."""
    typed = {field.name: getattr(args, field.name) for field in fields(BaselineOptions) if field.name != "baseline"}
    return {
        name.removeprefix(_PREFIX): value for name, value in typed.items() if value is not None and value is not False
    }
