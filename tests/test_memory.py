"""Memory that stays where it should: one copy of a world while it is loaded, none of a turn once it was played."""

import ctypes
import gc
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from torch._subclasses.fake_tensor import is_fake

from animegamer_core.bench.turn import random_models
from animegamer_core.checkpoint import save_part, save_world
from animegamer_core.play import Player, PlaySettings
from animegamer_core.spec import PROFILES, SPECS, EngineSpec
from animegamer_core.state import KEPT_TURNS
from animegamer_core.story import Story
from animegamer_core.toybox.games import sample_game
from animegamer_core.toybox.world import instruction

MB = 1 << 20
TINY = SPECS["tiny"]
CPU = torch.device("cpu")
WARM, TURNS = 20, 200

# ---- loading


@pytest.fixture(scope="module")
def loads(tmp_path_factory):
    """{way: bytes and seconds} of loading an engine of 244 MB, which lies in bfloat16, in a process of its own."""
    wide = EngineSpec(vocab_size=512, hidden=1024, intermediate=4096, layers=8, heads=8, kv_heads=2)
    spec = replace(TINY, engine=wide)
    engine, _ = random_models(spec, PROFILES["paper"], CPU, torch.bfloat16)
    world = save_part(save_world(tmp_path_factory.mktemp("wide") / "world", spec), engine)
    del engine
    gc.collect()
    here = Path(__file__).parent
    command = [sys.executable, str(here / "load_memory.py"), str(world.folder)]
    surroundings = {**os.environ, "PYTHONPATH": str(here.parent)}
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=surroundings)
    return json.loads(run.stdout)


needs_proc = pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="memory is counted as Linux tells it")


@needs_proc
def test_weights_are_read_from_the_file_where_the_type_is_the_stored_one(loads):
    load = loads["stored"]
    assert load["weights"] > 230 * MB and load["peak"] < 30 * MB, load


@needs_proc
def test_on_its_way_to_another_device_a_world_passes_tensor_by_tensor(loads):
    """The meta device stands for a GPU: its tensors take no host memory, so what is counted is the way there."""
    load = loads["elsewhere"]
    assert load["peak"] < 30 * MB, load


@needs_proc
@pytest.mark.parametrize("way", ["wider", "other"])
def test_a_type_of_ones_own_takes_one_copy(loads, way):
    load = loads[way]
    assert load["weights"] * 0.95 < load["peak"] < load["weights"] + 3 * load["largest"] + 30 * MB, load
    assert load["weights"] > 10 * load["largest"], "else a second copy would pass for a tensor"


# ---- playing


def roomy_world(folder):
    """A tiny world whose representations are large beside what else a turn makes: 32 kB each."""
    state, engine = replace(TINY.state, text_tokens=128, image_tokens=128), replace(TINY.engine, vocab_size=1024)
    spec = replace(TINY, state=state, engine=engine)
    torch.manual_seed(5)
    world = save_world(folder, spec, profile="paper")
    for model in random_models(spec, PROFILES["paper"], CPU, torch.float32):
        world = save_part(world, model)
    return world


def lines(count):
    """Instructions of a Toybox game without end."""
    scenes = (scene for seed in range(count) for scene in sample_game(seed).scenes)
    return [instruction(scene, 1 + number % 5) for number, scene in zip(range(count), scenes, strict=False)]


def resident():
    """Bytes in use, less what the allocator keeps for later."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return psutil.Process().memory_info().rss


def tensor_bytes():
    """Bytes of all tensors that Python knows of, without those that a compiler imagined, which take none."""
    gc.collect()
    tensors = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor) and not is_fake(each)]
    return sum({each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in tensors}.values())


def growth(root, after_turn=lambda player: None, device="cpu"):
    """Bytes that turns 21 to 200 add: of memory, of tensors, of the GPU; and those of one representation."""
    world = roomy_world(root / "world")
    settings = PlaySettings(window=1, steps=1, device=device)
    player = Player(world, Story.open(root, "long", world.spec.name, world.fingerprint), settings)
    marks = []
    for number, line in enumerate(lines(TURNS), start=1):
        player.step(line, draw=number % 20 == 0)
        after_turn(player)
        if number in (WARM, TURNS):
            on_gpu = torch.cuda.memory_allocated() if device == "cuda" else 0
            marks.append((resident(), tensor_bytes(), on_gpu))
    added = [after - before for before, after in zip(*marks, strict=True)]
    return *added, world.spec.state.tokens * world.spec.state.width * 4


def test_two_hundred_turns_leave_memory_flat(tmp_path):
    memory, tensors, _, one = growth(tmp_path)
    assert tensors == 0, f"{tensors / one:.1f} representations are kept"
    assert memory < one * (TURNS - WARM) // 2, f"{memory / MB:.1f} MB more after {TURNS - WARM} turns"


def test_one_representation_kept_a_turn_would_be_seen(tmp_path):
    kept = []
    keep = lambda player: kept.append(player.session.turns[-1].state.representation)  # noqa: E731
    memory, tensors, _, one = growth(tmp_path, keep)
    assert KEPT_TURNS <= WARM, "the game itself keeps these"
    assert tensors >= one * (TURNS - WARM)
    assert memory > one * (TURNS - WARM) // 2 and len(kept) == TURNS


@pytest.mark.gpu
def test_two_hundred_turns_leave_a_gpu_flat(tmp_path):
    memory, tensors, on_gpu, one = growth(tmp_path, device="cuda")
    assert on_gpu == 0 and tensors == 0, f"{on_gpu / one:.1f} and {tensors / one:.1f} representations are kept"
    assert memory < one * (TURNS - WARM) // 2
