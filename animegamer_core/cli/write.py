"""The task `evaluate write`: a language model writes stories for a benchmark."""
# ruff: noqa: T201

from __future__ import annotations

import argparse
from pathlib import Path

from .endpoint_options import Progress, add_endpoint_arguments, endpoint_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `evaluate write`."""
    add = parser.add_argument
    add("--characters", required=True, metavar="NAMES", help="NAME,NAME, or a folder of reference pictures")
    add(
        "--stories",
        type=int,
        default=10,
        help="number of stories; characters take turns as the main one (default %(default)s)",
    )
    add("--panels", type=int, default=10, help="turns per story (default %(default)s)")
    add("--seed", type=int, default=0, help="seed of the places and times where stories start (default %(default)s)")
    add(
        "--out",
        required=True,
        type=Path,
        metavar="FILE",
        help="the benchmark file to write; the same command continues",
    )
    add_endpoint_arguments(parser, max_tokens=2048)


def run(args: argparse.Namespace) -> int:
    """Ask and write; 1 if a story is missing."""
    from ..research.judging.constructor import plan_stories, read_characters, write_stories

    plans = plan_stories(read_characters(args.characters), args.stories, args.panels, args.seed)
    model, terms = endpoint_of(args)
    written = write_stories(args.out, plans, model, terms, Progress("stories"))
    print(written.answers.text)
    for name, aside in written.answers.set_aside.items():
        print(f"set aside: {name}: {aside.reason}")
    if written.games:
        print(f"{len(written.games)} of {len(plans)} stories in {written.path}")
        print(f"next: evaluate world --games {written.path}")
    return int(not written.answers.whole)
