"""The verb `new`: free base models, or a small world with more words, become a world to train."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

from ..checkpoint.base_folders import BaseFolders
from ..checkpoint.build import PRECISIONS
from ..checkpoint.new import new_world
from ..messages import shell_word
from ..spec import PROGRAM
from .options import one_of
from .progress_line import ProgressLine

ADDED_BY = {"text_tower": ("text encoder", "--t5 DIR"), "image_tower": ("image encoder", "--clip DIR")}


@dataclass(frozen=True, kw_only=True)
class Options:
    out: Path
    """World folder to create or complete."""
    cogvideox: Path | None = None
    """CogVideoX-2b in the diffusers layout."""
    mistral: Path | None = None
    """Mistral-7B-Instruct-v0.1 for transformers."""
    t5: Path | None = None
    """t5-v1_1-xxl; unset: CogVideoX-2b's own text_encoder."""
    clip: Path | None = None
    """CLIP-ViT-B-16-laion2B-s34B-b88K, needed to train."""
    start: Annotated[str | None, arg(name="from")] = None
    """Instead of base models: begin with a small world, such as toybox."""
    dataset: Path | None = None
    """With --from: the dataset whose words the new world knows too."""
    spec: Literal["release"] | None = None
    """Accept only models with the published sizes."""
    seed: int = 0
    """Seed of the random initial weights."""
    precision: Annotated[str, one_of(PRECISIONS)] = "released"
    """How to store float32 weights."""


def run(args: Options) -> int:
    """Make the world with a progress line; print where it is, what it lacks, its licences and the next command."""
    if args.start is not None:
        return _extend(args)
    if args.cogvideox is None or args.mistral is None or args.dataset is not None:
        raise ValueError("give --cogvideox and --mistral, or --from and --dataset")
    folders = BaseFolders(args.cogvideox, args.mistral, args.t5, args.clip)
    with ProgressLine() as line:
        world = new_world(folders, args.out, line.show, spec=args.spec, seed=args.seed, precision=args.precision)
    size = sum(note.bytes for note in world.files.values())
    lines = [
        f"world {world.spec.name!r} is in {world.folder}, {size / 1e9:.2f} GB; it has not been trained on a film yet"
    ]
    for part, (name, option) in ADDED_BY.items():
        if not world.has(part):
            lines.append(f"its {name} is missing, which training needs; run this again with {option}")
    next_step = f"{PROGRAM} train warmup --dataset DATASET --world {shell_word(world.folder)} --out runs/warmup"
    sys.stdout.write("\n".join([*lines, "", world.licence, f"Next: {next_step}", ""]))
    return 0


def _extend(args: Options) -> int:
    """Make a world that begins with another one's weights."""
    from ..checkpoint import open_world
    from ..data.dataset import DatasetFolder
    from ..train.world_setup import extended_world

    if args.dataset is None or any((args.cogvideox, args.mistral, args.t5, args.clip)):
        raise ValueError("--from needs --dataset, and takes none of --cogvideox, --mistral, --t5 and --clip")
    world = extended_world(open_world(args.start), DatasetFolder.open(args.dataset), args.out, args.seed)
    folder, dataset = shell_word(world.folder), shell_word(args.dataset)
    sys.stdout.write(
        f"{world.folder} has the weights of {args.start}, and knows the words of {args.dataset} too\n"
        f"Next: {PROGRAM} train all --dataset {dataset} --world {folder} --out runs/{world.folder.name}\n"
    )
    return 0
