"""Limits on what a server sends. HTTP libraries limit single reads: a byte a minute keeps them waiting for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError  # Python's own from 3.11 on
from typing import TypeVar

Value = TypeVar("Value")
PLAIN = {"Accept-Encoding": "identity"}  # nothing that unpacks to more than was sent


def within(seconds: float, work: Callable[[], Value]) -> Value:
    """The result of `work`; TimeoutError if it takes longer.

    For waiting on a status line and headers, whose size the HTTP libraries limit. A late `work` ends in its own thread,
    and its result, if it can be closed, is closed.
    """
    done: Future[Value] = Future()

    def run() -> None:
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001  carried to the caller, whatever it is
            done.set_exception(error)
        else:
            done.set_result(value)

    threading.Thread(target=run, daemon=True).start()
    try:
        return done.result(timeout=seconds)
    except LateError as error:
        if done.done():  # raised by `work` itself
            raise
        done.add_done_callback(_close)
        raise TimeoutError(f"no answer in {seconds:g} s") from error


def _close(late: Future[object]) -> None:
    close = None if late.exception() else getattr(late.result(), "close", None)
    if close is not None:
        close()


def limited(chunks: Iterable[bytes], largest: int, seconds: float, each: int | None = None) -> Iterator[bytes]:
    """The chunks of a body up to `largest` bytes, the last one cut there.

    TimeoutError if it does not end within `seconds`, or, where `each` is given, if fewer than `each` bytes come in so
    many seconds.
    """
    deadline, total, counted = time.monotonic() + seconds, 0, 0
    for chunk in chunks:
        now = time.monotonic()
        if now > deadline:
            raise TimeoutError(f"{total - counted} bytes came in {seconds:g} s")
        if total < largest:
            yield chunk[: largest - total]
        total += len(chunk)
        if total > largest:  # an answer that ends at its limit is read to its end, so that its connection serves again
            return
        if each is not None and total - counted >= each:
            deadline, counted = now + seconds, total
