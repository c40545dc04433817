"""The paper's baselines GC, GFC and GSC as players, which draw with stock diffusers pipelines in the user's folders.

This module does not import torch; models are loaded when the first game is played.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ..players import GamePlayer

NAMES = ("gc", "gfc", "gsc")
FPS = 8  # CogVideoX's clips and the benchmark's shots
SHOT_FRAMES = 17


@dataclass(frozen=True, kw_only=True)
class BaselineSettings:
    """Folders, files and numbers of a baseline; ValueError for an impossible value.

    A number that is None comes from the folder, or else from diffusers. About `take`: `even` includes the first and the
    last frame, so that the whole action is judged (17 of 49 frames move three times as fast). The paper does not say
    which it did; the facts state the choice and the speed.
    """

    video: Path | None = None
    """Folder: CogVideoX-2b for gc; CogVideoX-5b-I2V, or one like it such as AniSora, for gfc and gsc."""
    pictures: Path | None = None
    """Folder that draws first frames: FLUX.1-dev for gfc, SDXL for gsc."""
    lora: Path | None = None
    """Safetensors file: LoRA of the video model for gc, of FLUX for gfc."""
    offload: bool = False
    """Keep only the running model on the GPU, and decode in tiles: slower, less memory."""
    guidance_scale: float | None = None
    """Guidance scale of a clip; unset: the folder's, or 6."""
    clip_frames: int | None = None
    """Frames per clip, 8n + 1; choose what a LoRA was trained on; unset: the folder's."""
    picture_steps: int | None = None
    """Sampling steps of a first frame; unset: 28 for FLUX, 50 for SDXL."""
    picture_side: int | None = None
    """Size of a first frame, as the side of a square with the same area; unset: the folder's."""
    take: Literal["even", "first"] = "even"
    """Frames to take from a longer clip: even, spread over all of it; first, its start at the original speed."""
    style: str = ""
    """Words to append to every instruction for SDXL, such as `anime style` (gsc)."""
    batch: int = 0
    """First frames drawn at once; fewer save memory; 0: those of a whole game (gsc)."""
    share: float = 0.5
    """Fraction of each picture's tokens that the others see (gsc)."""
    share_after: int = 5
    """Steps before pictures see each other (gsc)."""
    device: str = "auto"
    dtype: str = "auto"  # float32 on a CPU, bfloat16 elsewhere
    steps: int | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "picture_steps", "picture_side"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; expected 1 or more")
        if self.clip_frames is not None and (self.clip_frames < 9 or self.clip_frames % 8 != 1):
            raise ValueError(f"clip_frames is {self.clip_frames}; CogVideoX draws 8n + 1 frames, such as 17 or 49")
        if self.batch < 0 or self.batch == 1:
            raise ValueError(f"batch is {self.batch}; pictures see each other in batches of 2 or more, or 0 for all")
        if not 0 <= self.share <= 1 or self.share_after < 0:
            raise ValueError(f"share {self.share} must be from 0 to 1, and share_after {self.share_after} 0 or more")
        if self.guidance_scale is not None and not self.guidance_scale >= 0:
            raise ValueError(f"guidance_scale is {self.guidance_scale}; expected 0 or more (1: no guidance)")

    @property
    def dtype_name(self) -> str:
        from ...runtime.device import choose_device

        on_cpu = choose_device(self.device) == "cpu"
        return self.dtype if self.dtype != "auto" else "float32" if on_cpu else "bfloat16"


def open_baseline(name: str, settings: BaselineSettings) -> GamePlayer:
    """Open the baseline `gc`, `gfc` or `gsc`; ValueError if a folder or a file is missing or wrong."""
    from . import players

    return getattr(players, name.upper())(settings)
