"""PlayGameTakes: a game that is played in several takes, shown side by side."""

from __future__ import annotations

import typing
from dataclasses import replace

from comfy_api.v0_0_2 import InputImpl, io

from ..animegamer_core.game.state import read_instructions
from ..animegamer_core.story.player import Player
from ..animegamer_core.story.takes import MOST_TAKES, play_takes, take_seeds
from . import comfyui
from .drawing import motion_of_turns, shot_inputs
from .fingerprints import Fingerprints
from .models import PACKAGES, GameModel
from .play import GameRun
from .saved_stories import open_story, story_name, story_version
from .values import ModelSocket, image_of_picture
from .widgets import number_input, schema, seed_input, story_input, window_input, window_of

PLAYED = Fingerprints(story_version)


class PlayGameTakes(io.ComfyNode):
    """Plays a game in several takes, and shows the takes side by side."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="PlayGameTakes",
            display_name="Play Game Takes",
            search_aliases=("takes", "seeds", "batch", "grid", "compare"),
            advanced=("window", "guidance"),
            inputs=[
                ModelSocket.Input("model"),
                io.String.Input(
                    "text",
                    default="Character: Miko; Motion: gently wave hello; Background: day beach.\n"
                    "Character: Miko; Motion: quickly run; Background: day beach.",
                    multiline=True,
                ),
                story_input(),
                number_input("takes", 4, 1, MOST_TAKES),
                seed_input(),
                window_input(),
                *shot_inputs(),
            ],
            outputs=[io.Image.Output("grid"), io.Video.Output("video")],
            hidden=[io.Hidden.unique_id],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls, **widgets: object) -> str:
        """Changes when the story does."""
        return PLAYED.fingerprint(widgets)

    @classmethod
    def execute(
        cls, model: GameModel, text: str, story: str, takes: int, seed: int, window: int, **drawing: typing.Any
    ) -> io.NodeOutput:
        from PIL import Image

        comfyui.require(*PACKAGES, "av")
        seeds, instructions, node = take_seeds(takes, seed), read_instructions(text), str(cls.hidden.unique_id)
        if not instructions:
            raise ValueError("text holds no instruction; write one per line")
        opened = open_story(story_name(story), model.world.spec.name, model.fingerprint)
        motion = motion_of_turns(drawing["motion"], drawing["motion_value"], range(1, len(instructions) + 1), model)
        chosen = model.settings(drawing["steps"], drawing["guidance"], window=window_of(window), motion=motion)

        def play(seed: int) -> None:
            player = Player(model.world, opened, replace(chosen, seed=seed), 0, model)
            GameRun(player, model).play(instructions, node)

        with opened.lock():
            video, picture = play_takes(opened, len(instructions), seeds, play)
        PLAYED.record(dict(text=text, story=story, takes=takes, seed=seed, window=window, **drawing), story)
        with Image.open(picture) as grid:
            shown = image_of_picture(grid)
        ui = {"images": [comfyui.output_item(video)], "animated": [True]}
        return io.NodeOutput(shown, InputImpl.VideoFromFile(str(video)), ui=ui)
