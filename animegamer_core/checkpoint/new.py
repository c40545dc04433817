"""`new`: the free base models become a world to train, part by part. What is new in it begins as `fresh` says."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from ..spec import PROGRAM
from .base import BaseModels, open_base
from .base_folders import LICENCE, BaseFolders
from .making import PRECISIONS, OnProgress, Plan, check_precision, make_world
from .show import ProgressLine
from .storage import CheckpointError
from .world import World

SEEDS = range(2**63)
ADDED_BY = {"text_tower": ("text encoder", "--t5 DIR"), "image_tower": ("image encoder", "--clip DIR")}


def new_world(
    folders: BaseFolders,
    out: str | Path,
    on_progress: OnProgress | None = None,
    *,
    spec: str | None = None,
    seed: int = 0,
    precision: str = "released",
) -> World:
    """Make the world folder `out` of base models; returns the world, which has yet to be trained.

    spec: `release` refuses models of any other sizes; None takes the sizes of the files. seed: of what begins random.
    A second run adds what was not there and skips parts whose files, seed and checksums are unchanged. precision
    `released` stores float32 in 16 bits, `keep` as it is. CheckpointError names file, content and expectation before
    anything is written; ValueError for a seed below 0, and while anybody else writes to `out`.
    """
    check_precision(precision)
    if spec not in (None, "release"):
        raise ValueError(f"spec is {spec!r}; choose release, or leave it out to take the sizes of the files")
    if seed not in SEEDS:
        raise ValueError(f"seed is {seed}; expected 0 to {SEEDS[-1]}")
    base = open_base(folders, seed, spec)
    check_apart(base.folders, Path(out))
    return make_world(_plan(base, seed), Path(out), on_progress, precision)


def check_apart(folders: BaseFolders, out: Path) -> None:
    """CheckpointError where a world would be written into a folder that it is made from."""
    for folder in folders.all:
        if folder.resolve() in (out.resolve(), *out.resolve().parents):
            raise CheckpointError(f"{out}: lies in {folder}, which stays as it is; choose another folder for the world")


def _plan(base: BaseModels, seed: int) -> Plan:
    return Plan(
        spec=base.spec,
        sources=base.sources,
        files=base.files,
        build=base.build,
        profile="paper",
        licence=LICENCE,
        made_by={"made_by": "new", "seed": str(seed)},
        settings={
            part: f"seed {seed}: {[(name, made.shape) for name, made in source.fresh.items()]}"
            for part, source in base.sources.items()
            if source.fresh
        },
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `python -m animegamer_core new`."""
    parser.add_argument(
        "--cogvideox", metavar="DIR", type=Path, required=True, help="CogVideoX-2b, as diffusers has it"
    )
    parser.add_argument(
        "--mistral", metavar="DIR", type=Path, required=True, help="Mistral-7B-Instruct-v0.1, as transformers has it"
    )
    parser.add_argument("--t5", metavar="DIR", type=Path, help="t5-v1_1-xxl; default: CogVideoX-2b's own text_encoder")
    parser.add_argument("--clip", metavar="DIR", type=Path, help="CLIP-ViT-B-16-laion2B-s34B-b88K, needed to train")
    parser.add_argument("--out", metavar="WORLD", type=Path, required=True, help="world folder to make or complete")
    parser.add_argument("--spec", choices=("release",), help="refuse models of any other sizes than the published ones")
    parser.add_argument("--seed", type=int, default=0, help="of what begins random (default %(default)s)")
    parser.add_argument("--precision", choices=PRECISIONS, default="released", help="how float32 weights are stored")


def run(args: argparse.Namespace) -> int:
    """Make the world with a progress line; prints what it is and lacks, its licences and the next command."""
    folders = BaseFolders(args.cogvideox, args.mistral, args.t5, args.clip)
    with ProgressLine() as line:
        world = new_world(folders, args.out, line.show, spec=args.spec, seed=args.seed, precision=args.precision)
    sys.stdout.write("\n".join([*described(world), ""]))
    return 0


def described(world: World) -> list[str]:
    """Lines for people: where a new world lies, what it cannot do yet, under which licences, and the next command."""
    size = sum(note.bytes for note in world.files.values())
    lacking = [ADDED_BY[part] for part in ADDED_BY if not world.has(part)]
    lines = [f"world {world.spec.name!r} is in {world.folder}, {size / 1e9:.2f} GB; it has not learned a film yet"]
    lines += [f"its {what} is missing, which training needs; run this again with {how}" for what, how in lacking]
    next_step = f"{PROGRAM} train warmup --dataset DATASET --world {shlex.quote(str(world.folder))} --out runs/warmup"
    return [*lines, "", world.licence, f"Next: {next_step}"]
