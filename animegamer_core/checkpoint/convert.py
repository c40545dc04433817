"""`convert`: the published files become a world folder, one tensor at a time, part by part."""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from .downloads import LICENCE, find_downloads, signature_of
from .parts import PARTS, PLAY_PARTS, build_model, narrowed, stage_part
from .published import Published, empty_model, open_published
from .show import ProgressLine
from .storage import DEFAULT_SHARD_BYTES, CheckpointError
from .world import MANIFEST, World, check_own, commit_part, open_world, save_world, writing

OnProgress = Callable[[int, int, str], None]  # (bytes done, bytes in all, what is being written)

PRECISIONS = ("released", "keep")


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
    if precision not in PRECISIONS:
        raise ValueError(f"unknown precision {precision!r}; choose one of {', '.join(PRECISIONS)}")
    published = open_published(find_downloads(Path(src), name))
    absent = [part for part in parts if part not in published.sources]
    if absent:
        raise CheckpointError(f"{src}: nothing to make the {absent[0]} from; expected {PARTS[absent[0]].source}")
    folder = Path(out)
    check_own(folder)
    with writing(folder):
        return _write(published, folder, on_progress, precision)


def _write(published: Published, out: Path, on_progress: OnProgress | None, precision: str) -> World:
    """Write what is not in the world folder yet."""
    world = _prepare(published, out)
    signatures = {part: _signature(published, part, precision) for part in published.sources}
    todo = [part for part in published.sources if not _finished(world, part, signatures[part])]
    stored = {part: _Narrowed(published, part, precision) for part in todo}
    progress = _Progress(sum(source.total for source in stored.values()), on_progress)
    _check_room(world.folder, progress.total + sum(published.sources[part].lora_bytes for part in todo))
    for part in todo:
        model = build_model(lambda part=part: empty_model(published, PARTS[part].model))
        watched, updates = progress.watch(part, stored[part]), published.sources[part].lora()
        staged = stage_part(world.folder, part, model, watched, DEFAULT_SHARD_BYTES, updates)
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
    with ProgressLine() as line:
        world = convert(args.src, args.out, line.show, name=args.name, precision=args.precision)
    lines = [f"world {world.spec.name!r} is in {world.folder}", *world.missing(), "", world.licence]
    sys.stdout.write("\n".join(lines))
    return 0


class _Narrowed:
    """The tensors of one published part in the types that they will be stored in."""

    def __init__(self, published: Published, part: str, precision: str) -> None:
        self._source = published.sources[part]
        self._type = getattr(torch, self._source.half) if precision == "released" else None
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
    stated: dict[str, Any] = {"profile": "reference"}
    if (out / MANIFEST).is_file():
        before = open_world(out)
        if before.spec.state != published.spec.state or before.spec.name != published.spec.name:
            raise CheckpointError(
                f"{out / MANIFEST}: holds world {before.spec.name!r} of other sizes or another film; "
                "expected an empty folder or one that an earlier convert of these files left"
            )
        known = before.provenance
        # parts that a stage trained since stay, and are read and told of motion as it says
        stated = {"profile": before.profile.name, "motion_table": before.motion_table}
        stated["trained_window"] = before.trained_window
    provenance = {**known, "made_by": "convert"}
    return save_world(out, published.spec, provenance=provenance, licence=LICENCE, **stated)


def _finished(world: World, part: str, signature: str) -> bool:
    """Whether an earlier run converted this part from the same files, and left it whole."""
    if world.provenance.get(part) != signature or not world.has(part):
        return False
    try:
        world.verify((part,))
    except CheckpointError:
        return False
    return True


def _signature(published: Published, part: str, precision: str) -> str:
    """The names and signatures of a part's source files, as one checksum."""
    facts = [precision, *(f"{path.name}:{signature_of(path).sha256}" for path in published.files[part])]
    if published.sources[part].lora_bytes:
        facts.append("lora beside")  # earlier versions merged it into 16-bit weights, and lost much of it
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise CheckpointError(
            f"{folder}: {needed / 1e9:.1f} GB to write and {free / 1e9:.1f} GB free; choose another disk"
        )
