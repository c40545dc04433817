"""The verb `convert`: published weight files become a world folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..checkpoint.build import PRECISIONS
from ..checkpoint.convert import convert
from .progress_line import ProgressLine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `convert`."""
    parser.add_argument("src", metavar="SRC", type=Path, help="folder with MLLM-*/, VDM_Decoder-*/, VAE and Mistral")
    parser.add_argument("--out", metavar="WORLD", type=Path, required=True, help="world folder to create or complete")
    parser.add_argument("--name", help="which world, if SRC holds several (qiqi, sosuke)")
    parser.add_argument("--precision", choices=PRECISIONS, default="released", help="how to store float32 weights")


def run(args: argparse.Namespace) -> int:
    """Convert with a progress line; print the licence notice and the parts that are missing."""
    with ProgressLine() as line:
        world = convert(args.src, args.out, line.show, name=args.name, precision=args.precision)
    lines = [f"world {world.spec.name!r} is in {world.folder}", *world.missing(), "", world.licence]
    sys.stdout.write("\n".join(lines))
    return 0
