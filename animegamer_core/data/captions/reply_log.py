"""Every reply of a model, stored before it is used, so that none is paid for twice; and asking again after bad ones."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from PIL import Image

from ...endpoint import Cancelled, Question, Reply, VisionModel
from ...files import append_line, locked
from ...json_files import read_rows
from .prompts import again_prompt
from .replies import LONGEST_REPLY, ReplyError

T = TypeVar("T")
FORM = 1  # of the questions; raising it makes stored replies unused
ANSWERS = "captions.jsonl"
_Tokens = Annotated[int, msgspec.Meta(ge=0)] | None


class StoredReply(msgspec.Struct):
    """What every line of a log has."""

    attempt: int
    key: str
    reply: str
    problem: str
    tokens_in: _Tokens
    tokens_out: _Tokens


class ReplyLog:
    """The replies in a JSON Lines file, found by question and attempt. Several threads may append."""

    def __init__(self, path: Path, replies: dict[tuple[str, int], Reply], longest: int) -> None:
        self._path, self._replies, self._longest, self._lock = path, replies, longest, threading.Lock()
        self.written: list[Reply] = []  # by this run

    @classmethod
    @contextmanager
    def open(cls, path: Path, refusal: str, longest: int) -> Iterator[ReplyLog]:
        """The log in a file, for one process at a time: a second one gets a ValueError that says `refusal`.

        ValueError for a damaged line; a last line that a kill cut off is removed. longest: most characters of a reply.
        """
        with locked(path.with_suffix(".lock"), refusal):
            _remove_torn_end(path)
            yield cls(path, _read(path), longest)

    def get(self, key: str, attempt: int) -> Reply | None:
        """The stored reply to a question, or None."""
        return self._replies.get((key, attempt))

    @property
    def everything(self) -> list[Reply]:
        """All replies, of this run and of earlier ones."""
        with self._lock:
            return list(self._replies.values())

    def put(self, key: str, attempt: int, reply: Reply, about: Mapping[str, Any]) -> Reply:
        """Write a reply to the disk and return it as stored; after an OSError nothing is stored.

        about: more keys of its line, for people.
        """
        text = reply.text[: self._longest].encode("utf-8", "replace").decode("utf-8")  # half characters: as ?
        reply = replace(reply, text=text)
        stored = StoredReply(attempt, key, reply.text, reply.problem, reply.tokens_in, reply.tokens_out)
        with self._lock:
            append_line(self._path, json.dumps({**about, **msgspec.structs.asdict(stored)}) + "\n")
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
    key = hashlib.sha256(json.dumps([FORM, model.name, *task.depends]).encode()).hexdigest()[:20]
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


def open_captions_log(folder: str | Path) -> AbstractContextManager[ReplyLog]:
    """The log of a dataset's captions; see `ReplyLog.open`."""
    refusal = f"{folder}: another run is captioning this dataset; wait for it, or stop it"
    return ReplyLog.open(Path(folder) / ANSWERS, refusal, LONGEST_REPLY)


def _remove_torn_end(path: Path) -> None:
    """Remove a last line without an end, which a kill cut off."""
    with path.open("a+b") as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


def _read(path: Path) -> dict[tuple[str, int], Reply]:
    replies = {}
    for number, line, problem in read_rows(path, StoredReply):
        if problem is not None:
            raise ValueError(f"{path}:{number}: {problem}; this is not a stored reply, so delete the line")
        replies[line.key, line.attempt] = Reply(line.reply, line.problem, line.tokens_in, line.tokens_out)
    return replies
