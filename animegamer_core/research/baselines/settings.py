"""The settings of a baseline: its folders, files and numbers."""

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
    """Folders, files and numbers of a baseline; ValueError for an impossible value.

    A number that is None comes from the folder, or else from diffusers. video, pictures: the folders of the models that
    draw clips and first frames. lora: a file for gc's video model, or for gfc's FLUX. offload: keep models on the host
    while they are not used. steps, guidance_scale, clip_frames: of a clip. picture_steps, picture_side: of a first
    frame, whose area is that of a square with this side in px. style, batch, share, share_after: only for gsc. `style`
    is appended to every instruction; `batch` first frames are drawn at once (0: all of a game); from step `share_after`
    on, each shares the fraction `share` of its tokens with the others.

    take: which frames of a clip that is longer than a shot are kept. `even` keeps evenly spaced ones, with the first
    and the last, so that the whole action is judged (17 of 49 frames move three times as fast); `first` keeps the
    beginning at its own speed. The paper does not say which it did; the facts state the choice and the speed.
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
