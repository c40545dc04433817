"""The verb `parity`: compare this code with recorded results of the published code.

Each turn is compared given the recorded states of the turns before it. In the rows `chain` and `chain at full width`
the engine reads its own outputs, so rounding adds up: there the tolerance is 5e-05, plus 0.0005 for each earlier turn,
and the row shows the turn that comes closest to it.
"""
# ruff: noqa: T201

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional


@dataclass(frozen=True, kw_only=True)
class Options:
    folder: Positional[Path]
    """Folder of golden fixtures."""
    tokenizer: Path | None = None
    """Folder of the published tokenizer."""


def run(args: Options) -> int:
    """Print the table; 1 if a row is not ok, or if the folder has no part at all."""
    from ..research.parity import parity
    from ..research.parity.rows import table

    rows = parity(args.folder, args.tokenizer)
    print(table(rows))
    return 0 if all(row.ok for row in rows) and any(not row.absent for row in rows) else 1
