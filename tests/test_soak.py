"""Long games: turn 1,000 takes as much memory and time as turn 100."""

import time

import pytest
from long_game import MB, long_game, resident
from tiny_world import save_tiny_world

from animegamer_core.game.state import CACHED_TURNS
from animegamer_core.story.player import Player, PlaySettings
from animegamer_core.story.story import Story


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
