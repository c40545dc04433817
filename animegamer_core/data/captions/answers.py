"""Every reply that a model gave, written before it is used, so that none is ever paid for twice."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...files import append_line, locked
from .questions import STORED_REPLY, Reply

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
