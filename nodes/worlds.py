"""The worlds and LoRA files that are installed: their names in lists, their files, and whether these have changed.

A name from a widget is only compared with existing names. It never becomes part of a path.
"""

from __future__ import annotations

import sys
import typing
from pathlib import Path

from ..animegamer_core.messages import shell_word
from ..animegamer_core.spec import PROGRAM
from ..animegamer_core.weights import CheckpointError, open_world
from ..animegamer_core.weights.adapter_files import SAFETENSORS, fits_decoder
from ..animegamer_core.weights.downloads import ANIMEGAMER, COGVIDEO, MISTRAL, find_downloads
from ..animegamer_core.weights.fetch import missing_pieces, missing_text
from ..animegamer_core.weights.parts import PLAY_PARTS
from ..animegamer_core.weights.world import MANIFEST
from .comfyui import PACK, lora_files, model_folders
from .values import NONE

if typing.TYPE_CHECKING:
    from ..animegamer_core.weights import World
    from ..animegamer_core.weights.fetch import Piece

TOYBOX = "toybox"
PUBLISHED = ("qiqi", "sosuke")  # always listed, installed or not
LORAS = "loras"  # below a model folder
USUAL = "loras/"  # begins the names of files in ComfyUI's usual folder
BASE_WEIGHTS = "base models"  # the free models that a new world is made of
ADDRESSES = ", ".join(f"https://huggingface.co/{repo}" for repo in (ANIMEGAMER, MISTRAL, COGVIDEO))


def world_names() -> list[str]:
    """toybox, qiqi and sosuke always, then all other worlds in the model folders."""
    return [TOYBOX, *PUBLISHED, *sorted(set(_worlds()) - {TOYBOX, *PUBLISHED})]


def find_world(name: str) -> World:
    """The opened world of this name; its weights are not read yet.

    ValueError says in one sentence what is missing, and how to get it.
    """
    if name == TOYBOX:
        return open_world(TOYBOX)
    folder = _worlds().get(name)
    if folder is None and name not in PUBLISHED:
        root = model_folders()[0]
        raise ValueError(f"world {name!r} is not in {root}; put its folder there and press R, or choose toybox")
    if folder is None:
        raise ValueError(_incomplete(name, weights_folder(name), ""))
    try:
        world = open_world(folder)
        missing = world.missing(PLAY_PARTS)
    except CheckpointError as error:
        missing = (str(error),)
    if missing:
        raise ValueError(_incomplete(name, folder, missing[0]))
    return world


def weights_folder(weights: str) -> Path:
    """Where weights are downloaded to: the folder of the world, or that of all models for BASE_WEIGHTS."""
    root = model_folders()[0]
    return root if weights == BASE_WEIGHTS else _worlds().get(weights, root / weights)


def lora_names() -> list[str]:
    """`none`, then the LoRA files below models/animegamer/loras, then those of ComfyUI's usual folder that fit."""
    usual = [name for name, path in _usual_loras().items() if fits_decoder(path)]
    return [NONE, *sorted(_loras()), *sorted(usual)]


def find_lora(name: str) -> Path:
    """The path of a LoRA file; ValueError if it is not there any more."""
    found = _lora(name)
    if found is None:
        folder = model_folders()[0] / LORAS
        usual = f" nor in ComfyUI's folder {LORAS}" if name.startswith(USUAL) else ""
        raise ValueError(
            f"LoRA file {name!r} is not in {folder}{usual}; put it there and press R, or choose another file"
        )
    return found


def world_version(name: str) -> str:
    """Text that changes when the named world is built, converted or downloaded again; empty if it is not installed."""
    folder = _worlds().get(name)
    if folder is None:
        return ""
    return file_version(folder / MANIFEST)


def downloads_version(folder: Path, name: str | None = None) -> str:
    """Text that changes when a downloaded file of a published world does; empty without such a world."""
    try:
        found = find_downloads(folder, name)
    except CheckpointError:
        return ""
    parts = (found.engine, found.mistral, found.decoder, found.vae, found.text_encoder, found.image_encoder)
    files = (sorted(part.rglob("*")) if part.is_dir() else [part] for part in parts if part is not None)
    return " ".join(file_version(path) for part in files for path in part)


def lora_version(name: str) -> str:
    """Text that changes when the named LoRA file is written again; empty if there is no such file."""
    found = _lora(name)
    return "" if found is None else file_version(found)


def file_version(path: Path) -> str:
    """Text that changes when a file is written again or removed."""
    try:
        stat = path.stat()
    except OSError:
        return str(path)
    return f"{path}:{stat.st_mtime_ns}:{stat.st_size}"


def subfolders(root: Path) -> list[Path]:
    """The folders in a folder, sorted; empty if it does not exist."""
    return sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


def _worlds() -> dict[str, Path]:
    """World name -> its folder, for all model folders; of equal names the first folder wins."""
    folders = [folder for root in reversed(model_folders()) for folder in subfolders(root)]
    return {folder.name: folder for folder in folders if (folder / MANIFEST).is_file()}


def _loras() -> dict[str, Path]:
    roots = [root / LORAS for root in reversed(model_folders())]  # of equal names the first folder wins
    found = ((path.relative_to(root), path) for root in roots for path in root.rglob("*.s*"))
    return {name.as_posix(): path for name, path in found if path.suffix in SAFETENSORS}


def _usual_loras() -> dict[str, Path]:
    """Name in the list -> file of ComfyUI's usual folder; one of ours with that name goes first."""
    found = {f"{USUAL}{name}": path for name, path in lora_files().items() if path.suffix in SAFETENSORS}
    return {name: path for name, path in found.items() if name not in _loras()}


def _lora(name: str) -> Path | None:
    return _loras().get(name) or _usual_loras().get(name)


def _incomplete(name: str, folder: Path, otherwise: str) -> str:
    """Message that a world cannot be played; for a published one with what is missing, its size, and how to get it."""
    missing: tuple[Piece, ...] = ()
    if name in PUBLISHED:
        try:
            missing = missing_pieces(name, folder)
        except CheckpointError as error:
            otherwise = str(error)
    if not missing:
        return f"world {name!r} cannot be played: {otherwise}"
    return (
        f"world {name!r} is not complete in {folder}; missing: {missing_text(missing)}. Get it with the button on Load "
        f"AnimeGamer, the node Get AnimeGamer Weights, or in {PACK} the command `{fetch_command(name, folder)}`; files "
        f"that you have already become it by Convert AnimeGamer; or choose toybox, which needs no download. It is "
        f"published at {ADDRESSES}"
    )


def fetch_command(what: str, folder: Path, encoders: bool = False) -> str:
    """The exact command that downloads weights, to be run in PACK; it continues where it was stopped.

    what: a film, or BASE_WEIGHTS.
    """
    chosen = "--base" if what == BASE_WEIGHTS else what
    program = f"{shell_word(sys.executable)} {PROGRAM.partition(' ')[2]}"
    towers = " --towers" if encoders and what != BASE_WEIGHTS else ""
    return f"{program} fetch {chosen} --out {shell_word(folder)}{towers}"
