"""The paper's baselines GC, GFC and GSC as players, which draw with stock diffusers pipelines in the user's folders.

This module does not import torch; models are loaded when the first game is played.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..players import GamePlayer

NAMES = ("gc", "gfc", "gsc")


@dataclass(frozen=True, kw_only=True)
class BaselineSettings:
    """Folders, files and numbers of a baseline; a number that is None comes from the folder, or else from diffusers."""

    video: Path | None = None
    """Folder: CogVideoX-2b for gc; CogVideoX-5b-I2V, or one like it such as AniSora, for gfc and gsc."""
    pictures: Path | None = None
    """Folder that draws first frames: FLUX.1-dev for gfc, SDXL for gsc."""
    lora: Path | None = None
    """Safetensors file: LoRA of the video model for gc, of FLUX for gfc."""
    offload: bool = False
    """Keep only the running model on the GPU, and decode in tiles: slower, less memory."""
    picture_steps: int | None = None
    """Sampling steps of a first frame; unset: 28 for FLUX, 50 for SDXL."""
    picture_side: int | None = None
    """Size of a first frame, as the side of a square with the same area; unset: the folder's."""
    style: str = ""
    """Words to append to every instruction for SDXL, such as `anime style` (gsc)."""
    device: str = "auto"
    dtype: str = "auto"  # float32 on a CPU, bfloat16 elsewhere
    steps: int | None = None

    @property
    def dtype_name(self) -> str:
        from ...runtime.device import choose_device

        on_cpu = choose_device(self.device) == "cpu"
        return self.dtype if self.dtype != "auto" else "float32" if on_cpu else "bfloat16"


def open_baseline(name: str, settings: BaselineSettings) -> GamePlayer:
    """Open the baseline `gc`, `gfc` or `gsc`; ValueError if a folder or a file is missing or wrong."""
    from .players import Baseline

    return Baseline(name.upper(), settings)
