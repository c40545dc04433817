"""Run as a process of its own, also under `accelerate launch`: plays the small benchmark and writes its report.

table_worker.py WORLD OUT [GAMES TO KILL AFTER]
"""

import os
import signal
import sys
from pathlib import Path

import torch
from table_world import small_games, tiny_models

from animegamer_core.cli.evaluate import carry_out
from animegamer_core.evaluate.players import WorldPlayer
from animegamer_core.evaluate.world.runner import EvaluationJob
from animegamer_core.story.player import PlaySettings
from animegamer_core.train.distributed import processes
from animegamer_core.weights import open_world


class Dying(WorldPlayer):
    """Kills its own process, as a crash would, in the middle of a game."""

    def play(self, game, seed):
        for number, shot in enumerate(super().play(game, seed), 1):
            if game.name == "small-2" and number == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            yield shot


def main(world, out, dies=""):
    torch.set_num_threads(1)
    world = open_world(world)
    kind = Dying if dies else WorldPlayer
    job = EvaluationJob(
        world=world,
        player=kind(world, PlaySettings(steps=2)),
        models=tiny_models(),
        games=small_games(),
        out=Path(out),
    )
    state = processes()
    return carry_out(job, (), state.process_index, state.num_processes)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
