"""Every reply that a model gave, written before it is used, so that none is ever paid for twice; and asking again."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...files import append_line, locked
from .prompts import again_prompt
from .questions import STORED_REPLY, Cancelled, Question, Reply, VisionModel
from .replies import ReplyError

if TYPE_CHECKING:
    from PIL import Image

T = TypeVar("T")
ANSWERS = "captions.jsonl"
_KEPT = ("reply", "problem", "tokens_in", "tokens_out")


def answer_key(*parts: Any) -> str:
    """The name of a question: the same for everything that asks the same of the same model."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]


class AnswerLog:
    """The replies in a file of json lines, found by question and attempt. Appending is safe from several threads."""

    def __init__(self, path: Path, replies: dict[tuple[str, int], Reply], longest: int) -> None:
        self._path, self._replies, self._longest, self._lock = path, replies, longest, threading.Lock()
        self.written: list[Reply] = []  # by this run

    @classmethod
    @contextmanager
    def open(cls, path: Path, refusal: str, longest: int) -> Iterator[AnswerLog]:
        """The log in a file, for one process at a time; ValueError for a damaged line, or with `refusal` for a second.

        A last line that a kill cut off is removed. longest: characters of a reply that are kept.
        """
        with locked(path.with_suffix(".lock"), refusal):
            replies, whole_bytes = _read(path)
            with path.open("ab") as file:
                file.truncate(whole_bytes)
            yield cls(path, replies, longest)

    def get(self, key: str, attempt: int) -> Reply | None:
        """The reply to a question that was asked before, or None."""
        return self._replies.get((key, attempt))

    @property
    def everything(self) -> list[Reply]:
        """All replies, of this run and of those before."""
        with self._lock:
            return list(self._replies.values())

    def put(self, key: str, attempt: int, reply: Reply, about: Mapping[str, Any]) -> Reply:
        """Add a reply; it is on the disk, as it is returned, when this returns, or after an OSError not at all.

        `about` is for people who read it.
        """
        reply = replace(reply, text=reply.text[: self._longest])
        values = (reply.text, reply.problem, reply.tokens_in, reply.tokens_out)
        line = {**about, "attempt": attempt, "key": key, **dict(zip(_KEPT, values, strict=True))}
        with self._lock:
            append_line(self._path, json.dumps(line) + "\n")
            self._replies[key, attempt] = reply
            self.written.append(reply)
        return reply


@dataclass(frozen=True)
class Asked(Generic[T]):
    """A question that may be put several times. key: what its replies are kept under. pictures: made when it is asked.

    parse: reads a reply, ReplyError where it is not in the asked form. about: for people who read the kept replies.
    name: of the question, in the sentence that tells that its replies were invalid.
    """

    key: str
    prompt: str
    pictures: Callable[[], tuple[Image.Image, ...]]
    parse: Callable[[str], T]
    about: Mapping[str, Any]
    name: str = ""


def first_valid(asked: Asked[T], model: VisionModel, kept: AnswerLog, tries: int, stop: threading.Event) -> T:
    """What the first valid reply says; ReplyError where all that may be asked for are invalid."""
    prompt = asked.prompt
    for attempt in range(1, tries + 1):
        reply = _reply(asked, attempt, prompt, model, kept, stop)
        try:
            if reply.problem:
                raise ReplyError(reply.problem, "a whole reply", reply.text)
            return asked.parse(reply.text)
        except ReplyError as error:
            last = error
        prompt = again_prompt(asked.prompt, last.expected)
    to = f" to the {asked.name} question" if asked.name else ""
    raise ReplyError(f"{tries} invalid replies{to}; of the last, {last.found}", last.expected, last.reply)


def _reply(
    asked: Asked[Any], attempt: int, prompt: str, model: VisionModel, kept: AnswerLog, stop: threading.Event
) -> Reply:
    """The kept reply, or a new one, which is kept before anything else happens."""
    reply = kept.get(asked.key, attempt)
    if reply is not None:
        return reply
    if stop.is_set():
        raise Cancelled("the run was stopped")
    reply = model.answer(Question(prompt, asked.pictures()), attempt, stop)
    return kept.put(asked.key, attempt, reply, asked.about)


def captions_log(folder: str | Path) -> AbstractContextManager[AnswerLog]:
    """The log of a dataset's captions; as `AnswerLog.open`."""
    refusal = f"{folder}: another run is captioning this dataset; wait for it, or stop it"
    return AnswerLog.open(Path(folder) / ANSWERS, refusal, STORED_REPLY)


def _read(path: Path) -> tuple[dict[tuple[str, int], Reply], int]:
    """The replies of a log, and how many of its bytes are whole lines."""
    data = path.read_bytes() if path.is_file() else b""
    whole = data[: data.rfind(b"\n") + 1]
    replies = {}
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            values = json.loads(line)
            text, *rest = (values[name] for name in _KEPT)
            replies[values["key"], values["attempt"]] = Reply(text + "", *rest)  # TypeError unless it is text
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}:{number}: not a kept reply ({error}); delete this line") from error
    return replies, len(whole)
