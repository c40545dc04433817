"""PlayGameBatch: files of games, each played in several takes, with a grid of the takes."""

from __future__ import annotations

import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from comfy_api.v0_0_2 import InputImpl, io

from ..animegamer_core.story.batch import (
    GAME_SUFFIX,
    MOST_TAKES,
    Game,
    play_takes,
    read_game_files,
    read_games,
    take_seeds,
)
from ..animegamer_core.story.player import Player
from . import comfyui
from .drawing import motion_of_turns, shot_inputs
from .fingerprints import Fingerprints
from .models import PACKAGES, GameModel
from .play import GameRun
from .saved_stories import open_story, story_name, story_version
from .values import ModelSocket, image_of_picture
from .widgets import choice_input, number_input, schema, seed_input, story_input, window_input, window_of

TYPED = "typed below"  # a choice in the list of files
GAMES = "games"  # folder in input/animegamer


def _stories_version(prefix: str) -> str:
    """The versions of all stories of a batch."""
    folders = sorted(comfyui.output_folder().glob("*"))
    return " ".join(story_version(path.name) for path in folders if path.name.startswith(prefix))


PLAYED = Fingerprints(_stories_version)


@dataclass(frozen=True)
class BatchInputs:
    """The inputs of PlayGameBatch."""

    model: GameModel
    games: str
    text: str
    story: str
    takes: int
    seed: int
    window: int
    motion: str
    motion_value: float
    steps: int
    guidance: str


class PlayGameBatch(io.ComfyNode):
    """Plays files of games in several takes each, and shows the takes side by side."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="PlayGameBatch",
            display_name="Play Game Batch",
            search_aliases=("takes", "seeds", "batch", "grid", "compare"),
            advanced=("window", "guidance"),
            description="Plays whole games from text, a file or a folder of files, each in several takes, and shows "
            "the takes side by side. Each game becomes a story, and each take a branch of it. Turns that were "
            "played before are loaded, not computed again, so a stopped batch continues where it stopped.",
            inputs=[
                ModelSocket.Input("model", tooltip="The world to play in."),
                choice_input(
                    "games",
                    [TYPED, *_game_files()],
                    TYPED,
                    f"The games: those typed below, a {GAME_SUFFIX} file in input/animegamer/{GAMES}, or a folder of "
                    "them there. Press R to see new ones.",
                ),
                io.String.Input(
                    "text",
                    default="Character: Miko; Motion: gently wave hello; Background: day beach.\n"
                    "Character: Miko; Motion: quickly run; Background: day beach.",
                    multiline=True,
                    tooltip="One instruction per line, a blank line between games. # starts a comment.",
                ),
                story_input(),
                number_input("takes", 4, 1, MOST_TAKES, "How many takes of each game, each with its own noise."),
                seed_input("Noise seed of turn 1 in the first take; each later turn adds 1, each further take 1009."),
                window_input(),
                *shot_inputs(),
            ],
            outputs=[
                io.Image.Output(
                    "grids",
                    display_name="grids",
                    is_output_list=True,
                    tooltip="One image per game: a row per turn, a column per take.",
                ),
                io.Video.Output(
                    "videos", display_name="videos", is_output_list=True, tooltip="The takes of each game side by side."
                ),
                io.String.Output(
                    "stories",
                    display_name="stories",
                    is_output_list=True,
                    tooltip="The names of the stories, one per game.",
                ),
            ],
            hidden=[io.Hidden.unique_id],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls, **widgets: object) -> str:
        """Changes when one of the batch's stories or its file of games does."""
        return f"{PLAYED.fingerprint(widgets)} {_file_version(str(widgets.get('games')))}"

    @classmethod
    def execute(cls, **inputs: typing.Any) -> io.NodeOutput:
        given = BatchInputs(**inputs)
        comfyui.require(*PACKAGES, "av")
        seeds, games = take_seeds(given.takes, given.seed), _games(given)
        names = [story_name(game.name) for game in games]
        for name in names:  # before anything is played; it writes nothing
            open_story(name, given.model.world.spec.name, given.model.fingerprint)
        files = [
            _play(given, game, name, seeds, str(cls.hidden.unique_id)) for game, name in zip(games, names, strict=True)
        ]
        PLAYED.record(inputs, given.story)
        return _output(names, files)


def _play(given: BatchInputs, game: Game, name: str, seeds: Sequence[int], node: str) -> list[Path]:
    """Play all takes of a game; returns the files of its grid."""
    model, turns = given.model, range(1, len(game.instructions) + 1)
    story = open_story(name, model.world.spec.name, model.fingerprint)
    motion = motion_of_turns(given.motion, given.motion_value, turns, model)
    window = window_of(given.window)

    def play(seed: int) -> None:
        settings = model.settings(given.steps, given.guidance, window=window, seed=seed, motion=motion)
        player = Player(model.world, story, settings, 0, model)
        GameRun(player, model).play(game.instructions, node)

    with story.lock():
        return play_takes(story, game, seeds, play)


def _output(names: Sequence[str], files: Sequence[Sequence[Path]]) -> io.NodeOutput:
    """The outputs, and a `ui` value that plays the first grid."""
    from PIL import Image

    pictures = []
    for _, picture in files:
        with Image.open(picture) as opened:
            pictures.append(image_of_picture(opened))
    videos = [InputImpl.VideoFromFile(str(video)) for video, _ in files]
    shown = {"images": [comfyui.output_item(files[0][0])], "animated": [True], "text": ["\n".join(names)]}
    return io.NodeOutput(pictures, videos, list(names), ui=shown)


def _games(given: BatchInputs) -> tuple[Game, ...]:
    if given.games == TYPED:
        return read_games(given.text, given.story)
    path = _game_files().get(given.games)
    if path is None:
        place = comfyui.input_folder() / GAMES
        raise ValueError(f"games {given.games!r} was not found; put the file into {place} and press R")
    return tuple(Game(f"{given.story} {game.name}", game.instructions) for game in read_game_files([path]))


def _game_files() -> dict[str, Path]:
    """Files and folders of games by their names in the list. Names from widgets never become paths."""
    root = comfyui.input_folder() / GAMES
    found = {path.name: path for path in sorted(root.glob(f"*{GAME_SUFFIX}")) if path.is_file()}
    return found | {f"{path.name}/": path for path in sorted(root.glob("*")) if any(path.glob(f"*{GAME_SUFFIX}"))}


def _file_version(name: str) -> str:
    """Changes when the chosen file, or a file of the chosen folder, does."""
    path = _game_files().get(name)
    if path is None:
        return ""
    files = [path] if path.is_file() else sorted(path.glob(f"*{GAME_SUFFIX}"))
    return " ".join(f"{file.name}:{file.stat().st_mtime_ns}" for file in files)
