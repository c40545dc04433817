"""The verb `batch`: files of games, each played in several takes, with a grid of the takes."""
# ruff: noqa: T201

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from tyro.conf import Positional

from ..checkpoint.adapters import open_with_adapters
from ..runtime.device import choose_device
from ..runtime.models import LoadedModels, PlaySettings
from ..story.batch import Game, play_takes, read_game_files, take_seeds
from ..story.player import PlayedTurn, Player, read_in
from ..story.story import Story
from .options import Adapters, Device, Guidance, World


@dataclass(frozen=True, kw_only=True)
class Options:
    files: Positional[tuple[Path, ...]]
    """Text files of games, or folders of them: an instruction per line, a blank line between games."""
    takes: int = 1
    """Takes of each game, each with its own noise."""
    world: World = "toybox"
    lora: Adapters = ()
    out: Path = Path("out")
    """Folder that holds stories."""
    seed: int = 0
    """Noise seed of turn 1 in the first take."""
    steps: int | None = None
    """Sampling steps; unset: the world's."""
    guidance: Guidance | None = None
    """Guidance schedule; unset: the profile's."""
    device: Device = "auto"


def run(args: Options) -> int:
    """Play all games; after an interruption the same command continues."""
    games, seeds = read_game_files(args.files), take_seeds(args.takes, args.seed)
    world = open_with_adapters(args.world, args.lora, playing=True)
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
