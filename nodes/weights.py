"""GetAnimeGamerWeights downloads published weights; ConvertAnimeGamer makes a world of them or of free base models."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from pathlib import Path

from comfy_api.v0_0_2 import io

from ..animegamer_core.files import check_folder_name, free_bytes
from ..animegamer_core.weights.downloads import (
    BASE_LICENCE,
    ENGINE,
    LICENCE,
    BaseFolders,
    find_base,
    published_worlds,
    world_of,
)
from ..animegamer_core.weights.fetch import missing_pieces, size_text
from . import comfyui, worlds
from .fingerprints import Fingerprints
from .models import PACKAGES
from .widgets import check_choice, choice_input, schema

CHOICES = (*worlds.PUBLISHED, worlds.BASE_WEIGHTS)
MIB = 1 << 20
CONVERTED = Fingerprints(worlds.world_version)
NOTHING_PUBLISHED = "none found"
NEW = "new world"  # list entry for a folder with the free base models
FETCH_PACKAGES = ("huggingface_hub", "msgspec")
ASK = "Nothing was downloaded. Read the licences above. If you accept them, switch accept on and run this node again."


class GetAnimeGamerWeights(io.ComfyNode):
    """Downloads published weights, after their licences were accepted."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="GetAnimeGamerWeights",
            search_aliases=("download", "model download", "Hugging Face", "install weights"),
            inputs=[
                choice_input("weights", CHOICES, worlds.PUBLISHED[0]),
                io.Boolean.Input("towers", default=False),
                io.Boolean.Input("accept", default=False),
            ],
            outputs=[io.String.Output("world"), io.String.Output("report")],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls, weights: str, towers: bool, **_: object) -> str:
        """Changes when files of these weights come or go."""
        here = " ".join(piece.folder for piece in missing_pieces(weights, worlds.weights_folder(weights), towers))
        return f"{here} {worlds.world_version(weights)}"

    @classmethod
    def execute(cls, weights: str, towers: bool, accept: bool) -> io.NodeOutput:
        check_choice("weights", weights, CHOICES)
        comfyui.require(*FETCH_PACKAGES)
        from ..animegamer_core.weights.fetch import fetch, plan_fetch, plan_text

        progress = comfyui.NodeProgress()
        plan = plan_fetch(weights, worlds.weights_folder(weights), encoders=towers)
        if plan.steps and not accept:
            report = plan_text(plan)
            notes = [*report.strip().splitlines(), ASK]
            return io.NodeOutput(comfyui.blocked(ASK), report, ui={"text": [report], "animegamer_notes": notes})
        done = 0

        def count(new: int, _: str) -> None:
            nonlocal done
            comfyui.stop_if_interrupted()
            before, done = done // MIB, done + new
            if plan.bytes and done // MIB != before:  # 0: unknown
                progress("download", min(done, plan.bytes) // MIB, max(1, plan.bytes // MIB))

        fetch(plan, count)
        report = f"All files are there.\n{plan_text(plan)}"
        note = f"{weights}: all files are in {plan.out}. Press R, then choose it in Load AnimeGamer."
        return io.NodeOutput(weights, report, ui={"text": [report], "animegamer_notes": [note]})


def offer(query: typing.Mapping[str, str]) -> dict[str, typing.Any]:
    """What a page shows before weights are downloaded, without a request to the hub. ValueError for unknown weights.

    Sizes are about those of the published files.
    """
    weights, towers = query.get("weights", ""), query.get("towers", "0") not in ("", "0", "false")
    check_choice("weights", weights, CHOICES)
    folder = worlds.weights_folder(weights)
    missing = missing_pieces(weights, folder, towers)
    repos = dict.fromkeys(repo for piece in missing for repo in piece.files)
    sizes = [piece.bytes for piece in missing]
    # the largest download and what it is converted into are there together
    room = sum(sizes) + (0 if weights == worlds.BASE_WEIGHTS else max(sizes, default=0))
    return {
        "weights": weights,
        "choices": list(CHOICES),
        "folder": str(folder),
        "missing": [{"path": piece.folder, "what": piece.what, "size": size_text(piece.bytes)} for piece in missing],
        "size": size_text(sum(sizes)),
        "room": size_text(room),
        "free": size_text(free_bytes(folder)),
        "fits": room < free_bytes(folder),
        "sources": [f"https://huggingface.co/{repo}" for repo in repos],
        "notice": BASE_LICENCE if weights == worlds.BASE_WEIGHTS else LICENCE,
        "command": worlds.fetch_command(weights, folder, towers),
        "command_folder": str(comfyui.PACK),
    }


class ConvertAnimeGamer(io.ComfyNode):
    """Converts published files, or starts a new world from free base models."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="ConvertAnimeGamer",
            search_aliases=("checkpoint converter", "published weights", "import weights"),
            inputs=[
                io.Combo.Input("source", options=[*_downloads(), *_bases()] or [NOTHING_PUBLISHED]),
                io.String.Input("world", default="my-world"),
                choice_input("precision", ["released", "keep"], "released"),
            ],
            outputs=[io.String.Output("world_out"), io.String.Output("report")],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls, **widgets: str | None) -> str:
        """Changes when a published file does, or when the world is deleted or written by another node."""
        return CONVERTED.fingerprint(widgets | _versions(widgets))

    @classmethod
    def validate_inputs(cls, source: str | None) -> bool | str:
        """What to do if the source is gone, to replace ComfyUI's "value not in list"; None: the input is linked."""
        return source is None or source in (*_downloads(), *_bases()) or _source_missing(source)

    @classmethod
    def execute(cls, source: str, world: str, precision: str) -> io.NodeOutput:
        inputs = {"source": source, "world": world, "precision": precision}
        inputs |= _versions(inputs)
        comfyui.require(*PACKAGES)
        from ..animegamer_core.weights.convert import convert, new_world

        report, base = comfyui.NodeProgress(), _bases().get(source)

        def progress(done: int, total: int, what: str) -> None:
            report("bytes", done, total)

        if base is not None:
            made = new_world(base, world_folder(world, base.cogvideox.parent), progress, precision=precision)
        elif source in _downloads():
            folder, name = _downloads()[source]
            made = convert(folder, world_folder(world, folder), progress, name=name, precision=precision)
        else:
            raise ValueError(_source_missing(source))
        CONVERTED.record(inputs, world)
        size = sum(note.bytes for note in made.files.values())
        lines = [f"world {world!r} is in {made.folder}, {size / 1e9:.2f} GB", *made.missing(), "", made.licence]
        text = "\n".join(lines)
        return io.NodeOutput(world, text, ui={"text": [text]})


def _bases() -> dict[str, BaseFolders]:
    """The free base models by their names in the list, `folder/new world`."""
    folders = [folder for root in comfyui.model_folders() for folder in (root, *worlds.subfolders(root))]
    return {f"{folder.name}/{NEW}": base for folder in folders if (base := find_base(folder)) is not None}


def _downloads() -> dict[str, tuple[Path, str]]:
    """The published worlds by their names in the list, `folder/world`: (folder of the downloads, name of the world)."""
    found: dict[str, tuple[Path, str]] = {}
    for root in comfyui.model_folders():
        below = worlds.subfolders(root)
        direct = {world_of(path) for path in below if path.name.startswith(ENGINE)}
        found |= {f"{root.name}/{world}": (root, world) for world in published_worlds(root) if world in direct}
        found |= {f"{folder.name}/{world}": (folder, world) for folder in below for world in published_worlds(folder)}
    return found


def _versions(widgets: Mapping[str, str | None]) -> dict[str, str | None]:
    """The versions of the files that the world is made of; None while the source is not known."""
    source = widgets.get("source") or ""
    if base := _bases().get(source):
        files = (path for folder in base.all for path in sorted(folder.rglob("*")))
        return {"versions": " ".join(map(worlds.file_version, files))}
    found = _downloads().get(source)
    return {"versions": worlds.downloads_version(*found) if found else None}


def _source_missing(source: str) -> str:
    return (
        f"no published files at {source!r}: put MLLM-*, VDM_Decoder-*, the CogVideoX-2b vae and the Mistral folder "
        f"into one folder inside {comfyui.model_folders()[0]} and press R; a new world needs CogVideoX-2b and "
        "Mistral-7B-Instruct-v0.1 there"
    )


def world_folder(name: str, downloads: Path | None = None) -> Path:
    """The folder of the world to write; ValueError if the name belongs to the Toybox or to the downloads."""
    folder = comfyui.model_folders()[0] / check_folder_name(name, "world")
    if name == worlds.TOYBOX or folder == downloads:
        raise ValueError(f"world name {name!r} is taken; choose another name for the new world")
    return folder
