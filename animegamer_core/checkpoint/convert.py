"""`convert`: the published files become a world folder, one tensor at a time, part by part."""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch

from .parts import PARTS, PLAY_PARTS, build_model, narrowed, stage_part
from .published import Published, empty_model, find_downloads, open_published
from .storage import DEFAULT_SHARD_BYTES, CheckpointError
from .world import MANIFEST, World, commit_part, open_world, save_world

OnProgress = Callable[[int, int, str], None]  # (bytes done, bytes in all, what is being written)

PRECISIONS = ("released", "keep")
_RELEASED = {"engine": torch.bfloat16}  # what the published scripts compute in; everything else in float16
_EDGE = 1 << 20  # bytes at either end of a file that its signature reads

LICENCE = """\
The weights in this folder were made from files that other people published; this project does not license them.
- AnimeGamer (Tencent ARC Lab): its own "License Terms of AnimeGamer", worded like Apache-2.0 with one more clause that
  says it is not intended for use within the European Union. It covers code and weights. Read it before you use them.
- Mistral-7B-Instruct-v0.1 (Mistral AI), CogVideoX-2B (Zhipu AI, Tsinghua University) and, where present,
  t5-v1_1-xxl (Google) and CLIP ViT-B-16 (LAION): the licence on the page that each was downloaded from.
"""


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
    published scripts compute in, `keep` as it is. Raises CheckpointError, which names file, key and expectation.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"unknown precision {precision!r}; choose one of {', '.join(PRECISIONS)}")
    published = open_published(find_downloads(Path(src), name))
    absent = [part for part in parts if part not in published.sources]
    if absent:
        raise CheckpointError(f"{src}: nothing to make the {absent[0]} from; expected {PARTS[absent[0]].source}")
    world = _prepare(published, Path(out))
    signatures = {part: _signature(files, precision) for part, files in published.files.items()}
    todo = [part for part in published.sources if not _finished(world, part, signatures[part])]
    stored = {part: _Narrowed(published, part, precision) for part in todo}
    progress = _Progress(sum(source.total for source in stored.values()), on_progress)
    _check_room(world.folder, progress.total)
    for part in todo:
        model = build_model(lambda part=part: empty_model(published, PARTS[part].model))
        staged = stage_part(world.folder, part, model, progress.watch(part, stored[part]), DEFAULT_SHARD_BYTES)
        world = replace(world, provenance={**world.provenance, part: signatures[part]})
        world = commit_part(world, part, staged)
    return world


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `python -m animegamer_core convert`."""
    parser.add_argument("src", metavar="SRC", type=Path, help="folder with MLLM-*/, VDM_Decoder-*/, VAE and Mistral")
    parser.add_argument("--out", metavar="WORLD", type=Path, required=True, help="world folder to make or complete")
    parser.add_argument("--name", help="which world, if SRC holds several (qiqi, sosuke)")
    parser.add_argument("--precision", choices=PRECISIONS, default="released", help="how float32 weights are stored")


def run(args: argparse.Namespace) -> int:
    """Convert with a progress line; prints the licence notice and what is still absent."""

    def show(done: int, total: int, what: str) -> None:
        sys.stderr.write(f"\r{done / max(total, 1):5.0%} of {total / 1e9:.1f} GB  {what[-60:]:60}")
        sys.stderr.flush()

    world = convert(args.src, args.out, show, name=args.name, precision=args.precision)
    sys.stderr.write("\n")
    lines = [f"world {world.spec.name!r} is in {world.folder}", *world.missing(), "", world.licence]
    sys.stdout.write("\n".join(lines))
    return 0


class _Narrowed:
    """The tensors of one published part in the types that they will be stored in."""

    def __init__(self, published: Published, part: str, precision: str) -> None:
        self._source = published.sources[part]
        self._type = _RELEASED.get(part, torch.float16) if precision == "released" else None
        keys = list(self._source.keys())
        self.total = sum(self.bytes(key) for key in keys)

    def dtype(self, key: str) -> torch.dtype:
        """float32 becomes the released 16-bit type, 16-bit types stay."""
        own = self._source.dtype(key)
        return self._type if self._type is not None and own == torch.float32 else own

    def bytes(self, key: str) -> int:
        """Bytes that it takes in our file."""
        return int(torch.Size(self._source.shape(key)).numel()) * self.dtype(key).itemsize

    def tensor(self, key: str) -> torch.Tensor:
        """The tensor to store."""
        return narrowed(self._source.tensor(key), self.dtype(key), f"{self._source.path}: {key!r}")


class _Watched:
    """A part whose reading is reported."""

    def __init__(self, part: str, source: _Narrowed, report: Callable[[int, str], None]) -> None:
        self._part, self._source, self._report = part, source, report
        self.dtype = source.dtype

    def tensor(self, key: str) -> torch.Tensor:
        """The tensor to store."""
        tensor = self._source.tensor(key)
        self._report(self._source.bytes(key), f"{self._part}: {key}")
        return tensor


class _Progress:
    """Bytes done, over all parts."""

    def __init__(self, total: int, on_progress: OnProgress | None) -> None:
        self.total, self._done, self._on_progress = total, 0, on_progress

    def watch(self, part: str, source: _Narrowed) -> _Watched:
        """The source, reporting what is read from it."""
        return _Watched(part, source, self._report)

    def _report(self, size: int, what: str) -> None:
        self._done += size
        if self._on_progress is not None:
            self._on_progress(self._done, self.total, what)


def _prepare(published: Published, out: Path) -> World:
    """The world folder: a new one, or one that an earlier run of the same sizes left."""
    known: Mapping[str, str] = {}
    if (out / MANIFEST).is_file():
        before = open_world(out)
        if before.spec.state != published.spec.state or before.spec.name != published.spec.name:
            raise CheckpointError(
                f"{out / MANIFEST}: holds world {before.spec.name!r} of other sizes or another film; "
                "expected an empty folder or one that an earlier convert of these files left"
            )
        known = before.provenance
    provenance = {**known, "made_by": "convert"}
    return save_world(out, published.spec, profile="reference", provenance=provenance, licence=LICENCE)


def _finished(world: World, part: str, signature: str) -> bool:
    """Whether an earlier run converted this part from the same files, and left it whole."""
    if world.provenance.get(part) != signature or not world.has(part):
        return False
    try:
        world.verify((part,))
    except CheckpointError:
        return False
    return True


def _signature(files: tuple[Path, ...], precision: str) -> str:
    """Names, sizes and both ends of the source files, as one checksum: cheap, and changed by any new download."""
    digest = hashlib.sha256(precision.encode())
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.name}:{size}".encode())
        with path.open("rb") as file:
            digest.update(file.read(_EDGE))
            file.seek(max(0, size - _EDGE))
            digest.update(file.read(_EDGE))
    return digest.hexdigest()


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise CheckpointError(
            f"{folder}: {needed / 1e9:.1f} GB to write and {free / 1e9:.1f} GB free; choose another disk"
        )
