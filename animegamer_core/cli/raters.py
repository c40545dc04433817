"""The task `evaluate raters`: people rank played benchmarks in one CSV; without runs, their ranks become scores."""
# ruff: noqa: T201

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

GAMES = 9  # games per rater, if the runs have that many


@dataclass(frozen=True, kw_only=True)
class Options:
    out: Path
    """The study's folder: ratings.csv to fill in, the clips, and the key that raters must not see."""
    runs: Positional[tuple[Path, ...]] = ()
    """2 to 4 folders of `evaluate world`, to begin a study with; none: compute the scores of a filled-in one."""
    raters: int = 20
    """Number of raters."""
    games: int | None = None
    """Games per rater, the same for all; unset: 9, or all."""
    seed: int = 0
    """Seed for choosing games and orders."""


def run(args: Options) -> int:
    """Begin a study, or score the filled-in one."""
    from ..research.judging.ratings import KEY, read_study, save_ratings, write_study
    from ..research.judging.runs import open_comparison

    if not args.runs:
        paths = save_ratings(args.out, read_study(args.out))
        print(paths[1].read_text(encoding="utf-8"), *paths, sep="\n")
        return 0
    comparison = open_comparison(args.runs)
    games = min(GAMES, len(comparison.games)) if args.games is None else args.games
    print(f"{write_study(comparison, args.out, args.raters, games, args.seed)}: 1 is the best rank")
    print(f"{args.out / KEY} says which agent is which: keep it from the raters")
    print(f"next, with all lines filled in: evaluate raters --out {args.out}")
    return 0
