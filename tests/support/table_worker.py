"""Run under `accelerate launch`: plays the small benchmark and writes its report: table_worker.py WORLD OUT."""

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


def main(folder, out):
    torch.set_num_threads(1)
    world = open_world(folder)
    player = WorldPlayer(world, PlaySettings(steps=2))
    job = EvaluationJob(world=world, player=player, models=tiny_models(), games=small_games(), out=Path(out))
    state = processes()
    return carry_out(job, (), state.process_index, state.num_processes)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
