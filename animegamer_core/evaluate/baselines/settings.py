"""What a baseline is asked to do, and how the command line asks it."""

from __future__ import annotations

import argparse
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAMES = ("gc", "gfc", "gsc")
TAKES = ("even", "first")
DTYPES = ("auto", "float32", "bfloat16", "float16")
FPS = 8  # CogVideoX's clips and the benchmark's shots
SHOT_FRAMES = 17
METAVARS = {Path: "DIR", int: "N", float: "X", str: "WORDS"}


def _option(default: Any, text: str) -> Any:
    """A field with the sentence that documents it on the command line."""
    return dataclasses.field(default=default, metadata={"help": text})


@dataclass(frozen=True, kw_only=True)
class BaselineSettings:
    """Folders, files and numbers of a baseline. None leaves a number to the folder, and after it to diffusers.

    take: of a clip that is longer than a shot, `even` keeps evenly spaced frames, the first and last included, so that
    the whole drawn action is judged (49 frames become 17 that move three times as fast); `first` keeps the opening at
    its own speed. The paper does not say; the facts name which it was and how much faster it is.
    """

    video: Path | None = _option(
        None, "folder: CogVideoX-2b for gc; CogVideoX-5b-I2V, or one like it such as AniSora, for gfc and gsc"
    )
    pictures: Path | None = _option(None, "folder that draws first frames: FLUX.1-dev for gfc, SDXL for gsc")
    lora: Path | None = _option(None, "safetensors file: updates of the video model for gc, of FLUX for gfc")
    device: str = "auto"
    dtype: str = "auto"  # float32 on a CPU, bfloat16 elsewhere
    steps: int | None = None  # of a clip; None: the folder's, or 50
    offload: bool = _option(False, "keep on the GPU only the model at work, and decode in tiles: slower, less memory")
    guidance_scale: float | None = _option(None, "guidance scale of a clip (default: the folder's, or 6)")
    clip_frames: int | None = _option(
        None, "frames that a clip is drawn with, 8n + 1, such as a LoRA was trained on (default: the folder's)"
    )
    picture_steps: int | None = _option(None, "sampling steps of a first frame (default: 28 for FLUX, 50 for SDXL)")
    picture_side: int | None = _option(None, "side of a square as large as a first frame (default: the folder's)")
    take: str = _option("even", "frames of a longer clip: even, over all of it; first, its opening at its own speed")
    style: str = _option("", "words put behind every instruction that SDXL draws, such as `anime style` (gsc)")
    batch: int = _option(0, "first frames drawn at once, to save memory; 0: those of a whole game (gsc)")
    share: float = _option(0.5, "part of each picture's tokens that the others see (gsc)")
    share_after: int = _option(5, "steps before pictures see each other (gsc)")
    frames: int = SHOT_FRAMES  # of a shot
    size: tuple[int, int] | None = None  # height and width that shots are cropped and scaled to; None: as drawn

    def __post_init__(self) -> None:
        for name, allowed in (("take", TAKES), ("dtype", DTYPES)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; choose {' or '.join(allowed)}")
        for name in ("steps", "picture_steps", "picture_side"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 1 or more")
        if self.clip_frames is not None and (self.clip_frames < 9 or self.clip_frames % 8 != 1):
            raise ValueError(f"clip_frames is {self.clip_frames}; CogVideoX draws 8n + 1 frames, such as 17 or 49")
        if self.frames < 2:
            raise ValueError(f"frames is {self.frames}; a shot has 2 or more")
        if self.batch < 0 or self.batch == 1:
            raise ValueError(f"batch is {self.batch}; pictures see each other in batches of 2 or more, or 0 for all")
        if not 0 <= self.share <= 1 or self.share_after < 0:
            raise ValueError(f"share {self.share} must lie in 0..1, and share_after {self.share_after} be 0 or more")
        if self.guidance_scale is not None and not self.guidance_scale >= 0:
            raise ValueError(f"guidance_scale is {self.guidance_scale}; expected 0 or more (1: no guidance)")
        if self.size is not None and min(self.size) < 1:
            raise ValueError(f"size is {self.size}; expected a height and a width in pixels")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `--baseline NAME` and its options; --device, --dtype, --steps and --seed are the command's own."""
    group = parser.add_argument_group("baselines", "who plays instead of the world, from folders in diffusers' layout")
    group.add_argument("--baseline", choices=NAMES, help="text to video, FLUX to video, StoryDiffusion to video")
    kinds = {"lora": Path, "video": Path, "pictures": Path, "guidance_scale": float, "share": float, "style": str}
    for field in _fields():
        option, about = f"--baseline-{field.name.replace('_', '-')}", field.metadata["help"]
        if field.default is False:
            group.add_argument(option, action="store_true", help=about)
            continue
        kind = kinds.get(field.name, int)
        shown = "FILE" if field.name == "lora" else METAVARS[kind]
        told = "" if field.default in (None, "") else f" (default {field.default})"
        if field.name == "take":
            group.add_argument(option, choices=TAKES, default=field.default, help=about + told)
        else:
            group.add_argument(option, type=kind, default=field.default, metavar=shown, help=about + told)


def check_unused(args: argparse.Namespace) -> None:
    """ValueError for an option of baselines where none plays."""
    for field in _fields():
        if args.baseline is None and getattr(args, f"baseline_{field.name}") != field.default:
            option = f"--baseline-{field.name.replace('_', '-')}"
            raise ValueError(f"{option} is given, and no baseline plays; add --baseline {' or '.join(NAMES)}")


def settings_of(args: argparse.Namespace) -> BaselineSettings:
    """The settings that were typed; device, dtype and steps where the command has them."""
    told = {field.name: getattr(args, f"baseline_{field.name}") for field in _fields()}
    common = {name: getattr(args, name) for name in ("device", "dtype", "steps") if hasattr(args, name)}
    return BaselineSettings(**told, **common)


def _fields() -> list[dataclasses.Field]:
    """The fields that the command line offers."""
    return [field for field in dataclasses.fields(BaselineSettings) if "help" in field.metadata]
