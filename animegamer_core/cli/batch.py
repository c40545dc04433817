"""The verb `batch`: files of games, each played in several takes, with a grid of the takes."""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from ..checkpoint.adapters import open_with_adapters
from ..runtime.device import choose_device
from ..runtime.models import LoadedModels, PlaySettings
from ..spec import GUIDANCE_NAMES
from ..story.batch import Game, play_takes, read_game_files
from ..story.player import PlayedTurn, Player, read_in
from ..story.story import Story
from ..story.takes import take_seeds
from .options import add_adapter_option


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `batch`."""
    add = parser.add_argument
    add(
        "files",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="text files of games, or folders of them: an instruction per line, a blank line between games",
    )
    add(
        "--takes",
        type=int,
        default=1,
        metavar="N",
        help="takes of each game, each with its own noise (default %(default)s)",
    )
    add("--world", default="toybox", help="toybox, or a world's folder (default %(default)s)")
    add_adapter_option(parser)
    add("--out", type=Path, default=Path("out"), help="folder that holds stories (default %(default)s)")
    add("--seed", type=int, default=0, help="noise seed of turn 1 in the first take (default %(default)s)")
    add("--steps", type=int, help="sampling steps (default: the world's)")
    add("--guidance", choices=GUIDANCE_NAMES, help="guidance schedule (default: the profile's)")
    add("--device", default="auto", help="auto, cpu, cuda or mps (default %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Play all games; after an interruption the same command continues."""
    games, seeds = read_game_files(args.files), take_seeds(args.takes, args.seed)
    world = open_with_adapters(args.world, args.stage_file, playing=True)
    for game in games:  # before anything is played; it writes nothing
        story = Story.open(args.out, game.name, world.spec.name, world.fingerprint)
        for turn, line in enumerate(game.instructions, start=1):
            read_in(story, turn, line, world)
    settings = PlaySettings(steps=args.steps, guidance=args.guidance, device=choose_device(args.device))
    models = LoadedModels(world, settings)
    for number, game in enumerate(games, start=1):
        story = Story.open(args.out, game.name, world.spec.name, world.fingerprint)

        def play(seed: int, story: Story = story, game: Game = game, number: int = number) -> None:
            Player(world, story, replace(settings, seed=seed), 0, models).play(game.instructions, _show)
            print(f"game {number}/{len(games)} {game.name}  seed {seed}  branch {story.branch}", flush=True)

        with story.lock():
            for path in play_takes(story, game, seeds, play):
                print(path, flush=True)
    return 0


def _show(played: PlayedTurn) -> None:
    how = "drawn" if played.drawn else "known"
    print(f"  turn {played.turn.number}  {played.turn.instruction}  ({how})", file=sys.stderr, flush=True)
