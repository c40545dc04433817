"""Long games: turn 1,000 costs what the hundredth did, in memory and in time."""

import ctypes
import gc
import sys
import time

import psutil
import pytest
import torch
from tiny_world import save_tiny_world

from animegamer_core.play import Player, PlaySettings
from animegamer_core.state import KEPT_TURNS
from animegamer_core.story import Story
from animegamer_core.toybox.games import sample_game
from animegamer_core.toybox.world import instruction

torch.set_num_threads(1)  # more threads only spin at this size, and starve one another on a busy machine
MB = 1 << 20


def resident():
    """Bytes in use; what the allocator keeps for the next shot (now and then 60 MB) is given back first."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return psutil.Process().memory_info().rss


def typical(seconds):
    """Processor seconds of a turn that nothing else on the machine disturbed: the fastest tenth's slowest."""
    return sorted(seconds)[len(seconds) // 10]


def long_game(turns):
    """Instructions of a Toybox game without end."""
    scenes = (scene for seed in range(turns) for scene in sample_game(seed).scenes)
    return [instruction(scene, 1 + number % 5) for number, scene in zip(range(turns), scenes, strict=False)]


def play_long(root, turns, marks):
    """A game whose every 50th turn is drawn; returns {turn: resident bytes}, seconds a turn, and the player."""
    world = save_tiny_world(root / "world")
    player = Player(world, Story.open(root, "long", world.spec.name, world.fingerprint), PlaySettings())
    memory, seconds = {}, []
    for number, line in enumerate(long_game(turns), start=1):
        before = time.process_time()
        player.step(line, draw=number % 50 == 0)
        seconds.append(time.process_time() - before)
        if number in marks:
            memory[number] = resident()
    return memory, seconds, player


def test_a_thousand_turns_are_flat_in_time_and_memory(tmp_path):
    memory, seconds, player = play_long(tmp_path, 1000, (100, 1000))
    assert memory[1000] - memory[100] <= 20 * MB
    early, late = typical(seconds[100:200]), typical(seconds[900:])
    assert late <= 1.5 * early, f"a turn took {early:.4f} s at 100 and {late:.4f} s at 1,000"
    held = [turn.number for turn in player.session.turns if turn.state.representation is not None]
    assert held == list(range(1001 - KEPT_TURNS, 1001))
    assert sorted(player.story.clips()) == list(range(50, 1001, 50))


@pytest.mark.soak
def test_ten_thousand_turns_are_flat_in_time_and_memory(tmp_path):
    memory, seconds, _ = play_long(tmp_path, 10_000, (1000, 10_000))
    assert memory[10_000] - memory[1000] <= 40 * MB
    early, late = typical(seconds[500:1000]), typical(seconds[9500:])
    assert late <= 1.5 * early, f"a turn took {early:.4f} s at 1,000 and {late:.4f} s at 10,000"
