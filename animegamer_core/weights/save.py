"""Write world folders of our own, part by part."""

from __future__ import annotations

import os
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from ..files import locked, rename
from ..game.life import Life
from ..game.state import MOTION_TABLES, MotionTable
from ..spec import ModelSpec, get_profile
from .manifest import FORMAT, MANIFEST, part_of, read_notes
from .parts import PARTS, live_tensors, parts_of_model, write_part
from .storage import (
    DEFAULT_SHARD_BYTES,
    FileNote,
    FolderWriter,
    note_of,
    read_json,
    temporary_path,
    write_json,
)
from .world import World, open_world

if typing.TYPE_CHECKING:
    import torch
    from torch import nn

LOCK = ".writer.lock"
COMMIT = ".commit.json"  # there while a part gets its names: the process that wrote it, and its files
MODEL_KINDS = {"GameEngine": "engine", "ShotDecoder": "decoder", "ShotEncoder": "encoder"}


def save_world(
    folder: str | Path,
    spec: ModelSpec,
    *,
    profile: str = "paper",
    motion_table: MotionTable | None = None,
    provenance: Mapping[str, str] | None = None,
    licence: str = "",
    trained_window: int | None = None,
    life: Life | None = None,
) -> World:
    """Make the world folder, or write its manifest again; parts that it has stay. `save_part` adds the weights.

    motion_table None is the table `released`, which published weights were trained with. trained_window: as in World.
    life: None keeps what the folder states.
    """
    path = Path(folder)
    known = open_world(path) if (path / MANIFEST).is_file() else None
    world = World(
        folder=path,
        files=known.files if known else {},
        spec=spec,
        profile=get_profile(profile),
        motion_table=motion_table or MOTION_TABLES["released"],
        provenance=dict(provenance or {}),
        licence=licence,
        trained_window=trained_window,
        life=life or (known.life if known else Life()),
    )
    write_manifest(world)
    return world


def save_part(
    world: World,
    model: nn.Module,
    *,
    dtype: torch.dtype | None = None,
    max_shard_bytes: int = DEFAULT_SHARD_BYTES,
) -> World:
    """Store a GameEngine, ShotDecoder or ShotEncoder (and its tokenizer) in the world; returns the world as it is now.

    dtype None keeps the tensors' types; no file passes max_shard_bytes unless one tensor alone does. A crash leaves
    the old part, or one that `missing` reports until the folder is locked for `writing` again.
    """
    from .lora import lora_of

    for part in parts_of_model(MODEL_KINDS[type(model).__name__]):
        updates = {} if PARTS[part].prefix else lora_of(model)  # the VAE and the text and image encoder never have LoRA
        writer = write_part(world.folder, part, model, live_tensors(model, part, dtype), max_shard_bytes, updates)
        world = commit_part(world, part, writer)
    return world


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Lock a world folder for writing, and complete what a crash broke off. ValueError while it is locked, since a
    second writer would restore old parts.
    """
    refusal = (
        f"{folder}: another conversion or training is writing to this world; wait for it, stop it, or choose another "
        "folder"
    )
    with locked(folder / LOCK, refusal):
        if (folder / COMMIT).is_file():
            _complete_commit(folder)
        yield


def commit_part(world: World, part: str, writer: FolderWriter) -> World:
    """Commit a written part. The manifest drops the old part first, so after a crash the part counts as missing; all
    its files are there then, and `writing` completes it.
    """
    notes = {f"{PARTS[part].folder}/{name}": note for name, note in writer.notes().items()}
    others = {path: note for path, note in world.files.items() if part_of(path) != part}
    writer.flush()
    write_json(world.folder / COMMIT, {"process": os.getpid(), "files": _as_json(notes)})
    if len(others) != len(world.files):
        write_manifest(replace(world, files=others))
    writer.commit()
    world = replace(world, files={**others, **notes})
    write_manifest(world)
    (world.folder / COMMIT).unlink()
    return world


def _complete_commit(folder: Path) -> None:
    """Give a part's files their names and list them, unless one is not what was written."""
    values = read_json(folder / COMMIT)
    notes, process = read_notes(values["files"]), values["process"]
    for path in notes:
        if (written := temporary_path(folder / path, process)).is_file():
            rename(written, folder / path)
    if all((folder / path).is_file() and note_of(folder / path) == note for path, note in notes.items()):
        world, parts = open_world(folder), set(map(part_of, notes))
        others = {path: note for path, note in world.files.items() if part_of(path) not in parts}
        write_manifest(replace(world, files={**others, **notes}))
    (folder / COMMIT).unlink()


def _as_json(notes: Mapping[str, FileNote]) -> dict[str, dict[str, typing.Any]]:
    return {path: asdict(note) for path, note in sorted(notes.items())}


def write_manifest(world: World) -> None:
    """Write world.json."""
    values = {
        "format": FORMAT,
        "spec": world.spec.to_dict(),
        "profile": world.profile.name,
        "motion_table": asdict(world.motion_table),
        "provenance": dict(world.provenance),
        "licence": world.licence,
        "files": _as_json(world.files),
    }
    if world.trained_window is not None:
        values["window"] = world.trained_window
    if world.life != Life():
        values["life"] = asdict(world.life)
    write_json(world.folder / MANIFEST, values)
