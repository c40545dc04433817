"""Convert published files into a world folder, tensor by tensor."""

from __future__ import annotations

from pathlib import Path

from .build import OnProgress, Plan, check_precision, make_world
from .downloads import LICENCE, find_downloads
from .parts import PARTS, PLAY_PARTS
from .published import open_published
from .storage import CheckpointError
from .world import MANIFEST, World, open_world


def convert(
    src: str | Path,
    out: str | Path,
    on_progress: OnProgress | None = None,
    *,
    name: str | None = None,
    precision: str = "released",
    parts: tuple[str, ...] = PLAY_PARTS,
) -> World:
    """Convert the published files below `src` into the world folder `out`; returns the world.

    The parts in `parts` must be there; others are converted where present. Everything is checked against the sizes
    that the files state before anything is written. A second run skips parts whose sources and checksums are
    unchanged. Host memory holds one shard (1 GiB) besides the mapped files. precision `released` stores float32 in
    the 16-bit type that the published scripts compute in, `keep` as it is. Raises CheckpointError, which names file,
    key and expectation, and ValueError while another process writes to `out`.
    """
    check_precision(precision)
    known = open_world(out).spec if (Path(out) / MANIFEST).is_file() else None
    published = open_published(find_downloads(Path(src), name), known)
    absent = [part for part in parts if part not in published.sources]
    if absent:
        raise CheckpointError(f"{src}: no files for the {absent[0]}; expected {PARTS[absent[0]].source}")
    plan = Plan(published, LICENCE, {"made_by": "convert"}, {})
    return make_world(plan, Path(out), on_progress, precision)
