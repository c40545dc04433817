"""GetAnimeGamerWeights: downloads published weights into the model folder, and what the page asks before it does."""

from __future__ import annotations

import shutil
import typing
from dataclasses import dataclass
from pathlib import Path

from comfy_api.v0_0_2 import io

from ..animegamer_core.checkpoint import base_folders
from ..animegamer_core.checkpoint.downloads import LICENCE
from ..animegamer_core.checkpoint.fetch import BASE_PIECES, ENCODER_PIECES, WORLD_PIECES, missing_pieces, size_text
from . import comfyui, worlds
from .widgets import choice_input, schema

CHOICES = (*worlds.PUBLISHED, worlds.BASE_WEIGHTS)
MIB = 1 << 20
PACKAGES = ("huggingface_hub", "msgspec")
ASK = "Nothing was downloaded. Read the licences above. If you accept them, switch accept on and run this node again."


class GetAnimeGamerWeights(io.ComfyNode):
    """Downloads published weights, after their licences were accepted."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="GetAnimeGamerWeights",
            display_name="Get AnimeGamer Weights",
            search_aliases=("download", "model download", "Hugging Face", "install weights"),
            description="Downloads published weights into models/animegamer, and converts a world as it comes. Run it "
            "once to see the files, their sizes and licences; then switch accept on and run it again. An interrupted "
            "download continues where it stopped, and every large file is checked against the hub's checksum.",
            inputs=[
                choice_input(
                    "weights",
                    CHOICES,
                    worlds.PUBLISHED[0],
                    "qiqi, sosuke: the worlds of the two films. base models: CogVideoX-2B and Mistral; Convert "
                    "AnimeGamer makes a new world from them, to train.",
                ),
                io.Boolean.Input(
                    "towers",
                    default=False,
                    tooltip="Also download the text and image encoders (T5, CLIP; about 10 GB), needed only to encode "
                    "pictures and to train. The base models always include them.",
                ),
                io.Boolean.Input(
                    "accept",
                    default=False,
                    tooltip="On: you have read and accept the licences that this node shows; AnimeGamer's says that it "
                    "is not intended for use within the European Union. Off: nothing is downloaded.",
                ),
            ],
            outputs=[
                io.String.Output("world", display_name="world", tooltip="The name of what was downloaded."),
                io.String.Output(
                    "report", display_name="report", tooltip="The files, their sizes, sources and licences."
                ),
            ],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls, weights: str, towers: bool, **_: object) -> str:
        """Changes when files of these weights come or go."""
        here = " ".join(piece.folder for piece in missing_pieces(weights, worlds.weights_folder(weights), towers))
        return f"{here} {worlds.world_version(weights)}"

    @classmethod
    def execute(cls, weights: str, towers: bool, accept: bool) -> io.NodeOutput:
        if weights not in CHOICES:  # older ComfyUI does not check
            raise ValueError(f"weights is {weights!r}; choose {', '.join(CHOICES)}")
        comfyui.require(*PACKAGES)
        from ..animegamer_core.checkpoint.fetch import fetch, plan_fetch, plan_text

        progress = comfyui.NodeProgress()
        plan = plan_fetch(weights, worlds.weights_folder(weights), encoders=towers)
        if plan.steps and not accept:
            report = plan_text(plan)
            notes = [*report.strip().splitlines(), ASK]
            return io.NodeOutput(comfyui.blocked(ASK), report, ui={"text": [report], "animegamer_notes": notes})
        fetch(plan, _Counted(progress, "download", plan.bytes))
        report = f"All files are there.\n{plan_text(plan)}"
        note = f"{weights}: all files are in {plan.out}. Press R, then choose it in Load AnimeGamer."
        return io.NodeOutput(weights, report, ui={"text": [report], "animegamer_notes": [note]})


def offer(query: typing.Mapping[str, str]) -> dict[str, typing.Any]:
    """What a page shows before weights are downloaded, without a request to the hub. ValueError for unknown weights.

    Sizes are about those of the published files.
    """
    weights, towers = query.get("weights", ""), query.get("towers", "0") not in ("", "0", "false")
    if weights not in CHOICES:
        raise ValueError(f"unknown weights {weights!r}; choose {', '.join(CHOICES)}")
    folder = worlds.weights_folder(weights)
    known = BASE_PIECES if weights == worlds.BASE_WEIGHTS else (*WORLD_PIECES, *(ENCODER_PIECES if towers else ()))
    missing = missing_pieces(weights, folder, towers)
    repos = dict.fromkeys(repo for piece in known for repo in piece.files)
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
        "free": size_text(_free_bytes(folder)),
        "fits": room < _free_bytes(folder),
        "sources": [f"https://huggingface.co/{repo}" for repo in repos],
        "notice": base_folders.LICENCE if weights == worlds.BASE_WEIGHTS else LICENCE,
        "command": worlds.fetch_command(weights, folder, towers),
        "command_folder": str(comfyui.PACK),
    }


@dataclass
class _Counted:
    """Reports downloaded MiB of a total (0: unknown), and checks for an interrupt."""

    progress: comfyui.NodeProgress
    what: str
    total: int
    done: int = 0

    def __call__(self, new: int, _: str) -> None:
        comfyui.stop_if_interrupted()
        before, self.done = self.done // MIB, self.done + new
        if self.total and self.done // MIB != before:
            self.progress(self.what, min(self.done, self.total) // MIB, max(1, self.total // MIB))


def _free_bytes(folder: Path) -> int:
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    return shutil.disk_usage(there).free
