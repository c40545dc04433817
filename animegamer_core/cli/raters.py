"""The task `evaluate raters`: blinded pages and rating sheets for people to rank played benchmarks."""
# ruff: noqa: T201

from __future__ import annotations

import argparse
from pathlib import Path

from .endpoint_options import Progress

GAMES = 9  # games per rater, if the runs have that many


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `evaluate raters`."""
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUN", help="2 to 4 folders of `evaluate world`, one for each agent")
    add("--raters", type=int, default=20, help="number of raters (default %(default)s)")
    add("--games", type=int, help=f"games per rater, the same for all (default {GAMES}, or all)")
    add("--seed", type=int, default=0, help="seed for choosing games and orders (default %(default)s)")
    add(
        "--out",
        required=True,
        type=Path,
        metavar="DIR",
        help="folder for the raters' folders and the key that raters must not see",
    )


def run(args: argparse.Namespace) -> int:
    """Write the study."""
    from ..research.judging.raters import KEY, plan_study, write_study
    from ..research.judging.runs import open_comparison

    comparison = open_comparison(args.runs)
    games = min(GAMES, len(comparison.games)) if args.games is None else args.games
    study = plan_study(comparison, args.raters, games, args.seed)
    pages = write_study(study, comparison, args.out, Progress("raters"))
    print(f"{study.name}: {len(pages)} folders for raters in {args.out}; give each rater one")
    print(f"{args.out / KEY} says which agent is which: keep it from the raters")
    print(f"next, with the returned sheets: evaluate ranks {args.out} --folder SHEETS")
    return 0
