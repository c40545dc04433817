"""`parity DIR`: this code against recorded results of the published code, through the path that users' files take."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from .rows import Row, table

CHAINS = (
    "Every turn is compared from the recorded states of the turns before it. In the rows `chain` and `chain at full "
    "width` it reads the engine's own outputs, so rounding adds up: there a turn may differ by 5e-05, and by 0.0005 "
    "more for each turn before it; such a row shows the turn that comes nearest to its tolerance."
)

__all__ = ["Row", "add_arguments", "parity", "run"]


def parity(folder: str | Path, tokenizer: str | Path | None = None) -> list[Row]:
    """One row for each part of a golden folder; a part that the folder lacks has a row with no cases.

    The weights are written out as the published files, converted, and loaded as a world. tokenizer: a folder with
    Mistral's tokenizer.model or tokenizer.json; None looks in `tokenizer` beside `folder`. Without one the recorded ids
    of the instructions are used, and the row that compares them is absent.
    """
    from .golden import Bench
    from .shots import image_tower_rows, sampler_rows, transformer_rows, vae_rows, whole_rows
    from .turns import engine_rows, wide_rows

    golden = Path(folder)
    if not golden.is_dir():
        raise ValueError(f"{golden}: no such folder; expected one of golden fixtures")
    checks = (transformer_rows, sampler_rows, vae_rows, engine_rows, wide_rows, image_tower_rows, whole_rows)
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(golden, Path(scratch), _find_tokenizer(golden, tokenizer))
        return [found for check in checks for found in check(bench)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `python -m animegamer_core parity`."""
    parser.epilog = CHAINS
    parser.add_argument("folder", metavar="DIR", type=Path, help="folder of golden fixtures")
    parser.add_argument("--tokenizer", metavar="DIR", type=Path, help="folder of the published tokenizer")


def run(args: argparse.Namespace) -> int:
    """Print the table; 1 if a row is not ok, or if the folder holds no part at all."""
    rows = parity(args.folder, args.tokenizer)
    sys.stdout.write(table(rows) + "\n")
    return 0 if all(row.ok for row in rows) and any(not row.absent for row in rows) else 1


def _find_tokenizer(golden: Path, given: str | Path | None) -> Path | None:
    from .golden import TOKENIZER_FILES

    folder = Path(given) if given is not None else golden.resolve().parent / "tokenizer"
    if any((folder / name).is_file() for name in TOKENIZER_FILES):
        return folder
    if given is not None:
        raise ValueError(f"{folder}: no tokenizer; expected {' or '.join(TOKENIZER_FILES)}")
    return None
