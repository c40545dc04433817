"""Parity: compares this code with recorded results of the published code, on the path that users' files take."""

from __future__ import annotations

import tempfile
from pathlib import Path

from .rows import Row

__all__ = ["Row", "parity"]


def parity(folder: str | Path, tokenizer: str | Path | None = None) -> list[Row]:
    """One row for each part of a golden folder; a part that the folder lacks has a row without cases.

    The weights are written in the layout of the published files, converted, and loaded as a world. tokenizer: a folder
    with Mistral's tokenizer.model or tokenizer.json; None looks in `tokenizer` next to `folder`. Without a tokenizer,
    the recorded ids of the instructions are used, and the row that compares them is absent. ValueError if a given
    folder does not exist or has no tokenizer.
    """
    from .golden import TOKENIZER_FILES, ParityRun
    from .shots import image_tower_rows, sampler_rows, transformer_rows, vae_rows, whole_rows
    from .turns import engine_rows, wide_rows

    golden = Path(folder)
    if not golden.is_dir():
        raise ValueError(f"{golden}: no such folder; give a folder of golden fixtures")
    found: Path | None = Path(tokenizer) if tokenizer is not None else golden.resolve().parent / "tokenizer"
    if not any((found / name).is_file() for name in TOKENIZER_FILES):
        if tokenizer is not None:
            raise ValueError(f"{found}: no tokenizer; expected {' or '.join(TOKENIZER_FILES)}")
        found = None
    checks = (transformer_rows, sampler_rows, vae_rows, engine_rows, wide_rows, image_tower_rows, whole_rows)
    with tempfile.TemporaryDirectory() as scratch:
        run = ParityRun(golden, Path(scratch), found)
        return [row for check in checks for row in check(run)]
