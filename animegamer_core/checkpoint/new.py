"""Make a world to train from the free base models, part by part; `initial` has the weights that they lack."""

from __future__ import annotations

from pathlib import Path

from .base import open_base
from .base_folders import LICENCE, BaseFolders
from .build import OnProgress, Plan, check_precision, make_world
from .storage import CheckpointError
from .world import World

SEEDS = range(2**63)


def new_world(
    folders: BaseFolders,
    out: str | Path,
    on_progress: OnProgress | None = None,
    *,
    spec: str | None = None,
    seed: int = 0,
    precision: str = "released",
) -> World:
    """Make the world folder `out` from base models; returns the world, which is not trained yet.

    spec: `release` refuses models of any other sizes; None takes the sizes of the files. seed: of random weights. A
    second run adds parts that were missing and skips parts whose files, seed and checksums are unchanged. precision
    `released` stores float32 in 16 bits, `keep` as it is. CheckpointError names file, content and expectation before
    anything is written; ValueError for a seed below 0, and while another process writes to `out`.
    """
    check_precision(precision)
    if spec not in (None, "release"):
        raise ValueError(f"spec is {spec!r}; choose release, or omit it to use the sizes of the files")
    if seed not in SEEDS:
        raise ValueError(f"seed is {seed}; expected 0 to {SEEDS[-1]}")
    parts = open_base(folders, seed, spec)
    _check_apart(folders, Path(out))
    settings = {
        part: f"seed {seed}: {[(name, made.shape) for name, made in source.computed.items()]}"
        for part, source in parts.sources.items()
        if source.computed
    }
    plan = Plan(parts, LICENCE, {"made_by": "new", "seed": str(seed)}, settings)
    return make_world(plan, Path(out), on_progress, precision)


def _check_apart(folders: BaseFolders, out: Path) -> None:
    """CheckpointError if the world folder would be in a folder of a base model."""
    for folder in folders.all:
        if folder.resolve() in (out.resolve(), *out.resolve().parents):
            raise CheckpointError(
                f"{out} is inside {folder}, which is never changed; choose another folder for the world"
            )
