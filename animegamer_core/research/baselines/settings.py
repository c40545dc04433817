"""What a baseline draws with: its folders, files and numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

NAMES = ("gc", "gfc", "gsc")
TAKES = ("even", "first")
DTYPES = ("auto", "float32", "bfloat16", "float16")
FPS = 8  # CogVideoX's clips and the benchmark's shots
SHOT_FRAMES = 17


@dataclass(frozen=True, kw_only=True)
class BaselineSettings:
    """Folders, files and numbers of a baseline. None leaves a number to the folder, and after it to diffusers.

    video, pictures: the folders that draw clips and first frames. lora: a file for the video model of gc, for FLUX of
    gfc. steps, guidance_scale, clip_frames: of a clip. picture_steps, picture_side: of a first frame; its area is that
    of a square of this side. style, batch, share, share_after: of gsc; `style` follows every instruction, `batch` first
    frames are drawn at once (0: those of a whole game), and from step `share_after` on each shows the fraction `share`
    of its tokens to the others.

    take: of a clip that is longer than a shot, `even` keeps evenly spaced frames, the first and last included, so that
    the whole drawn action is judged (49 frames become 17 that move three times as fast); `first` keeps the opening at
    its own speed. The paper does not say; the facts name which it was and how much faster it is.
    """

    video: Path | None = None
    pictures: Path | None = None
    lora: Path | None = None
    device: str = "auto"
    dtype: str = "auto"  # float32 on a CPU, bfloat16 elsewhere
    offload: bool = False
    steps: int | None = None
    guidance_scale: float | None = None
    clip_frames: int | None = None
    picture_steps: int | None = None
    picture_side: int | None = None
    take: str = "even"
    style: str = ""
    batch: int = 0
    share: float = 0.5
    share_after: int = 5

    def __post_init__(self) -> None:
        if self.take not in TAKES:
            raise ValueError(f"take is {self.take!r}; choose {' or '.join(TAKES)}")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype is {self.dtype!r}; choose {' or '.join(DTYPES)}")
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
