"""The ComfyUI nodes. Only the modules `comfyui` and `routes` call ComfyUI's own modules."""

from __future__ import annotations

from comfy_api.v0_0_2 import ComfyExtension, io

from . import comfyui, routes
from .dataset import BuildGameDataset
from .drawing import DecodeShot, EncodeShot, EncodeShotLatent, ReadFilmSpan
from .evaluation import EvaluateGame
from .game import ComposeGameInstruction, GameHistory, GameTurnValues, LoadAnimeGamer, PredictNextState, StateDisplay
from .play import PlayGameStory, PlayGameTakes
from .story import ExportGameStory, LoadGameStory, SaveGameStory
from .training import TrainFilmWorld, TrainLoRAStage
from .weights import ConvertAnimeGamer, GetAnimeGamerWeights

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
    "TrainFilmWorld": TrainFilmWorld,
    "EvaluateGame": EvaluateGame,
    "ConvertAnimeGamer": ConvertAnimeGamer,
    "BuildGameDataset": BuildGameDataset,
    "GetAnimeGamerWeights": GetAnimeGamerWeights,
    "ExportGameStory": ExportGameStory,
    "PlayGameTakes": PlayGameTakes,
    "ReadFilmSpan": ReadFilmSpan,
    "GameTurnValues": GameTurnValues,
}


class AnimeGamerExtension(ComfyExtension):
    """The extension that ComfyUI loads."""

    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        """All nodes, after the pack's model folder and routes are registered."""
        comfyui.register_folders()
        routes.register()
        comfyui.register_responses()
        return list(NODE_CLASS_MAPPINGS.values())
