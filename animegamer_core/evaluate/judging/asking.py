"""Many questions to one model: several at a time, each with a few tries, resumable at every reply, with their cost."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...data.captions.answers import AnswerLog, answer_key
from ...data.captions.prompts import again_prompt
from ...data.captions.questions import Cancelled, CaptionerAway, CaptionerError, Question, Reply, VisionModel
from ...data.captions.replies import ReplyError

if TYPE_CHECKING:
    from PIL import Image

T = TypeVar("T")
FORM = 1  # of the questions; a new one makes kept replies unread
GIVE_UP = 8  # questions in a row that were not answered: the service is away
LONGEST_KEPT = 20_000  # characters of a kept reply; a longer one is invalid anyway
SHOWN_REPLY = 2000  # characters of a reply that a list of what was set aside shows
_FENCE = re.compile(r"```\w*\s*\n(.*?)\n\s*```", re.DOTALL)

OnProgress = Callable[[int, int], None]  # (questions done, questions in all)


@dataclass(frozen=True)
class Task(Generic[T]):
    """One question. depends: what the reply depends on beside prompt and model. pictures: made when it is asked.

    parse: reads a reply, ReplyError where it is not in the asked form. about: for people who read the kept replies.
    """

    name: str
    prompt: str
    parse: Callable[[str], T]
    pictures: Callable[[], tuple[Image.Image, ...]] = tuple
    depends: tuple[Any, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Terms:
    """How questions are put. tries: replies to one before it is set aside. at_once: questions under way.

    price_in, price_out: of a million tokens, in any currency; None where nothing is to be paid or known.
    """

    tries: int = 3
    at_once: int = 4
    price_in: float | None = None
    price_out: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.tries <= 20 or not 1 <= self.at_once <= 256:
            raise ValueError(f"tries {self.tries}, asked at once {self.at_once}; expected 1 to 20 and 1 to 256")
        if (self.price_in is None) != (self.price_out is None):
            raise ValueError("one price without the other; give both price_in and price_out, of a million tokens")


@dataclass(frozen=True)
class SetAside:
    """A question whose replies stayed invalid. reply: the beginning of the last one."""

    reason: str
    reply: str


@dataclass(frozen=True)
class Answers(Generic[T]):
    """What came of the questions, by name: values, set_aside, and failures of those that could not be asked.

    stopped: why the run ended early. requests: replies that this run was given, valid or not; uncounted: those whose
    tokens the service did not tell. tokens_in, tokens_out, cost: of this run; requests_in_all, cost_in_all: with those
    before it. trouble: failed requests by kind.
    """

    values: Mapping[str, T]
    set_aside: Mapping[str, SetAside]
    failures: Mapping[str, str]
    asked: int
    stopped: str | None = None
    requests: int = 0
    uncounted: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float | None = None
    requests_in_all: int = 0
    cost_in_all: float | None = None
    trouble: Mapping[str, int] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether every question has its answer."""
        return len(self.values) == self.asked

    @property
    def facts(self) -> dict[str, Any]:
        """What a report says of the asking, as plain values."""
        names = ("asked", "stopped", "requests", "uncounted", "tokens_in", "tokens_out", "cost", "requests_in_all")
        counts: dict[str, Any] = {
            "answered": len(self.values),
            "set_aside": len(self.set_aside),
            "failed": len(self.failures),
        }
        counts |= {"cost_in_all": self.cost_in_all, "trouble": dict(self.trouble)}
        return {**{name: getattr(self, name) for name in names}, **counts}

    @property
    def text(self) -> str:
        """The facts for people, a few lines."""
        opened = self.asked - len(self.values) - len(self.set_aside)
        lines = [
            f"questions: {self.asked}, answered {len(self.values)}, set aside {len(self.set_aside)}, open {opened}",
            f"requests: {self.requests}, tokens {self.tokens_in} in and {self.tokens_out} out"
            + (f" (not counted by the service: {self.uncounted} replies)" if self.uncounted else "")
            + ("" if self.cost is None else f", cost {self.cost:.4f}"),
            f"with earlier runs: {self.requests_in_all} requests"
            + ("" if self.cost_in_all is None else f", cost {self.cost_in_all:.4f}"),
        ]
        lines += [f"failed requests: {count} x {kind}" for kind, count in sorted(self.trouble.items())]
        reasons = Counter(self.failures.values())
        lines += [f"could not be asked, {count} questions: {reason}" for reason, count in reasons.most_common(5)]
        return "\n".join([*lines, *([f"stopped early: {self.stopped}"] if self.stopped else [])])


def whole_reply(text: str) -> str:
    """A reply in normal form, without spaces and a code fence around the whole."""
    whole = unicodedata.normalize("NFC", text).strip()
    fenced = _FENCE.fullmatch(whole)
    return fenced[1].strip() if fenced else whole


def kept_replies(path: Path) -> AbstractContextManager[AnswerLog]:
    """The replies that earlier runs were given, and room for more; as `AnswerLog.open`."""
    return AnswerLog.open(path, f"{path}: another run is asking for these; wait for it, or stop it", LONGEST_KEPT)


def ask_all(
    model: VisionModel, tasks: Sequence[Task[T]], kept: AnswerLog, terms: Terms, on_progress: OnProgress | None = None
) -> Answers[T]:
    """Ask all questions; replies that are kept are read, not asked for again.

    What stops the run (a refused key, a service that is away) is told in the answers; an interrupt, and whatever
    on_progress raises, first lets the requests under way end and be kept.
    """
    names = [task.name for task in tasks]
    assert len(set(names)) == len(names), "two questions of one name"
    run = _Run(model, kept, terms)
    run.work(tasks, on_progress or (lambda done, count: None))
    return run.answers(len(tasks))


class _Run(Generic[T]):
    """The state of one call of ask_all."""

    def __init__(self, model: VisionModel, kept: AnswerLog, terms: Terms) -> None:
        self.model, self.kept, self.terms = model, kept, terms
        self.stop = threading.Event()
        self.values: dict[str, T] = {}
        self.set_aside: dict[str, SetAside] = {}
        self.failures: dict[str, str] = {}
        self.stopped: str | None = None
        self._in_a_row = 0
        self._trouble_before = Counter(model.trouble)

    def work(self, tasks: Sequence[Task[T]], on_progress: OnProgress) -> None:
        """Ask, a few at a time, until all are tried or nothing can be asked any more."""
        with ThreadPoolExecutor(self.terms.at_once) as pool:
            try:
                for done, (task, future) in enumerate(self._futures(pool, tasks), start=1):
                    self._take(task, future)
                    on_progress(done, len(tasks))
            finally:
                self.stop.set()  # where the block is left early, what waits is given up and what is asked is awaited

    def _futures(self, pool: ThreadPoolExecutor, tasks: Sequence[Task[T]]) -> Iterator[tuple[Task[T], Future[T]]]:
        """The tasks' futures as they end; no more are begun once the run has stopped."""
        rest = iter(tasks)
        under_way: dict[Future[T], Task[T]] = {}
        while True:
            while not self.stop.is_set() and len(under_way) < 2 * self.terms.at_once and (task := next(rest, None)):
                under_way[pool.submit(self._answer, task)] = task
            if not under_way:
                return
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                yield under_way.pop(future), future

    def _answer(self, task: Task[T]) -> T:
        """What the first valid reply says; ReplyError where all that may be asked for are invalid."""
        prompt = task.prompt
        for attempt in range(1, self.terms.tries + 1):
            reply = self._reply(task, attempt, prompt)
            try:
                if reply.problem:
                    raise ReplyError(reply.problem, "a whole reply", reply.text)
                return task.parse(reply.text)
            except ReplyError as error:
                last = error
            prompt = again_prompt(task.prompt, last.expected)
        raise ReplyError(f"{self.terms.tries} invalid replies; of the last, {last.found}", last.expected, last.reply)

    def _reply(self, task: Task[T], attempt: int, prompt: str) -> Reply:
        """The kept reply, or a new one, which is kept before anything else happens."""
        key = answer_key(FORM, self.model.name, task.prompt, *task.depends)
        reply = self.kept.get(key, attempt)
        if reply is not None:
            return reply
        if self.stop.is_set():
            raise Cancelled("the run was stopped")
        reply = self.model.answer(Question(prompt, task.pictures()), attempt, self.stop)
        return self.kept.put(key, attempt, reply, {"question": task.name, "model": self.model.name, **task.about})

    def _take(self, task: Task[T], future: Future[T]) -> None:
        """Keep what came of a question; stops the run where the service is away."""
        try:
            self.values[task.name] = future.result()
        except ReplyError as error:
            self.set_aside[task.name] = SetAside(str(error), error.reply[:SHOWN_REPLY])
        except CaptionerError as error:
            self._fail(task, error)
            return
        self._in_a_row = 0

    def _fail(self, task: Task[T], error: CaptionerError) -> None:
        if self.stop.is_set():  # another question stopped the run and told why
            return
        self.failures[task.name] = str(error)
        self._in_a_row += 1
        if isinstance(error, CaptionerAway):
            self.stopped = str(error)
        elif self._in_a_row >= GIVE_UP:
            self.stopped = f"{GIVE_UP} questions in a row were not answered; the last: {error}"
        if self.stopped:
            self.stop.set()

    def answers(self, asked: int) -> Answers[T]:
        """All that came of it."""
        written, everything = self.kept.written, self.kept.everything
        return Answers(
            values=self.values,
            set_aside=self.set_aside,
            failures=self.failures,
            asked=asked,
            stopped=self.stopped,
            requests=len(written),
            uncounted=sum(None in (reply.tokens_in, reply.tokens_out) for reply in written),
            tokens_in=sum(reply.tokens_in or 0 for reply in written),
            tokens_out=sum(reply.tokens_out or 0 for reply in written),
            cost=self._cost(written),
            requests_in_all=len(everything),
            cost_in_all=self._cost(everything),
            trouble=Counter(self.model.trouble) - self._trouble_before,
        )

    def _cost(self, replies: Sequence[Reply]) -> float | None:
        """What the tokens cost, in the currency of the prices; None where no prices were given."""
        terms = self.terms
        if terms.price_in is None or terms.price_out is None:
            return None
        told = [
            (reply.tokens_in or 0) * terms.price_in + (reply.tokens_out or 0) * terms.price_out for reply in replies
        ]
        return sum(told) / 1e6
