"""The ComfyUI nodes. Only the modules `comfyui` and `routes` call ComfyUI's own modules."""

from __future__ import annotations

import typing

from comfy_api.v0_0_2 import ComfyExtension, io

from . import ahead_routes, comfyui, page_files, routes, story_routes, templates
from .ahead import DrawTurnsAhead
from .batch import PlayGameBatch
from .convert import ConvertAnimeGamer
from .dataset import BuildGameDataset
from .drawing import DecodeShot, EncodeShotLatent
from .evaluation import EvaluateGame
from .films import ExportGameStory
from .game import ComposeGameInstruction, GameHistory, LoadAnimeGamer, PredictNextState, StateDisplay
from .openings import EncodeShot, ReadFilmSpan
from .play import PlayGameStory
from .story import LoadGameStory, SaveGameStory
from .training import TrainLoRAStage
from .turn_values import GameTurnValues
from .weights import GetAnimeGamerWeights

# Static tools look for this literal; ComfyUI itself takes the list below.
NODE_CLASS_MAPPINGS = {
    "LoadAnimeGamer": LoadAnimeGamer,
    "ComposeGameInstruction": ComposeGameInstruction,
    "GameHistory": GameHistory,
    "EncodeShot": EncodeShot,
    "EncodeShotLatent": EncodeShotLatent,
    "PredictNextState": PredictNextState,
    "DecodeShot": DecodeShot,
    "StateDisplay": StateDisplay,
    "PlayGameStory": PlayGameStory,
    "SaveGameStory": SaveGameStory,
    "LoadGameStory": LoadGameStory,
    "TrainLoRAStage": TrainLoRAStage,
    "EvaluateGame": EvaluateGame,
    "ConvertAnimeGamer": ConvertAnimeGamer,
    "BuildGameDataset": BuildGameDataset,
    "GetAnimeGamerWeights": GetAnimeGamerWeights,
    "ExportGameStory": ExportGameStory,
    "PlayGameBatch": PlayGameBatch,
    "DrawTurnsAhead": DrawTurnsAhead,
    "ReadFilmSpan": ReadFilmSpan,
    "GameTurnValues": GameTurnValues,
}


# If you rename a node, add {old_node_id, new_node_id, old_widget_ids, input_mapping, output_mapping}. Empty, because no
# node or input has been renamed since the first version.
REPLACED: tuple[dict[str, typing.Any], ...] = ()


class AnimeGamerExtension(ComfyExtension):
    """The extension that ComfyUI loads."""

    async def on_load(self) -> None:
        """Newer versions of ComfyUI call this first."""
        await comfyui.replace_nodes(REPLACED)

    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        """All nodes, after the pack's model folder and routes are registered."""
        comfyui.register_folders()
        routes.register()
        story_routes.register()
        ahead_routes.register()
        templates.register()
        page_files.register()
        return list(NODE_CLASS_MAPPINGS.values())
