"""ComfyUI's view of the game. Each module holds a few thin nodes; `host` alone touches ComfyUI's own modules."""

from __future__ import annotations

from comfy_api.v0_0_2 import ComfyExtension, io

from . import endpoint, host
from .convert import ConvertAnimeGamer
from .drawing import DecodeShot, EncodeShot
from .films import BuildGameDataset
from .game import ComposeGameInstruction, GameHistory, LoadAnimeGamer, PredictNextState, StateDisplay
from .story import LoadGameStory, PlayGameStory, SaveGameStory
from .work import EvaluateGame, TrainLoRAStage

# Static tools look for this literal; ComfyUI itself takes the list below.
NODE_CLASS_MAPPINGS = {
    "LoadAnimeGamer": LoadAnimeGamer,
    "ComposeGameInstruction": ComposeGameInstruction,
    "GameHistory": GameHistory,
    "EncodeShot": EncodeShot,
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
}


class AnimeGamerExtension(ComfyExtension):
    """The pack as ComfyUI loads it."""

    async def get_node_list(self) -> list[type[io.ComfyNode]]:
        """All nodes, after the pack's model folder and addresses are known."""
        host.register_folders()
        endpoint.register()
        return list(NODE_CLASS_MAPPINGS.values())
