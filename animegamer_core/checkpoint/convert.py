"""`convert`: the published files become a world folder, one tensor at a time, part by part."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .downloads import LICENCE, find_downloads
from .making import PRECISIONS, OnProgress, Plan, check_precision, make_world
from .parts import PARTS, PLAY_PARTS
from .published import Published, empty_model, open_published
from .show import ProgressLine
from .storage import CheckpointError
from .world import World


def convert(
    src: str | Path,
    out: str | Path,
    on_progress: OnProgress | None = None,
    *,
    name: str | None = None,
    precision: str = "released",
    parts: tuple[str, ...] = PLAY_PARTS,
) -> World:
    """Convert the published files below `src` into the world folder `out`; returns the world.

    `parts` must be found, further ones are taken where present. Everything is checked against the sizes that the files
    state before anything is written. A second run skips parts whose sources and checksums are unchanged. Host memory
    holds one shard (1 GiB) besides the mapped files. precision `released` stores float32 in the 16-bit type that the
    published scripts compute in, `keep` as it is. Raises CheckpointError, which names file, key and expectation, and
    ValueError while anybody else writes to `out`.
    """
    check_precision(precision)
    published = open_published(find_downloads(Path(src), name))
    absent = [part for part in parts if part not in published.sources]
    if absent:
        raise CheckpointError(f"{src}: nothing to make the {absent[0]} from; expected {PARTS[absent[0]].source}")
    return make_world(_plan(published), Path(out), on_progress, precision)


def _plan(published: Published) -> Plan:
    update_bytes = {part: source.lora_bytes for part, source in published.sources.items() if source.lora_bytes}
    return Plan(
        spec=published.spec,
        sources=published.sources,
        files=published.files,
        build=lambda kind: empty_model(published, kind),
        profile="reference",
        licence=LICENCE,
        made_by={"made_by": "convert"},
        settings=dict.fromkeys(update_bytes, "updates beside weights"),  # earlier versions added them to 16 bits
        updates=lambda part: published.sources[part].lora(),
        update_bytes=update_bytes,
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `python -m animegamer_core convert`."""
    parser.add_argument("src", metavar="SRC", type=Path, help="folder with MLLM-*/, VDM_Decoder-*/, VAE and Mistral")
    parser.add_argument("--out", metavar="WORLD", type=Path, required=True, help="world folder to make or complete")
    parser.add_argument("--name", help="which world, if SRC holds several (qiqi, sosuke)")
    parser.add_argument("--precision", choices=PRECISIONS, default="released", help="how float32 weights are stored")


def run(args: argparse.Namespace) -> int:
    """Convert with a progress line; prints the licence notice and what is still absent."""
    with ProgressLine() as line:
        world = convert(args.src, args.out, line.show, name=args.name, precision=args.precision)
    lines = [f"world {world.spec.name!r} is in {world.folder}", *world.missing(), "", world.licence]
    sys.stdout.write("\n".join(lines))
    return 0
