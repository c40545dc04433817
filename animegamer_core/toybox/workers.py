"""Work spread over processes: drawing and measuring clips. Imports no torch, so that a process starts quickly."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

CHUNK = 4  # clips that a process takes at a time


def spread(work: Callable[[Any], Any], items: Sequence[Any], workers: int | None = None) -> Iterator[Any]:
    """work(item) for each item, in order, in several processes where that is worth starting them; None: one a core."""
    workers = min(workers or os.cpu_count() or 1, -(-len(items) // CHUNK))
    if workers <= 1:
        yield from map(work, items)
        return
    # Processes are started afresh: OpenCV's and CUDA's threads do not survive a fork.
    with multiprocessing.get_context("spawn").Pool(workers, _one_thread) as pool:
        yield from pool.imap(work, items, CHUNK)


def _one_thread() -> None:
    """Keep OpenCV from starting threads of its own in every process."""
    import cv2

    cv2.setNumThreads(1)
