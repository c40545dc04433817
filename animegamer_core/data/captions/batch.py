"""Many questions to one model: several at a time, until all are asked or the model is unavailable; and what they cost.

Captions (`run`) and the judge (`research.judging.asking`) both ask this way.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ...endpoint import CaptionerError, CaptionerUnavailable, ClipUnreadable, Reply
from .replies import ReplyError

T = TypeVar("T")
GIVE_UP = 8  # jobs in a row without an answer: the service is unavailable

Job = Callable[[threading.Event], T]  # given an event that tells it to stop
OnProgress = Callable[[int, int], None]  # (jobs done, jobs in all)


@dataclass
class BatchResult(Generic[T]):
    """What came of the jobs, by name.

    values: results. invalid: the errors of jobs whose replies stayed invalid. failures: why others got no answer.
    stopped: why the batch ended early, None if it did not.
    """

    values: dict[str, T] = field(default_factory=dict)
    invalid: dict[str, ReplyError] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    stopped: str | None = None


def run_batch(
    jobs: Mapping[str, Job[T]], what: str, at_once: int, on_progress: OnProgress | None = None
) -> BatchResult[T]:
    """Run the jobs in threads, `at_once` of them at a time; what: the word for them in messages, such as `clips`.

    An interrupt, and any error of on_progress, first lets the requests under way finish.
    """
    result: BatchResult[T] = BatchResult()
    stop = threading.Event()
    unanswered = 0  # in a row
    with ThreadPoolExecutor(at_once) as pool:
        try:
            for done, (name, future) in enumerate(_completed(pool, jobs, at_once, stop), start=1):
                try:
                    result.values[name] = future.result()
                    unanswered = 0
                except ReplyError as error:
                    result.invalid[name] = error
                    unanswered = 0
                except CaptionerError as error:
                    if not stop.is_set():  # else it only says that the batch was stopped
                        result.failures[name] = str(error)
                        unanswered += not isinstance(error, ClipUnreadable)
                        if isinstance(error, CaptionerUnavailable):
                            result.stopped = str(error)
                        elif unanswered >= GIVE_UP:
                            result.stopped = f"no answer about {GIVE_UP} {what} in a row; the last: {error}"
                        if result.stopped:
                            stop.set()
                if on_progress is not None:
                    on_progress(done, len(jobs))
        finally:
            stop.set()  # on an error, jobs that wait give up; leaving the pool waits for the others
    return result


def _completed(
    pool: ThreadPoolExecutor, jobs: Mapping[str, Job[T]], at_once: int, stop: threading.Event
) -> Iterator[tuple[str, Future[T]]]:
    """(name, future) of each job as it completes; after a stop no more are started."""
    waiting = iter(jobs.items())
    running: dict[Future[T], str] = {}
    while True:
        while not stop.is_set() and len(running) < 2 * at_once and (job := next(waiting, None)):
            running[pool.submit(job[1], stop)] = job[0]
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            yield running.pop(future), future


@dataclass(frozen=True)
class Prices:
    """Prices of a million tokens, in any currency; None if unknown. ValueError for one without the other."""

    tokens_in: float | None = None
    tokens_out: float | None = None

    def __post_init__(self) -> None:
        if (self.tokens_in is None) != (self.tokens_out is None):
            raise ValueError("only one price is given; give both price_in and price_out, per million tokens")


@dataclass(frozen=True)
class Spent:
    """What a run's replies cost. requests: replies, valid or not; uncounted: those whose tokens the service did not
    report. cost: None if prices are unknown.
    """

    requests: int = 0
    uncounted: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float | None = None

    @classmethod
    def of(cls, replies: Sequence[Reply], prices: Prices) -> Spent:
        """Count the replies."""
        tokens_in = sum(reply.tokens_in or 0 for reply in replies)
        tokens_out = sum(reply.tokens_out or 0 for reply in replies)
        uncounted = sum(None in (reply.tokens_in, reply.tokens_out) for reply in replies)
        cost = None
        if prices.tokens_in is not None and prices.tokens_out is not None:
            cost = (tokens_in * prices.tokens_in + tokens_out * prices.tokens_out) / 1e6
        return cls(len(replies), uncounted, tokens_in, tokens_out, cost)

    @property
    def lines(self) -> list[str]:
        """The same for people; none if nothing was asked."""
        uncounted = f" (not counted by the service: {self.uncounted} replies)" if self.uncounted else ""
        cost = "" if self.cost is None else f", cost {self.cost:.4f}"
        replies = f"requests: {self.requests}, tokens {self.tokens_in} in and {self.tokens_out} out{uncounted}{cost}"
        return [replies] if self.requests else []


def failure_lines(failures: Mapping[str, str], what: str) -> list[str]:
    """The most common reasons why jobs got no answer, a line each."""
    return [f"no answer about {count} {what}: {reason}" for reason, count in Counter(failures.values()).most_common(5)]
