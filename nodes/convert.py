"""Published files, or free base models, become a world folder, with progress; an interrupted run can be continued."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from pathlib import Path

from comfy_api.v0_0_2 import io

from ..animegamer_core.checkpoint.base_folders import BaseFolders, find_base
from ..animegamer_core.checkpoint.downloads import ENGINE, published_worlds, world_of
from ..animegamer_core.index import check_story_name
from . import host
from .models import PACKAGES
from .replay import Replays
from .values import CATEGORY
from .work import Bars

if typing.TYPE_CHECKING:
    from ..animegamer_core.checkpoint import World

CONVERTED = Replays(host.age_of_world)
NOTHING_PUBLISHED = "none found"
NEW = "new world"  # in the list, behind a folder that holds the free base models


class ConvertAnimeGamer(io.ComfyNode):
    """Published files become a world folder, or free base models one that has yet to be trained."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="ConvertAnimeGamer",
            display_name="Convert AnimeGamer",
            category=CATEGORY,
            description="Makes a world folder of the published files in models/animegamer: smaller, checked, quick to "
            "load; or a new world, for training on a film of yours, of free base models there. The downloads stay as "
            "they are. Converting again goes on where it stopped.",
            inputs=[
                io.Combo.Input(
                    "source",
                    options=[*_downloads(), *_bases()] or [NOTHING_PUBLISHED],
                    tooltip="Folder below models/animegamer with MLLM-*, VDM_Decoder-*, the VAE and Mistral, and which "
                    "of its worlds. new world: begins one from CogVideoX-2b and Mistral-7B-Instruct-v0.1, both "
                    "Apache-2.0, in that folder.",
                ),
                io.String.Input(
                    "world",
                    default="my-world",
                    tooltip="Name of the world folder to make in models/animegamer; press R to find it in the lists.",
                ),
                io.Combo.Input(
                    "precision",
                    options=["released", "keep"],
                    default="released",
                    tooltip="released: float32 weights are stored in the 16-bit type that the published scripts "
                    "compute in; keep: as they are.",
                ),
            ],
            outputs=[
                io.String.Output("world_out", display_name="world", tooltip="The name of the world that was made."),
                io.String.Output("report", display_name="report", tooltip="Where it lies, what it lacks, its licence."),
            ],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls, **widgets: str | None) -> str:
        """Changes when a published file does, or when the world is taken away or made anew by another."""
        return CONVERTED.fingerprint(widgets | _ages(widgets))

    @classmethod
    def execute(cls, source: str, world: str, precision: str) -> io.NodeOutput:
        called = dict(source=source, world=world, precision=precision)
        called |= _ages(called)
        host.require(*PACKAGES)
        made = _made(source, world, precision)
        CONVERTED.done(called, world)
        size = sum(note.bytes for note in made.files.values())
        report = "\n".join(
            [f"world {world!r} is in {made.folder}, {size / 1e9:.2f} GB", *made.missing(), "", made.licence]
        )
        return io.NodeOutput(world, report, ui={"text": [report]})


def _made(source: str, world: str, precision: str) -> World:
    """The world folder of that name, written or completed."""
    from ..animegamer_core.checkpoint.convert import convert
    from ..animegamer_core.checkpoint.new import new_world

    show, bases = Bars(), _bases()

    def progress(done: int, total: int, what: str) -> None:
        show("bytes", done, total)

    if source in bases:
        base = bases[source]
        return new_world(base, _new_world(world, base.cogvideox.parent), progress, precision=precision)
    folder, published = _download(source)
    return convert(folder, _new_world(world, folder), progress, name=published, precision=precision)


def _bases() -> dict[str, BaseFolders]:
    """Free base models by their names in the list, `folder/new world`."""
    folders = [folder for root in host.model_folders() for folder in (root, *_below(root))]
    return {f"{folder.name}/{NEW}": base for folder in folders if (base := find_base(folder)) is not None}


def _below(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []


def _downloads() -> dict[str, tuple[Path, str]]:
    """Published worlds by their names in the list, `folder/world`: the folder of downloads and which of its worlds."""
    found = {}
    for root in host.model_folders():
        below = _below(root)
        direct = {world_of(path) for path in below if path.name.startswith(ENGINE)}
        found |= {f"{root.name}/{world}": (root, world) for world in published_worlds(root) if world in direct}
        found |= {f"{folder.name}/{world}": (folder, world) for folder in below for world in published_worlds(folder)}
    return found


def _ages(widgets: Mapping[str, str | None]) -> dict[str, str | None]:
    """What decides a world and lies on disk: the files it is made of; None where the source is not known yet."""
    source = widgets.get("source") or ""
    if base := _bases().get(source):
        return {"ages": host.age_of_folders(base.all)}
    found = _downloads().get(source)
    return {"ages": host.age_of_downloads(*found) if found else None}


def _download(source: str) -> tuple[Path, str]:
    found = _downloads()
    if source not in found:
        raise ValueError(
            f"no published files at {source!r}: put MLLM-*, VDM_Decoder-*, the CogVideoX-2b vae and the Mistral folder "
            f"together into a folder below {host.model_folders()[0]} and press R; a new world needs CogVideoX-2b and "
            "Mistral-7B-Instruct-v0.1 there"
        )
    return found[source]


def _new_world(name: str, downloads: Path) -> Path:
    """The folder of a world to make; ValueError where it would mix with others' files."""
    folder = host.model_folders()[0] / check_story_name(name, "world")
    if name == host.TOYBOX or folder == downloads:
        raise ValueError(
            f"world name {name!r} is taken by what is there already; choose another name for the new world"
        )
    return folder
