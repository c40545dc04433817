"""Memory: loading a world takes one copy of its weights, and played turns take none; nor does the thousandth."""

import gc
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from long_game import MB, long_game, resident
from tiny_world import save_tiny_world
from torch._subclasses.fake_tensor import is_fake

from animegamer_core.evaluate.benchmark.turn import random_models
from animegamer_core.game.state import CACHED_TURNS
from animegamer_core.spec import PROFILES, SPECS, EngineSpec
from animegamer_core.story.player import Player, PlaySettings
from animegamer_core.story.story import Story
from animegamer_core.weights import save_part, save_world

TINY = SPECS["tiny"]
CPU = torch.device("cpu")

# ---- loading


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="memory is read from Linux's /proc")
def test_a_load_takes_one_copy_at_most_and_none_of_the_stored_type(tmp_path):
    """Of an engine of 244 MB, stored in bfloat16, in a process of its own."""
    wide = EngineSpec(vocab_size=512, hidden=1024, intermediate=4096, layers=8, heads=8, kv_heads=2)
    spec = replace(TINY, engine=wide)
    engine, _ = random_models(spec, PROFILES["paper"], CPU, torch.bfloat16)
    world = save_part(save_world(tmp_path / "world", spec), engine)
    del engine
    gc.collect()
    here = Path(__file__).parent / "support"
    command = [sys.executable, str(here / "load_memory.py"), str(world.folder)]
    surroundings = {**os.environ, "PYTHONPATH": str(here.parents[1])}
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=surroundings)
    loads = json.loads(run.stdout)
    stored, wider = loads["stored"], loads["wider"]
    assert stored["weights"] > 230 * MB and stored["peak"] < 30 * MB, "mapped from the file"
    # The meta device stands for a GPU: its tensors take no host memory, so only copies on the way count.
    assert loads["elsewhere"]["peak"] < 30 * MB, "tensor by tensor"
    assert wider["weights"] * 0.95 < wider["peak"] < wider["weights"] + 3 * wider["largest"] + 30 * MB, wider
    assert wider["weights"] > 10 * wider["largest"], "otherwise a second copy would look like one tensor"


# ---- playing


def tensor_bytes():
    """Bytes of all tensors, without the compiler's fake ones."""
    gc.collect()
    tensors = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor) and not is_fake(each)]
    return sum({each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in tensors}.values())


def test_played_turns_keep_no_tensors(tmp_path):
    world = save_tiny_world(tmp_path / "world")
    player = Player(world, Story.open(tmp_path, "long", "tiny", world.fingerprint), PlaySettings(window=1, steps=1))
    held = []
    for number, line in enumerate(long_game(2 * CACHED_TURNS), start=1):
        player.step(line)
        if number in (CACHED_TURNS + 1, 2 * CACHED_TURNS):
            held.append(tensor_bytes())
    assert held[0] == held[1]


def typical(seconds):
    """Processor seconds of an undisturbed turn: the tenth percentile."""
    return sorted(seconds)[len(seconds) // 10]


@pytest.mark.soak
def test_a_thousand_turns_are_flat_in_time_and_memory(tmp_path):
    world = save_tiny_world(tmp_path / "world")
    player = Player(world, Story.open(tmp_path, "long", world.spec.name, world.fingerprint), PlaySettings(steps=1))
    memory, seconds = {}, []
    for number, line in enumerate(long_game(1000), start=1):
        before = time.process_time()
        player.step(line)
        seconds.append(time.process_time() - before)
        if number in (100, 1000):
            memory[number] = resident()
    assert memory[1000] - memory[100] <= 20 * MB
    early, late = typical(seconds[100:200]), typical(seconds[900:])
    assert late <= 1.5 * early, f"a turn took {early:.4f} s at 100 and {late:.4f} s at 1,000"
    held = [turn.number for turn in player.session.turns if turn.state.representation is not None]
    assert held == list(range(1001 - CACHED_TURNS, 1001))
    assert sorted(player.story.clips()) == list(range(1, 1001))
