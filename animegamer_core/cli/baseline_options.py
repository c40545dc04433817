"""The options of `evaluate world` that let a baseline play in the world's place."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..research.baselines.settings import NAMES, TAKES, BaselineSettings

_PREFIX = "baseline_"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `--baseline NAME` and its options; --device, --dtype, --steps and --seed are the command's own."""
    group = parser.add_argument_group(
        "baselines", "baseline to play instead of the world, from folders in diffusers' layout"
    )
    group.add_argument("--baseline", choices=NAMES, help="text to video, FLUX to video, StoryDiffusion to video")
    usual = BaselineSettings()

    def add(option: str, about: str, **how: Any) -> None:  # an option that is not given is absent: see _given
        group.add_argument(f"--baseline-{option}", help=about, default=argparse.SUPPRESS, **how)

    add(
        "video",
        "folder: CogVideoX-2b for gc; CogVideoX-5b-I2V, or one like it such as AniSora, for gfc and gsc",
        type=Path,
        metavar="DIR",
    )
    add("pictures", "folder that draws first frames: FLUX.1-dev for gfc, SDXL for gsc", type=Path, metavar="DIR")
    add("lora", "safetensors file: LoRA of the video model for gc, of FLUX for gfc", type=Path, metavar="FILE")
    add(
        "offload",
        "keep only the running model on the GPU, and decode in tiles: slower, less memory",
        action="store_true",
    )
    add("guidance-scale", "guidance scale of a clip (default: the folder's, or 6)", type=float, metavar="X")
    add(
        "clip-frames",
        "frames per clip, 8n + 1; choose what a LoRA was trained on (default: the folder's)",
        type=int,
        metavar="N",
    )
    add("picture-steps", "sampling steps of a first frame (default: 28 for FLUX, 50 for SDXL)", type=int, metavar="N")
    add(
        "picture-side",
        "size of a first frame, as the side of a square with the same area (default: the folder's)",
        type=int,
        metavar="N",
    )
    add(
        "take",
        "frames to take from a longer clip: even, spread over all of it; first, its start at the original speed "
        f"(default {usual.take})",
        choices=TAKES,
    )
    add("style", "words to append to every instruction for SDXL, such as `anime style` (gsc)", metavar="WORDS")
    add(
        "batch",
        f"first frames drawn at once; fewer save memory; 0: those of a whole game (gsc) (default {usual.batch})",
        type=int,
        metavar="N",
    )
    add(
        "share",
        f"fraction of each picture's tokens that the others see (gsc) (default {usual.share})",
        type=float,
        metavar="X",
    )
    add(
        "share-after",
        f"steps before pictures see each other (gsc) (default {usual.share_after})",
        type=int,
        metavar="N",
    )


def check_unused(args: argparse.Namespace) -> None:
    """ValueError for an option of baselines without --baseline."""
    if args.baseline is None:
        for name in _given(args):
            option = f"--baseline-{name.replace('_', '-')}"
            names = " or ".join(NAMES)
            raise ValueError(f"{option} needs a baseline; drop it, or add --baseline {names}")


def settings_of(args: argparse.Namespace, device: str) -> BaselineSettings:
    """The settings that were typed, on this device."""
    return BaselineSettings(**_given(args), device=device, dtype=args.dtype, steps=args.steps)


def _given(args: argparse.Namespace) -> dict[str, Any]:
    """The baseline's options that were typed, by the names of their settings."""
    return {name.removeprefix(_PREFIX): value for name, value in vars(args).items() if name.startswith(_PREFIX)}
