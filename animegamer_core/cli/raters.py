"""The task `evaluate raters`: blinded pages and rating sheets for people to rank played benchmarks."""
# ruff: noqa: T201

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from .endpoint_options import Progress

GAMES = 9  # games per rater, if the runs have that many


@dataclass(frozen=True, kw_only=True)
class Options:
    runs: Positional[tuple[Path, ...]]
    """2 to 4 folders of `evaluate world`, one for each agent."""
    out: Path
    """Folder for the raters' folders and the key that raters must not see."""
    raters: int = 20
    """Number of raters."""
    games: int | None = None
    """Games per rater, the same for all; unset: 9, or all."""
    seed: int = 0
    """Seed for choosing games and orders."""


def run(args: Options) -> int:
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
