"""The task `evaluate ranks`: scores with intervals from filled-in rating sheets."""
# ruff: noqa: T201

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional


@dataclass(frozen=True, kw_only=True)
class Options:
    study: Positional[Path]
    """The --out folder of `evaluate raters`, with its key."""
    sheets: Positional[tuple[Path, ...]] = ()
    """Filled-in rating sheets."""
    folder: Path | None = None
    """A folder of such sheets (all *.csv)."""


def run(args: Options) -> int:
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
