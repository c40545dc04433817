"""Work in several processes: cutting, drawing, measuring. Imports no torch, so that a process starts quickly."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

CHUNK = 4  # items that a process takes at a time


def worker_count(workers: int | None) -> int:
    """The number of processes, one per core for None; ValueError for a number below 1."""
    if workers is not None and workers < 1:
        raise ValueError(f"workers is {workers}; expected 1 or more, or omit it for one per core")
    return workers or os.cpu_count() or 1


def parallel_map(
    work: Callable[[Any], Any],
    items: Sequence[Any],
    workers: int | None = None,
    *,
    chunk: int = CHUNK,
    ordered: bool = True,
) -> Iterator[Any]:
    """work(item) for each item, in several processes if there are enough items; workers None: one per core.

    chunk: items that a process takes at a time. ordered: in the order of the items, else as they are done.
    ValueError: processes that cannot start, as those of a program on standard input, or were killed; workers below 1.
    """
    workers = min(worker_count(workers), -(-len(items) // chunk))
    if workers <= 1:
        yield from map(work, items)
        return
    before = set(multiprocessing.active_children())
    # spawn, not fork: OpenCV's and CUDA's threads do not survive a fork
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _init_worker)
    try:
        starts = range(0, len(items), chunk)
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # processes inherit that; Ctrl-C is for this one alone
        try:
            parts = deque(pool.submit(_map_all, work, items[start : start + chunk]) for start in starts)
        finally:
            signal.signal(signal.SIGINT, interrupt)
        # one after the other is let go, since results may be large
        for part in (parts.popleft() for _ in starts) if ordered else as_completed(parts):
            yield from part.result()
    except BrokenProcessPool as error:
        raise ValueError(
            "a worker process was killed, perhaps because memory ran out, or could not start, as from a script on "
            "standard input; run again with fewer workers, or 1"
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()  # after an interrupt, a process may still read a film for minutes


def _map_all(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    return [work(item) for item in items]


def _init_worker() -> None:
    """Keep OpenCV from starting threads in every process; on Windows, Ctrl-C is not inherited as ignored."""
    import cv2

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cv2.setNumThreads(1)
