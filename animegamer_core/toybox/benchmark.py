"""The Toybox's own benchmark: 50 held-out games that are shipped as text, and their true shots.

`python -m animegamer_core.toybox.benchmark OUT.txt` writes games/benchmark.txt again: the same bytes wherever drawing
and optical flow give the same motion. The seeds are 900000 to 900049 of the split "heldout". The held-out games of a
dataset count from 0, and those of `evaluate toybox` from 1000000, so no model has seen one of these.
"""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..data.benchmark import BenchmarkGame, BenchmarkTurn, benchmark_text
from ..data.motion import motion_value
from ..data.workers import parallel_map
from ..files import make_folder, write_text
from ..weights import open_world
from .command import run_command
from .drawing.draw import draw_shot
from .games import Game, sample_game
from .world import MOTIONS, Scene, adverb, characters, motion_text

BENCHMARK = Path(__file__).with_name("games") / "benchmark.txt"
SPLIT = "heldout"
FIRST, GAMES, TURNS = 900_000, 50, 10
_NAME = re.compile(rf"{SPLIT}-([0-9]{{6}})")
_REMARKS = (
    f"The Toybox benchmark: {GAMES} held-out games of {TURNS} turns, written by animegamer_core.toybox.benchmark.",
    "ML is the measured level of the true shot between the shipped world's edges, MA an adverb of that level.",
)


def true_game(name: str) -> Game | None:
    """The game with its true scenes for a name of the benchmark, such as heldout-900000; None for other names.

    Its TURNS scenes are those of the benchmark's lines. A dataset's held-out games have names with five digits, and are
    not found here: some of them begin with a picture.
    """
    match = _NAME.fullmatch(name)
    seed = int(match[1]) if match else -1
    return sample_game(seed, turns=TURNS, split=SPLIT) if FIRST <= seed < FIRST + GAMES else None


def benchmark_games(count: int = GAMES, workers: int | None = None) -> Iterator[BenchmarkGame]:
    """Yield the first `count` games; draws and measures every true shot. workers: processes, None for one per core."""
    table = open_world("toybox").motion_table
    games = [sample_game(FIRST + number, turns=TURNS, split=SPLIT) for number in range(count)]
    values = parallel_map(_motion_of, [scene for game in games for scene in game.scenes], workers)
    for game in games:
        turns = (_turn(scene, int(table.level(next(values)))) for scene in game.scenes)
        yield BenchmarkGame(f"{SPLIT}-{game.seed}", tuple(turns))


def _motion_of(scene: Scene) -> float:
    return motion_value(draw_shot(scene))


def _turn(scene: Scene, level: int) -> BenchmarkTurn:
    motion = MOTIONS[scene.motion]
    return BenchmarkTurn(
        characters=characters(scene),
        motion=motion_text(scene),
        background=f"{scene.time} {scene.place}",
        level=level,
        adverb=adverb(scene, level),
        change=motion.change,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Write the benchmark's file; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m animegamer_core.toybox.benchmark", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.txt")
    parser.add_argument("--workers", type=int, help="processes that draw (default: one per core)")
    args = parser.parse_args(argv)
    make_folder(args.out.parent)  # fails before minutes of drawing
    games = []
    for game in benchmark_games(workers=args.workers):
        games.append(game)
        if sys.stderr.isatty():
            print(f"{len(games)} of {GAMES}", end="\r" if len(games) < GAMES else "\n", file=sys.stderr, flush=True)
    write_text(args.out, benchmark_text(games, _REMARKS))
    print(args.out)
    return 0


if __name__ == "__main__":
    run_command("benchmark", main)
