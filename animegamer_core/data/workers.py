"""Work spread over processes: cutting, drawing, measuring. Imports no torch, so that a process starts quickly."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

CHUNK = 4  # clips that a process takes at a time


def spread(
    work: Callable[[Any], Any],
    items: Sequence[Any],
    workers: int | None = None,
    *,
    chunk: int = CHUNK,
    ordered: bool = True,
) -> Iterator[Any]:
    """work(item) for each item, in several processes where that is worth starting them; workers None: one a core.

    chunk: items that a process takes at a time. ordered: results come in the order of the items, else as they are done.
    ValueError where processes could not start, since the program came from standard input.
    """
    workers = min(workers or os.cpu_count() or 1, -(-len(items) // chunk))
    if workers <= 1:
        yield from map(work, items)
        return
    if not _can_be_imported():
        raise ValueError("worker processes cannot start from a script on standard input; save it as a file, or use 1")
    # Processes are started afresh: OpenCV's and CUDA's threads do not survive a fork.
    with multiprocessing.get_context("spawn").Pool(workers, _begin) as pool:
        yield from (pool.imap if ordered else pool.imap_unordered)(work, items, chunk)


def _can_be_imported() -> bool:
    """Whether new processes, which begin by importing the main module, can find its file; else they die for ever."""
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    return path is None or getattr(main, "__spec__", None) is not None or os.path.isfile(path)


def _begin() -> None:
    """Keep OpenCV from starting threads of its own in every process, and leave Ctrl-C to the program that waits."""
    import cv2

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cv2.setNumThreads(1)
