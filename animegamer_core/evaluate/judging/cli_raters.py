"""The task `evaluate raters`: blinded pages and sheets for people to rank played benchmarks."""
# ruff: noqa: T201

from __future__ import annotations

import argparse
from pathlib import Path

from .endpoint_options import Progress

GAMES = 9  # that each rater ranks, where the runs have so many


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `evaluate raters`."""
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUN", help="2 to 4 folders that `evaluate world` wrote, one an agent")
    add("--raters", type=int, default=20, help="how many people rank (default %(default)s)")
    add("--games", type=int, help=f"how many games each of them ranks, the same for all (default {GAMES}, or all)")
    add("--seed", type=int, default=0, help="chooses games and orders (default %(default)s)")
    add(
        "--out", required=True, type=Path, metavar="DIR", help="for the raters' folders, and the key that is not theirs"
    )


def run(args: argparse.Namespace) -> int:
    """Write the study."""
    from .raters import KEY, plan_study, write_study
    from .runs import open_contest

    contest = open_contest(args.runs)
    games = min(GAMES, len(contest.games)) if args.games is None else args.games
    study = plan_study(contest, args.raters, games, args.seed)
    pages = write_study(study, contest, args.out, Progress("raters"))
    print(f"{study.name}: {len(pages)} folders for raters in {args.out}, each to be given away by itself")
    print(f"{args.out / KEY} says who is who: keep it from the raters")
    print(f"next, with the sheets that come back: evaluate ranks {args.out} --folder SHEETS")
    return 0
