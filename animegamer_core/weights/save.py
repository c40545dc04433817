"""Write world folders of our own, part by part.

A file of a part has the beginning of its checksum in its name, so a save never changes a file that the manifest lists.
A part is saved at the moment when the manifest, which is replaced at once, lists its new files; a crash leaves the old
part. What the manifest does not list is removed then, or when the world is next written to.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from ..files import UNFINISHED, locked, rename, replacing, write_text
from ..game.life import Life
from ..game.state import MOTION_TABLES, MotionTable
from ..spec import ModelSpec, get_profile
from .parts import PARTS, LoraUpdates, Stored, live_tensors, lora_file, part_names, parts_of_model, plain_tensors
from .storage import FileNote, note_of, write_json
from .world import FORMAT, LORA, MANIFEST, TENSORS, TOKENIZER, World, open_world, part_of

if typing.TYPE_CHECKING:
    import torch
    from torch import nn

LOCK = ".writer.lock"
SHARD_BYTES = 1 << 30
NEW = "new-"  # prefix of a whole file before it gets its name
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
    world: World, model: nn.Module, *, dtype: torch.dtype | None = None, max_shard_bytes: int = SHARD_BYTES
) -> World:
    """Store a GameEngine, ShotDecoder or ShotEncoder (and its tokenizer) in the world; returns the world as it is now.

    dtype None keeps the tensors' types; torch.int8 stores matrices and kernels in 8 bits (see `in_8_bits`), kernels
    over pictures and the rest in fp16, and all are read as fp16. No file passes max_shard_bytes unless one tensor alone
    does.
    """
    from .lora import lora_of

    for part in parts_of_model(MODEL_KINDS[type(model).__name__]):
        updates = {} if PARTS[part].prefix else lora_of(model)  # the VAE and the text and image encoder never have LoRA
        world = write_part(world, part, model, live_tensors(model, part, dtype), updates, max_shard_bytes)
    return world


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Lock a world folder for writing, and remove what a crash left. ValueError while it is locked, since a second
    writer would restore old parts.
    """
    refusal = (
        f"{folder}: another conversion or training is writing to this world; wait for it, stop it, or choose another "
        "folder"
    )
    with locked(folder / LOCK, refusal):
        if (folder / MANIFEST).is_file():
            _remove_unlisted(open_world(folder), PARTS)
        yield


def write_part(
    world: World,
    part: str,
    model: nn.Module,
    stored: Stored,
    updates: LoraUpdates = MappingProxyType({}),
    max_shard_bytes: int = SHARD_BYTES,
) -> World:
    """Write one part; returns the world with it. The host holds one shard at a time.

    model: may be empty; gives the order of the tensors and the tokenizer. updates: the LoRA of its layers, which gets a
    file of its own.
    """
    from huggingface_hub import split_state_dict_into_shards_factory
    from safetensors.torch import save_file

    notes: dict[str, FileNote] = {}

    def put(stem: str, suffix: str, write: Callable[[Path], object]) -> None:
        path = world.folder / PARTS[part].folder / f"{NEW}{stem}{suffix}"
        with replacing(path) as unfinished:
            write(unfinished)
        note = note_of(path)
        named = path.with_name(f"{stem}-{note.sha256[:8]}{suffix}")
        rename(path, named)
        notes[named.relative_to(world.folder).as_posix()] = note

    names = part_names(PARTS[part].model, part, plain_tensors(model))
    sizes = {name: stored.sizes[name] for name in names}
    shards = split_state_dict_into_shards_factory(
        sizes, get_storage_size=int, filename_pattern="{suffix}", max_shard_size=max_shard_bytes
    )
    for shard in shards.filename_to_tensors.values():
        tensors = {key: value.cpu().contiguous() for name in shard for key, value in stored.read(name).items()}
        put(TENSORS, ".safetensors", partial(save_file, tensors, metadata={"format": "pt"}))
    if updates:
        tensors, facts = lora_file(updates)
        put(LORA, ".safetensors", lambda path: save_file(tensors, path, metadata=facts))
    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is not None and part in ("engine", "text_tower"):
        text = tokenizer.to_str(pretty=True)  # its own `save` hides what is wrong
        put(TOKENIZER, ".json", lambda path: write_text(path, text))
    others = {path: note for path, note in world.files.items() if part_of(path) != part}
    world = replace(world, files={**others, **notes})
    write_manifest(world)
    _remove_unlisted(world, [part])
    return world


def _remove_unlisted(world: World, parts: typing.Iterable[str]) -> None:
    """Remove the files of these parts that no manifest lists any more, or does not list yet."""
    for part in parts:
        folder = world.folder / PARTS[part].folder
        for kind in (f"{TENSORS}*.safetensors*", f"{LORA}*", f"{TOKENIZER}*.json", f"{NEW}*", f"{UNFINISHED}*"):
            for path in folder.glob(kind):
                if path.relative_to(world.folder).as_posix() not in world.files:
                    with suppress(PermissionError):  # Windows keeps a file that a loaded model still maps
                        path.unlink()


def write_manifest(world: World) -> None:
    """Write world.json."""
    values = {
        "format": FORMAT,
        "spec": world.spec.to_dict(),
        "profile": world.profile.name,
        "motion_table": asdict(world.motion_table),
        "provenance": dict(world.provenance),
        "licence": world.licence,
        "files": {path: asdict(note) for path, note in sorted(world.files.items())},
    }
    if world.trained_window is not None:
        values["window"] = world.trained_window
    if world.life != Life():
        values["life"] = asdict(world.life)
    write_json(world.folder / MANIFEST, values)
