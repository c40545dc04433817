"""Writes animegamer_core/toybox/games/benchmark.txt: 50 held-out games and the measured motion of their true shots.

    python tests/support/write_benchmark.py OUT.txt

The same bytes wherever drawing and optical flow give the same motion.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from animegamer_core.data.benchmark import BenchmarkGame, BenchmarkTurn, benchmark_text
from animegamer_core.data.motion import motion_value
from animegamer_core.data.workers import parallel_map
from animegamer_core.toybox.drawing.draw import draw_shot
from animegamer_core.toybox.games import BENCHMARK_GAMES, true_game
from animegamer_core.toybox.world import MOTIONS, Scene, adverb, characters, motion_text
from animegamer_core.weights import open_world

REMARKS = (
    "The Toybox benchmark: 50 held-out games of 10 turns.",
    "ML is the measured level of the true shot between the shipped world's edges, MA an adverb of that level.",
)


def benchmark_games(names: tuple[str, ...] = BENCHMARK_GAMES, workers: int | None = None) -> Iterator[BenchmarkGame]:
    """Yield the games; draws and measures every true shot."""
    table = open_world("toybox").motion_table
    scenes = {name: true_game(name).scenes for name in names}
    values = parallel_map(_motion_of, [scene for row in scenes.values() for scene in row], workers)
    for name, row in scenes.items():
        yield BenchmarkGame(name, tuple(_turn(scene, int(table.level(next(values)))) for scene in row))


def _motion_of(scene: Scene) -> float:
    return motion_value(draw_shot(scene))


def _turn(scene: Scene, level: int) -> BenchmarkTurn:
    place, change = f"{scene.time} {scene.place}", MOTIONS[scene.motion].change
    return BenchmarkTurn(characters(scene), motion_text(scene), place, level, adverb(scene, level), change)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(benchmark_text(list(benchmark_games()), REMARKS))
