"""A round of asking: many jobs for one model, several at a time, until all are tried or nothing can be asked."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from .questions import CaptionerAway, CaptionerError, ClipUnreadable, Reply
from .replies import ReplyError

J = TypeVar("J")
T = TypeVar("T")
GIVE_UP = 8  # jobs in a row that could not be asked: the service is away

OnProgress = Callable[[int, int], None]  # (jobs done, jobs in all)


class Round(Generic[J, T]):
    """What comes of jobs, by name. what: the word for them in messages, such as `clips`.

    values: of those that ended well. invalid: the error of those whose replies stayed invalid. failures: why others
    could not be asked. stopped: why no more were begun, None unless the service was away. stop: is set when the round
    is over, or to end it early; a job that waits should look at it.
    """

    def __init__(self, what: str, name: Callable[[J], str], ask: Callable[[J], T]) -> None:
        self.what, self.name, self.ask = what, name, ask
        self.stop = threading.Event()
        self.values: dict[str, T] = {}
        self.invalid: dict[str, ReplyError] = {}
        self.failures: dict[str, str] = {}
        self.stopped: str | None = None
        self._in_a_row = 0

    def work(self, jobs: Sequence[J], at_once: int, on_progress: OnProgress | None = None) -> None:
        """Do the jobs; what on_progress raises, and an interrupt, first lets those under way end."""
        with ThreadPoolExecutor(at_once) as pool:
            try:
                for done, (job, future) in enumerate(self._futures(pool, jobs, at_once), start=1):
                    self._take(self.name(job), future)
                    if on_progress is not None:
                        on_progress(done, len(jobs))
            finally:
                self.stop.set()  # where the block is left early, what waits is given up and what is asked is awaited

    def _futures(self, pool: ThreadPoolExecutor, jobs: Sequence[J], at_once: int) -> Iterator[tuple[J, Future[T]]]:
        """The jobs' futures as they end; no more are begun once the round has stopped."""
        rest = iter(jobs)
        under_way: dict[Future[T], J] = {}
        while True:
            while not self.stop.is_set() and len(under_way) < 2 * at_once and (job := next(rest, None)):
                under_way[pool.submit(self.ask, job)] = job
            if not under_way:
                return
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                yield under_way.pop(future), future

    def _take(self, name: str, future: Future[T]) -> None:
        """Keep what came of a job; stops the round where the service is away."""
        try:
            self.values[name] = future.result()
        except ReplyError as error:
            self.invalid[name] = error
        except CaptionerError as error:
            self._fail(name, error)
            return
        self._in_a_row = 0

    def _fail(self, name: str, error: CaptionerError) -> None:
        if self.stop.is_set():  # another job stopped the round and told why
            return
        self.failures[name] = str(error)
        self._in_a_row += not isinstance(error, ClipUnreadable)
        if isinstance(error, CaptionerAway):
            self.stopped = str(error)
        elif self._in_a_row >= GIVE_UP:
            self.stopped = f"{GIVE_UP} {self.what} in a row could not be asked about; the last: {error}"
        if self.stopped:
            self.stop.set()


@dataclass(frozen=True)
class Prices:
    """Of a million tokens, in any currency; None where nothing is to be paid or known. ValueError for one alone."""

    tokens_in: float | None = None
    tokens_out: float | None = None

    def __post_init__(self) -> None:
        if (self.tokens_in is None) != (self.tokens_out is None):
            raise ValueError("one price without the other; give both price_in and price_out, of a million tokens")


@dataclass(frozen=True)
class Spent:
    """What a run's replies took. requests: replies that it was given, valid or not; uncounted: those whose tokens the
    service did not tell. cost: None where no prices are known. trouble: failed requests by kind.
    """

    requests: int = 0
    uncounted: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float | None = None
    trouble: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, replies: Sequence[Reply], prices: Prices, trouble: Mapping[str, int]) -> Spent:
        """Count the replies, with trouble as it is."""
        tokens_in = sum(reply.tokens_in or 0 for reply in replies)
        tokens_out = sum(reply.tokens_out or 0 for reply in replies)
        uncounted = sum(None in (reply.tokens_in, reply.tokens_out) for reply in replies)
        return cls(len(replies), uncounted, tokens_in, tokens_out, _cost(prices, tokens_in, tokens_out), dict(trouble))

    @property
    def lines(self) -> list[str]:
        """The same for people."""
        counted = f" (not counted by the service: {self.uncounted} replies)" if self.uncounted else ""
        cost = "" if self.cost is None else f", cost {self.cost:.4f}"
        return [
            f"requests: {self.requests}, tokens {self.tokens_in} in and {self.tokens_out} out{counted}{cost}",
            *(f"failed requests: {count} x {kind}" for kind, count in sorted(self.trouble.items())),
        ]


def reasons(failures: Mapping[str, str], what: str) -> list[str]:
    """The commonest reasons why jobs could not be asked, a line each."""
    told = Counter(failures.values()).most_common(5)
    return [f"could not be asked about, {count} {what}: {reason}" for reason, count in told]


def _cost(prices: Prices, tokens_in: int, tokens_out: int) -> float | None:
    if prices.tokens_in is None or prices.tokens_out is None:
        return None
    return (tokens_in * prices.tokens_in + tokens_out * prices.tokens_out) / 1e6
