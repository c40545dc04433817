"""The verb `parity`: compare this code with recorded results of the published code."""
# ruff: noqa: T201

from __future__ import annotations

import argparse
from pathlib import Path

CHAINS = (
    "Each turn is compared given the recorded states of the turns before it. In the rows `chain` and `chain at full "
    "width` the engine reads its own outputs, so rounding adds up: there the tolerance is 5e-05, plus 0.0005 for each "
    "earlier turn, and the row shows the turn that comes closest to it."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `parity`."""
    parser.epilog = CHAINS
    parser.add_argument("folder", metavar="DIR", type=Path, help="folder of golden fixtures")
    parser.add_argument("--tokenizer", metavar="DIR", type=Path, help="folder of the published tokenizer")


def run(args: argparse.Namespace) -> int:
    """Print the table; 1 if a row is not ok, or if the folder has no part at all."""
    from ..research.parity import parity
    from ..research.parity.rows import table

    rows = parity(args.folder, args.tokenizer)
    print(table(rows))
    return 0 if all(row.ok for row in rows) and any(not row.absent for row in rows) else 1
