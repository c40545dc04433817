"""Starts a build's VAE from the weights of an earlier training, whose file states what it was trained on."""

from __future__ import annotations

from pathlib import Path

from ...checkpoint import World, save_world
from ...train.parts import WorldParts

NOTE = "note"  # key of the file's metadata
BEGAN_WITH = "VAE began with"  # key of a world's provenance


def begin_vae(file: Path, parts: WorldParts, world: World) -> None:
    """Copy the weights of a safetensors file into the VAE, and its note into the world's provenance and licence.

    ValueError if the file is damaged, of another VAE, or without a note. If the run continues from a checkpoint, that
    replaces the weights again.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "pt") as source:
            note = (source.metadata() or {}).get(NOTE, "")
            tensors = {name: source.get_tensor(name).float() for name in source.keys()}  # noqa: SIM118  not a mapping
        if not note:
            raise ValueError(f"{file} does not say what it was trained on; write that to its metadata as {NOTE!r}")
        parts.of("decoder").vae.load_state_dict(tensors)
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(f"{file}: not the weights of this VAE ({error}); give a file of the same sizes") from error
    if note in world.provenance.values():
        return
    save_world(
        world.folder,
        world.spec,
        motion_table=world.motion_table,
        provenance={**world.provenance, BEGAN_WITH: note},
        licence=f"{world.licence} Its VAE began with weights of: {note}",
        trained_window=world.trained_window,
    )
