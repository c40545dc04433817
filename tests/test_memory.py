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
from long_game import MB, long_game, resident
from torch._subclasses.fake_tensor import is_fake

from animegamer_core.evaluate.benchmark.turn import random_models
from animegamer_core.spec import PROFILES, SPECS, EngineSpec
from animegamer_core.story.player import Player, PlaySettings
from animegamer_core.story.story import Story
from animegamer_core.weights import save_part, save_world

TINY = SPECS["tiny"]
CPU = torch.device("cpu")
WARM, TURNS = 20, 100

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


def roomy_world(folder):
    """A tiny world with representations of 32 kB, large compared to other data of a turn."""
    state, engine = replace(TINY.state, text_tokens=128, image_tokens=128), replace(TINY.engine, vocab_size=1024)
    spec = replace(TINY, state=state, engine=engine)
    torch.manual_seed(5)
    world = save_world(folder, spec, profile="paper")
    for model in random_models(spec, PROFILES["paper"], CPU, torch.float32):
        world = save_part(world, model)
    return world


def tensor_bytes():
    """Bytes of all tensors, without the compiler's fake ones."""
    gc.collect()
    tensors = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor) and not is_fake(each)]
    return sum({each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in tensors}.values())


def growth(root, device="cpu"):
    """Bytes that turns 21 to 100 add to memory, to tensors and on the GPU; and the bytes of one representation."""
    world = roomy_world(root / "world")
    settings = PlaySettings(window=1, steps=1, device=device)
    player = Player(world, Story.open(root, "long", world.spec.name, world.fingerprint), settings)
    marks = []
    for number, line in enumerate(long_game(TURNS), start=1):
        player.step(line, draw=number % 20 == 0)
        if number in (WARM, TURNS):
            on_gpu = torch.cuda.memory_allocated() if device == "cuda" else 0
            marks.append((resident(), tensor_bytes(), on_gpu))
    added = [after - before for before, after in zip(*marks, strict=True)]
    return *added, world.spec.state.tokens * world.spec.state.width * 4


def test_memory_is_constant_over_a_hundred_turns(tmp_path):
    memory, tensors, _, one = growth(tmp_path)
    assert tensors == 0, f"{tensors / one:.1f} representations leak"
    assert memory < one * (TURNS - WARM) // 2, f"{memory / MB:.1f} MB more after {TURNS - WARM} turns"
