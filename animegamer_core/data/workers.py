"""Work spread over processes: cutting, drawing, measuring. Imports no torch, so that a process starts quickly."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

CHUNK = 4  # clips that a process takes at a time
LOOKED_AFTER = 2.0  # seconds between looks whether all processes live


def count_of(workers: int | None) -> int:
    """How many processes are meant, None for one a core; ValueError for a number below 1."""
    if workers is not None and workers < 1:
        raise ValueError(f"workers is {workers}; expected 1 or more, or leave it out for one a core")
    return workers or os.cpu_count() or 1


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
    ValueError where processes could not start, since the program came from standard input, or where one was killed;
    also for a number of workers below 1.
    """
    workers = min(count_of(workers), -(-len(items) // chunk))
    if workers <= 1:
        yield from map(work, items)
        return
    if not _can_be_imported():
        raise ValueError("worker processes cannot start from a script on standard input; save it as a file, or use 1")
    # Processes are started afresh: OpenCV's and CUDA's threads do not survive a fork.
    before = set(multiprocessing.active_children())
    with _uninterrupted():
        pool = multiprocessing.get_context("spawn").Pool(workers, _begin)
    processes = [process for process in multiprocessing.active_children() if process not in before]
    with pool:
        parts = [items[start : start + chunk] for start in range(0, len(items), chunk)]
        for results in _results((pool.imap if ordered else pool.imap_unordered)(_Several(work), parts), processes):
            yield from results


@dataclass(frozen=True)
class _Several:
    """Work on a few items at a time."""

    work: Callable[[Any], Any]

    def __call__(self, items: Sequence[Any]) -> list[Any]:
        return [self.work(item) for item in items]


def _results(results: Any, processes: Sequence[Any]) -> Iterator[Any]:
    """The results as they come. A pool would wait for ever for those of a process that was killed: ValueError."""
    while True:
        try:
            yield results.next(timeout=LOOKED_AFTER)
        except StopIteration:
            return
        except multiprocessing.TimeoutError as error:
            if not all(process.is_alive() for process in processes):
                raise ValueError(
                    "a worker process was killed, perhaps for want of memory; go on with fewer workers"
                ) from error


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back for a moment; the processes that start in it never hear of one, however early it comes."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
