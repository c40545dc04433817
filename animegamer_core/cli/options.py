"""Options that several verbs share."""

from __future__ import annotations

import argparse


def add_adapter_option(parser: argparse.ArgumentParser) -> None:
    """Add --stage-file (or --lora), which may be repeated."""
    parser.add_argument(
        "--lora",
        "--stage-file",
        dest="stage_file",
        action="append",
        default=[],
        metavar="FILE[=X]",
        help="file of LoRA or other weights that a training stage wrote, put on top of the world with strength X "
        "(default 1); may be repeated",
    )
