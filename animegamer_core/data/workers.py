"""Work in several processes: cutting, drawing, measuring. Imports no torch, so that a process starts quickly."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

CHUNK = 4  # items that a process takes at a time
POLL_SECONDS = 1.0  # between checks whether all processes live


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
    ValueError: a program on standard input, whose processes cannot start; a process that was killed; workers below 1.
    """
    workers = min(worker_count(workers), -(-len(items) // chunk))
    if workers <= 1:
        yield from map(work, items)
        return
    main = sys.modules["__main__"]  # new processes import it, and would fail again and again if they cannot
    path = getattr(main, "__file__", None)
    if path is not None and getattr(main, "__spec__", None) is None and not os.path.isfile(path):
        raise ValueError("worker processes cannot start from a script on standard input; save it as a file, or use 1")
    before = set(multiprocessing.active_children())
    with _sigint_blocked():
        # spawn, not fork: OpenCV's and CUDA's threads do not survive a fork
        pool = multiprocessing.get_context("spawn").Pool(workers, _init_worker)
    processes = [process for process in multiprocessing.active_children() if process not in before]
    with pool:
        parts = [items[start : start + chunk] for start in range(0, len(items), chunk)]
        results = (pool.imap if ordered else pool.imap_unordered)(partial(_map_all, work), parts)
        while True:
            try:
                part = results.next(timeout=POLL_SECONDS)
            except StopIteration:
                return
            except multiprocessing.TimeoutError as error:  # the pool would wait for a killed process for ever
                if not all(process.is_alive() for process in processes):
                    raise ValueError(
                        "a worker process was killed, perhaps because memory ran out; run again with fewer workers"
                    ) from error
            else:
                yield from part


def _map_all(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    return [work(item) for item in items]


@contextlib.contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Block Ctrl-C while processes start; they inherit the block, so only the main program handles it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _init_worker() -> None:
    """Keep OpenCV from starting threads in every process, and leave Ctrl-C to the main program."""
    import cv2

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cv2.setNumThreads(1)
