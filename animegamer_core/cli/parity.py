"""The verb `parity`: compare this code with recorded results of the published code."""
# ruff: noqa: T201

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional


@dataclass(frozen=True, kw_only=True)
class Options:
    folder: Positional[Path]
    """Folder of golden fixtures."""


def run(args: Options) -> int:
    """Print the table; 1 if a row is not ok, or if the folder has no part at all."""
    from ..research.parity import parity

    rows, absent = parity(args.folder)
    print(f"{'part':<24}{'cases':>6}{'difference':>12}{'tolerance':>11}")
    for part, cases, difference, tolerance in rows:
        ok = "ok" if difference <= tolerance else "NOT OK"
        print(f"{part:<24}{cases:>6}{difference:>12.3g}{tolerance:>11g}  {ok}")
    if absent:
        print(f"absent: {', '.join(absent)}")
    return 0 if rows and all(difference <= tolerance for _, _, difference, tolerance in rows) else 1
