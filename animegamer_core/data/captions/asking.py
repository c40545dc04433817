"""Asking one model many questions: several at a time, each with a few tries, resumable at every reply.

Captions (`run`), the judge and the writer of stories (`evaluate.judging`) all ask this way.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
from PIL import Image

from ...endpoint import Cancelled, CaptionerError, CaptionerUnavailable, ClipUnreadable, Question, Reply, VisionModel
from ...files import append_line, locked, remove_torn_line
from ..records import read_table
from .replies import ReplyError, again_prompt

T = TypeVar("T")
GIVE_UP = 8  # jobs in a row without an answer: the service is unavailable

Job = Callable[[threading.Event], T]  # given an event that tells it to stop
OnProgress = Callable[[int, int], None]  # (jobs done, jobs in all)


@dataclass(frozen=True)
class AskSettings:
    """How questions are asked; ValueError for an impossible value."""

    tries: int = 3
    """Invalid replies before a question is set aside."""
    asked_at_once: int = 4
    """Parallel requests."""

    def __post_init__(self) -> None:
        if self.tries < 1 or self.asked_at_once < 1:
            raise ValueError(f"tries {self.tries}, asked at once {self.asked_at_once}; expected 1 or more of both")


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

    def lines(self, what: str, replies: Sequence[Reply]) -> list[str]:
        """What this run's new replies cost, and the most common reasons why jobs got no answer."""
        lines = []
        if replies:
            read, written = (sum(getattr(one, name) or 0 for one in replies) for name in ("tokens_in", "tokens_out"))
            lines = [f"requests: {len(replies)}, tokens {read} in and {written} out, as far as they are counted"]
        reasons = Counter(self.failures.values()).most_common(5)
        lines += [f"no answer about {count} {what}: {reason}" for reason, count in reasons]
        return [*lines, *([f"stopped early: {self.stopped}"] if self.stopped else [])]


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
        futures = {pool.submit(job, stop): name for name, job in jobs.items()}
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                name = futures[future]
                try:
                    result.values[name] = future.result()
                    unanswered = 0
                except ReplyError as error:
                    result.invalid[name] = error
                    unanswered = 0
                except Cancelled:
                    continue  # it only says that the batch was stopped
                except CaptionerError as error:
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


class _Line(msgspec.Struct):
    """What every line of a log has."""

    key: str
    attempt: int
    reply: Reply


class ReplyLog:
    """The replies in a JSON Lines file, found by question and attempt. Several threads may append."""

    def __init__(self, path: Path, lines: Sequence[_Line]) -> None:
        self._path, self._lock = path, threading.Lock()
        self._replies = {(line.key, line.attempt): line.reply for line in lines}
        self.written: list[Reply] = []  # by this run

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[ReplyLog]:
        """The log in a file, for one process at a time; a last line that a kill cut off is removed.

        ValueError if another process has it, or for a damaged line.
        """
        with locked(path.with_suffix(".lock"), f"{path}: another run asks these questions; wait for it, or stop it"):
            remove_torn_line(path)
            yield cls(path, read_table(path, _Line))

    def get(self, key: str, attempt: int) -> Reply | None:
        """The stored reply to a question, or None."""
        return self._replies.get((key, attempt))

    def put(self, key: str, attempt: int, reply: Reply, about: Mapping[str, Any]) -> Reply:
        """Write a reply to the disk and return it as stored; after an OSError nothing is stored.

        about: more keys of its line, for people.
        """
        reply = replace(reply, text=reply.text.encode("utf-8", "replace").decode("utf-8"))  # half characters: as ?
        line = {**about, "key": key, "attempt": attempt, "reply": asdict(reply)}
        with self._lock:
            append_line(self._path, json.dumps(line) + "\n")
            self._replies[key, attempt] = reply
            self.written.append(reply)
        return reply


@dataclass(frozen=True)
class Task(Generic[T]):
    """A question that may be asked several times. pictures: makes them when it is asked.

    parse: reads a reply, ReplyError if it is not in the form that the prompt asks for. depends: what the reply depends
    on next to the model. about: for people who read the stored replies. step: the question's name in messages.
    """

    name: str
    prompt: str
    parse: Callable[[str], T]
    pictures: Callable[[], tuple[Image.Image, ...]] = tuple
    depends: tuple[Any, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    step: str = ""


def first_valid_reply(task: Task[T], model: VisionModel, log: ReplyLog, tries: int, stop: threading.Event) -> T:
    """What the first valid reply says, from the log or from the model; ReplyError if all `tries` are invalid."""
    key = hashlib.sha256(json.dumps([model.name, *task.depends]).encode()).hexdigest()[:20]
    prompt = task.prompt
    for attempt in range(1, tries + 1):
        reply = log.get(key, attempt)
        if reply is None:
            if stop.is_set():
                raise Cancelled("the run was stopped")
            reply = model.answer(Question(prompt, task.pictures()), attempt, stop)
            reply = log.put(key, attempt, reply, task.about)
        try:
            if reply.problem:
                raise ReplyError(reply.problem, "a whole reply", reply.text)
            return task.parse(reply.text)
        except ReplyError as error:
            last = error
        prompt = again_prompt(task.prompt, last.expected)
    to = f" to the {task.step} question" if task.step else ""
    raise ReplyError(f"{tries} invalid replies{to}; the last one: {last.found}", last.expected, last.reply)


def ask_all(
    model: VisionModel,
    tasks: Sequence[Task[T]],
    log: ReplyLog,
    terms: AskSettings,
    on_progress: OnProgress | None = None,
) -> tuple[BatchResult[T], str]:
    """Ask all questions for which no valid reply is stored: (what came of them, the counts as text)."""
    jobs = {}
    for task in tasks:
        about = {"question": task.name, "model": model.name, **task.about}
        stored = replace(task, depends=(task.prompt, *task.depends), about=about)
        jobs[task.name] = partial(first_valid_reply, stored, model, log, terms.tries)
    result = run_batch(jobs, "questions", terms.asked_at_once, on_progress)
    counts = f"questions: {len(jobs)}, answered {len(result.values)}, set aside {len(result.invalid)}"
    set_aside = (f"set aside: {name}: {error}" for name, error in result.invalid.items())
    return result, "\n".join([counts, *set_aside, *result.lines("questions", log.written)])
