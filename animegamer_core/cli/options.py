"""Options that several verbs share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def add_adapter_option(parser: argparse.ArgumentParser) -> None:
    """Add --stage-file (or --lora), which may be repeated."""
    parser.add_argument(
        "--lora",
        "--stage-file",
        dest="stage_file",
        action="append",
        default=[],
        metavar="FILE[=X]",
        help="LoRA file or other weights from a training stage, applied to the world with strength X (default 1); can "
        "be repeated",
    )


def add_scoring_options(add: Callable[..., object], kinds: Sequence[str], about: str) -> None:
    """Add --towers, --clip and --dreamsim. kinds: of scoring models; about: what --towers chooses."""
    add("--towers", choices=kinds, default="toybox", help=f"{about} (default %(default)s)")
    add("--clip", type=Path, metavar="DIR", help="published: folder of a CLIP model")
    about = "folder of DreamSim's weights; it contains DINO code that is executed, so download it yourself"
    add("--dreamsim", type=Path, metavar="DIR", help=f"published: {about}")


def confirmed(question: str) -> bool:
    """Ask on the terminal; only a yes counts, and no answer is a no."""
    sys.stdout.write(f"{question} [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
