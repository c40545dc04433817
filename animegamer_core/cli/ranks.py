"""The task `evaluate ranks`: scores with intervals from filled-in rating sheets."""
# ruff: noqa: T201

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `evaluate ranks`."""
    add = parser.add_argument
    add("study", type=Path, metavar="DIR", help="the --out folder of `evaluate raters`, with its key")
    add("sheets", nargs="*", type=Path, metavar="CSV", help="filled-in rating sheets")
    add("--folder", type=Path, help="a folder of such sheets (all *.csv)")


def run(args: argparse.Namespace) -> int:
    """Read, print and save."""
    from ..research.judging.ranks import markdown, read_ranks, save_ranks
    from ..research.judging.raters import read_key

    study = read_key(args.study)
    paths = list(args.sheets)
    if args.folder is not None:
        if not args.folder.is_dir():
            raise ValueError(f"{args.folder} is not a folder; give --folder the folder of the raters' CSV files")
        found = sorted(path for path in args.folder.iterdir() if path.suffix.lower() == ".csv")
        paths += [path for path in found if not path.name.startswith(".")]  # macOS leaves hidden files of its own
    returned = read_ranks(study, paths)
    paths = save_ranks(args.study, returned)  # before printing, which a broken pipe may end
    print(markdown(returned), *paths, sep="\n")
    return 0
