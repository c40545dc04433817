"""The task `evaluate ranks`: filled-in sheets turned into scores with intervals."""
# ruff: noqa: T201

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `evaluate ranks`."""
    add = parser.add_argument
    add("study", type=Path, metavar="DIR", help="the --out of `evaluate raters`, with its key")
    add("sheets", nargs="*", type=Path, metavar="CSV", help="sheets that raters filled in or exported")
    add("--folder", type=Path, help="a folder, all of whose *.csv are such sheets")


def run(args: argparse.Namespace) -> int:
    """Read, print and save."""
    from .ranks import markdown, read_ranks, save_ranks
    from .raters import read_key

    study = read_key(args.study)
    paths = list(args.sheets)
    if args.folder is not None:
        if not args.folder.is_dir():
            raise ValueError(f"{args.folder} is no folder; --folder wants one with the raters' CSV files")
        found = sorted(path for path in args.folder.iterdir() if path.suffix.lower() == ".csv")
        paths += [path for path in found if not path.name.startswith(".")]  # macOS leaves notes of its own so
    returned = read_ranks(study, paths)
    paths = save_ranks(args.study, returned)  # first, whoever reads on or not
    print(markdown(returned), *paths, sep="\n")
    return 0
