"""EvaluateGame: the Toybox's acceptance table, or the paper's table on a few games."""

from __future__ import annotations

import typing

from comfy_api.v0_0_2 import io

from . import comfyui, worlds
from .models import PACKAGES
from .values import image_of_picture, report_ui
from .widgets import check_choice, choice_input, number_input, schema, seed_input, world_input

if typing.TYPE_CHECKING:
    from PIL import Image

    from ..animegamer_core.weights import World

MEASURED = ("probes", "vae", "shots", "motion", "override", "games", "colour")  # the others take longer


class EvaluateGame(io.ComfyNode):
    """Measures a world by playing games."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="EvaluateGame",
            search_aliases=("benchmark", "metrics", "test world"),
            inputs=[
                world_input(),
                number_input("games", 1, 1, 50),
                seed_input(),
                choice_input("table", TABLES, "toybox", optional=True),
            ],
            outputs=[io.String.Output("report"), io.Image.Output("sheet")],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls, world: str | None = None, **_: object) -> str:
        """Changes when the world on disk does."""
        return worlds.world_version(world or "")

    @classmethod
    def execute(cls, world: str, games: int, seed: int, table: str = "toybox") -> io.NodeOutput:
        comfyui.require(*PACKAGES, "cv2")
        check_choice("table", table, TABLES)
        text, picture = TABLES[table](worlds.find_world(world), games, seed)
        sheet = image_of_picture(picture)
        return io.NodeOutput(text, sheet, ui=report_ui(cls, sheet, text))


def _acceptance_table(world: World, games: int, seed: int) -> tuple[str, Image.Image]:
    """The acceptance table of a Toybox world, and its pictures on one sheet."""
    from ..animegamer_core.evaluate.toybox.context import EvalContext
    from ..animegamer_core.evaluate.toybox.rows import accept
    from ..animegamer_core.evaluate.toybox.run import QUICK, EvalRun

    # Not in worker processes: each would start ComfyUI's main module again.
    context = EvalContext(world, comfyui.clear_device(), workers=1, on_progress=comfyui.NodeProgress())
    for model in (context.engine, context.decoder, context.encoder, context.probes):
        comfyui.make_interruptible(model)
    report = accept(EvalRun(context, QUICK.limited(games), seed), MEASURED)
    return report.text, report.sheet()


def _paper_table(world: World, games: int, seed: int) -> tuple[str, Image.Image]:
    """The paper's table on the first games of the fixed benchmark, and the first one's contact sheet."""
    from ..animegamer_core.evaluate.players import WorldPlayer
    from ..animegamer_core.evaluate.world.runner import evaluate_small
    from ..animegamer_core.story.player import PlaySettings

    player = WorldPlayer(world, PlaySettings(device=str(comfyui.clear_device())))
    for model in (player.engine, player.decoder):
        comfyui.make_interruptible(model)
    folder = comfyui.output_folder() / comfyui.EVALUATIONS
    return evaluate_small(player, folder, games, seed, comfyui.NodeProgress())


TABLES = {"toybox": _acceptance_table, "paper": _paper_table}
