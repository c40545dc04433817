"""When the next request may go out: a rate limit for all threads, pauses that a service asks for, growing waits."""

from __future__ import annotations

import random
import threading
import time
from email.utils import parsedate_to_datetime

FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0  # seconds before the second request, and at most


class Pace:
    """Spreads the requests of all threads evenly over the minute. per_minute None: no limit."""

    def __init__(self, per_minute: float | None = None) -> None:
        if per_minute is not None and not 0 < per_minute <= 1e6:
            raise ValueError(f"per_minute is {per_minute}; expected requests a minute, above 0")
        self._interval = 60.0 / per_minute if per_minute else 0.0
        self._next = self._paused_until = 0.0
        self._lock = threading.Lock()

    def pause(self, seconds: float) -> None:
        """Hold back every thread's requests for some seconds from now."""
        with self._lock:
            self._paused_until = max(self._paused_until, time.monotonic() + seconds)

    def wait(self, stop: threading.Event) -> bool:
        """Wait for this thread's turn; False where `stop` was set meanwhile."""
        with self._lock:
            turn = max(time.monotonic(), self._next, self._paused_until)
            self._next = turn + self._interval
        while (seconds := max(turn, self._paused_until) - time.monotonic()) > 0:
            if stop.wait(seconds):
                return False
        return not stop.is_set()


def growing_wait(failures: int, first: float = FIRST_WAIT) -> float:
    """Seconds to wait after the n-th failure in a row: doubling, and by chance up to half shorter, so that threads
    that failed together do not come back together."""
    return min(LONGEST_WAIT, first * 2.0 ** (failures - 1)) * random.uniform(0.5, 1.0)


def asked_wait(headers: dict[str, str]) -> float | None:
    """Seconds that a refusal's headers ask to wait (retry-after-ms, or Retry-After as seconds or a date)."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * scale
        except ValueError:
            continue
        if 0 <= seconds < 1e9:
            return seconds
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time())
    except (ValueError, TypeError):
        return None
