"""Write a world folder from other people's files, part by part, for `convert` and `new`."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from .downloads import BASE_LICENCE, LICENCE, BaseFolders, file_signature, find_downloads
from .foreign import ForeignParts, open_base, open_published
from .keys import MappedSource
from .parts import PARTS, PLAY_PARTS, Stored, build_model, narrowed
from .save import save_world, write_part, writing
from .storage import CheckpointError, check_room
from .world import MANIFEST, World, open_world

OnProgress = Callable[[int, int, str], None]  # (bytes done, total bytes, what is being written)


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

    The parts in `parts` must be there; others are converted where present. Everything is checked against the sizes
    that the files state before anything is written. A second run skips parts whose sources and checksums are
    unchanged. Host memory holds one shard (1 GiB) besides the mapped files. precision `released` stores float32 in
    the 16-bit type that the published scripts compute in, `keep` as it is. Raises CheckpointError, which names file,
    key and expectation, and ValueError while another process writes to `out`.
    """
    known = open_world(out).spec if (Path(out) / MANIFEST).is_file() else None
    published = open_published(find_downloads(Path(src), name), known)
    absent = [part for part in parts if part not in published.sources]
    if absent:
        raise CheckpointError(f"{src}: no files for the {absent[0]}; expected {PARTS[absent[0]].source}")
    return _write(published, Path(out), on_progress, precision, LICENCE, {"made_by": "convert"})


def new_world(
    folders: BaseFolders,
    out: str | Path,
    on_progress: OnProgress | None = None,
    *,
    seed: int = 0,
    precision: str = "released",
) -> World:
    """Make the world folder `out` from base models; returns the world, which is not trained yet.

    Its sizes are those of the files. seed: of random weights. A second run adds parts that were missing and skips parts
    whose files, seed and checksums are unchanged. precision `released` stores float32 in 16 bits, `keep` as it is.
    CheckpointError names file, content and expectation before anything is written; ValueError while another process
    writes to `out`.
    """
    parts = open_base(folders, seed)
    return _write(parts, Path(out), on_progress, precision, BASE_LICENCE, {"made_by": "new", "seed": str(seed)})


def _write(
    parts: ForeignParts,
    out: Path,
    on_progress: OnProgress | None,
    precision: str,
    licence: str,
    origin: Mapping[str, str],
) -> World:
    """Write the parts that the folder `out` does not hold yet; origin: what the world records about how it was made."""
    with writing(out):
        world, done = _prepare(parts, out, licence, origin), 0

        def report(size: int, what: str) -> None:
            nonlocal done
            done += size
            if on_progress is not None:
                on_progress(done, total, what)

        signatures = {part: _signature(parts, part, precision, origin) for part in parts.sources}
        todo = {part: source for part, source in parts.sources.items() if not _finished(world, part, signatures[part])}
        stored = {part: _stored(part, source, precision, report) for part, source in todo.items()}
        total = sum(sum(one.sizes.values()) for one in stored.values())
        check_room(out, total, "to write")
        for part, source in todo.items():
            model = build_model(partial(parts.build, PARTS[part].model))
            world = replace(world, provenance={**world.provenance, part: signatures[part]})
            world = write_part(world, part, model, stored[part], source.lora())
        return world


def _prepare(parts: ForeignParts, out: Path, licence: str, origin: Mapping[str, str]) -> World:
    """The world folder: a new one, or one of the same sizes and origin from an earlier run."""
    known: Mapping[str, str] = {}
    stated: dict[str, Any] = {"profile": parts.profile}
    if (out / MANIFEST).is_file():
        before = open_world(out)
        if (before.spec.state, before.spec.name) != (parts.spec.state, parts.spec.name):
            raise CheckpointError(
                f"{out / MANIFEST}: holds world {before.spec.name!r} with other sizes or for another film; expected "
                f"an empty folder or one left by an earlier {origin['made_by']} of these files"
            )
        known = before.provenance
        for name, value in origin.items():
            if known.get(name) != value:
                raise CheckpointError(
                    f"{out / MANIFEST}: its {name} is {known.get(name, 'not stated')}, expected {value}; choose "
                    "another folder, or give the value that this world was made with"
                )
        # parts that a stage has trained since stay, with their reading and motion table
        stated = {"profile": before.profile.name, "motion_table": before.motion_table}
        stated["trained_window"] = before.trained_window
    return save_world(out, parts.spec, provenance={**known, **origin}, licence=licence, **stated)


def _stored(part: str, source: MappedSource, precision: str, report: Callable[[int, str], None]) -> Stored:
    """The tensors of one part, reported as they are read. Released precision stores float32 in 16 bits."""
    half = getattr(torch, source.half)

    def stored_type(key: str) -> torch.dtype:
        own = source.dtype(key)
        return half if precision == "released" and own == torch.float32 else own

    def read(key: str) -> Mapping[str, torch.Tensor]:
        tensor = narrowed(source.tensor(key), stored_type(key), source.where(key))
        report(sizes[key], f"{part}: {key}")
        return {key: tensor}

    sizes = {key: math.prod(source.shape(key)) * stored_type(key).itemsize for key in source.keys()}  # noqa: SIM118
    return Stored(sizes, read)


def _finished(world: World, part: str, signature: str) -> bool:
    """Whether an earlier run made this part from the same files and finished it."""
    if world.provenance.get(part) != signature or not world.has(part):
        return False
    try:
        world.verify((part,))
    except CheckpointError:
        return False
    return True


def _signature(parts: ForeignParts, part: str, precision: str, origin: Mapping[str, str]) -> str:
    """All that a part's tensors depend on, as one checksum: its files, the precision and what is computed."""
    facts = [precision, *(f"{path.name}:{file_signature(path).sha256}" for path in parts.files[part])]
    if computed := parts.sources[part].computed:
        facts.append(f"{origin}: {[(name, made.shape) for name, made in computed.items()]}")
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()
