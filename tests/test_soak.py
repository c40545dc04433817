"""Long games: turn 1,000 takes as much memory and time as turn 100."""

import time

import pytest
from long_game import MB, long_game, resident
from tiny_world import save_tiny_world

from animegamer_core.state import CACHED_TURNS
from animegamer_core.story.player import Player, PlaySettings
from animegamer_core.story.story import Story


def typical(seconds):
    """Processor seconds of an undisturbed turn: the tenth percentile."""
    return sorted(seconds)[len(seconds) // 10]


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
    assert held == list(range(1001 - CACHED_TURNS, 1001))
    assert sorted(player.story.clips()) == list(range(50, 1001, 50))


@pytest.mark.soak
def test_ten_thousand_turns_are_flat_in_time_and_memory(tmp_path):
    memory, seconds, _ = play_long(tmp_path, 10_000, (1000, 10_000))
    assert memory[10_000] - memory[1000] <= 40 * MB
    early, late = typical(seconds[500:1000]), typical(seconds[9500:])
    assert late <= 1.5 * early, f"a turn took {early:.4f} s at 1,000 and {late:.4f} s at 10,000"
