"""Measures how well the clips' motion values rank with how much an eye saw move in a real film.

    python tests/measure/real_film.py films/bunny

Not collected by pytest. The folder is that of `example_film.py`.
"""

# ruff: noqa: T201

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import msgspec  # noqa: E402

from animegamer_core.data.dataset import DatasetFolder  # noqa: E402
from animegamer_core.data.records import ClipRecord  # noqa: E402
from animegamer_core.evaluate.estimates import rank_correlation  # noqa: E402
from animegamer_core.json_files import read_rows  # noqa: E402

MOVEMENT = Path(__file__).parent / "big_buck_bunny" / "big_buck_bunny.movement.jsonl"


class Piece(msgspec.Struct):
    """How much moves from start to end, 1 to 5, by eye."""

    start: float
    end: float
    movement: int


def main() -> None:
    """Print the rank correlation over all clips, and over those that lie in one piece but for a tenth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FILMS", help="the folder of example_film.py")
    turns = DatasetFolder.open(parser.parse_args().folder / "dataset").turns
    pieces = [row.value for row in read_rows(MOVEMENT, Piece)]
    found = [(turn.motion_value, *seen(turn, pieces)) for turn in turns]
    for name, least in (("all clips", 0.5), ("clips within one piece", 0.9)):
        chosen = [(value, movement) for value, movement, covered in found if covered >= least]
        correlation = rank_correlation(*zip(*chosen, strict=True))
        print(f"{name}: {len(chosen)}, rank correlation of motion with an eye {correlation:.3f}", flush=True)


def seen(turn: ClipRecord, pieces: Sequence[Piece]) -> tuple[float, float]:
    """(movement by eye, the mean of the pieces that a clip lies in; the greatest part that one piece covers)."""
    covered = [max(0.0, min(turn.end, piece.end) - max(turn.start, piece.start)) for piece in pieces]
    total = sum(covered)
    if not total:
        return 0.0, 0.0
    mean = sum(seconds * piece.movement for seconds, piece in zip(covered, pieces, strict=True)) / total
    return mean, max(covered) / (turn.end - turn.start)


if __name__ == "__main__":
    main()
