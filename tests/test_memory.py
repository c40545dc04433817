"""Memory: loading a world takes one copy of its weights, and played turns take none."""

import gc
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from long_game import MB, long_game
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


@pytest.fixture(scope="module")
def loads(tmp_path_factory):
    """{way: bytes} of loading an engine of 244 MB, stored in bfloat16, in a process of its own."""
    wide = EngineSpec(vocab_size=512, hidden=1024, intermediate=4096, layers=8, heads=8, kv_heads=2)
    spec = replace(TINY, engine=wide)
    engine, _ = random_models(spec, PROFILES["paper"], CPU, torch.bfloat16)
    world = save_part(save_world(tmp_path_factory.mktemp("wide") / "world", spec), engine)
    del engine
    gc.collect()
    here = Path(__file__).parent / "support"
    command = [sys.executable, str(here / "load_memory.py"), str(world.folder)]
    surroundings = {**os.environ, "PYTHONPATH": str(here.parents[1])}
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=surroundings)
    return json.loads(run.stdout)


needs_proc = pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="memory is read from Linux's /proc")


@needs_proc
def test_weights_of_the_stored_type_are_mapped_from_the_file(loads):
    load = loads["stored"]
    assert load["weights"] > 230 * MB and load["peak"] < 30 * MB, load


@needs_proc
def test_weights_move_to_another_device_tensor_by_tensor(loads):
    """The meta device stands for a GPU: its tensors take no host memory, so only copies on the way count."""
    load = loads["elsewhere"]
    assert load["peak"] < 30 * MB, load


@needs_proc
def test_another_type_takes_one_copy(loads):
    load = loads["wider"]
    assert load["weights"] * 0.95 < load["peak"] < load["weights"] + 3 * load["largest"] + 30 * MB, load
    assert load["weights"] > 10 * load["largest"], "otherwise a second copy would look like one tensor"


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
