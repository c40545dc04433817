"""The task `dataset example`: a real film is downloaded, and becomes a dataset with its captions and characters."""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .options import confirmed


def add_example_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `dataset example`."""
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder for the film and its dataset")
    parser.add_argument("--spec", default="toybox", help="the spec that sets the clips' size (default %(default)s)")
    parser.add_argument("--workers", type=int, metavar="N", help="processes that read the film (default: one per core)")
    parser.add_argument("--held-out", type=float, metavar="SHARE", help="fraction of the games to hold out")
    parser.add_argument("--yes", action="store_true", help="do not ask before the download")


def prepare_example(args: argparse.Namespace) -> list[str] | None:
    """Get the film with its captions and reference pictures; the arguments of `dataset build`, None after a no.

    ExampleError: the film cannot be downloaded.
    """
    from ..data.examples.example_film import BIG_BUCK_BUNNY, CHARACTERS, describe, get_film, has_film, plan_text

    example = BIG_BUCK_BUNNY
    if not has_film(example, args.out):
        print(plan_text(example, args.out), end="")
        if not args.yes and not confirmed("Get it, under these licences?"):
            print("Nothing was downloaded.")
            return None
        sys.stdout.flush()  # before pip writes
    film = get_film(example, args.out)
    describe(example, args.out)
    print(f"{film}: {example.title}, {example.licence}")
    given = {"--workers": args.workers, "--held-out": args.held_out}
    options = [text for name, value in given.items() if value is not None for text in (name, str(value))]
    placed = ["--out", str(args.out / "dataset"), "--spec", args.spec, "--characters", str(args.out / CHARACTERS)]
    return ["build", str(film), *placed, "--captioner", "script", *options]
