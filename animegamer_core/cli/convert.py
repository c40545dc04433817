"""The verb `convert`: published weight files become a world folder."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from ..checkpoint.build import PRECISIONS
from ..checkpoint.convert import convert
from .options import one_of
from .progress_line import ProgressLine


@dataclass(frozen=True, kw_only=True)
class Options:
    src: Positional[Path]
    """Folder with MLLM-*/, VDM_Decoder-*/, VAE and Mistral."""
    out: Path
    """World folder to create or complete."""
    name: str | None = None
    """Which world, if SRC holds several: qiqi or sosuke."""
    precision: Annotated[str, one_of(PRECISIONS)] = "released"
    """How to store float32 weights."""


def run(args: Options) -> int:
    """Convert with a progress line; print the licence notice and the parts that are missing."""
    with ProgressLine() as line:
        world = convert(args.src, args.out, line.show, name=args.name, precision=args.precision)
    lines = [f"world {world.spec.name!r} is in {world.folder}", *world.missing(), "", world.licence]
    sys.stdout.write("\n".join(lines))
    return 0
