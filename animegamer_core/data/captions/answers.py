"""captions.jsonl: every reply that a model gave, written before it is used, so that none is ever paid for twice."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...files import locked
from .questions import STORED_REPLY, Reply

ANSWERS, LOCK = "captions.jsonl", "captions.lock"
_KEPT = ("reply", "problem", "tokens_in", "tokens_out")


def answer_key(*parts: Any) -> str:
    """The name of a question: the same for everything that asks the same of the same model."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]


class AnswerLog:
    """The replies of a dataset folder, found by question and attempt. Appending is safe from several threads."""

    def __init__(self, file: io.FileIO, replies: dict[tuple[str, int], Reply]) -> None:
        self._file, self._replies, self._lock = file, replies, threading.Lock()
        self.written: list[Reply] = []  # by this run

    @classmethod
    @contextmanager
    def open(cls, folder: str | Path) -> Iterator[AnswerLog]:
        """The log of a folder, for one process at a time; ValueError for a second one, or for a line that is damaged.

        A last line that a kill cut off is removed.
        """
        folder = Path(folder)
        path = folder / ANSWERS
        with locked(folder / LOCK, f"{folder}: another run is captioning this dataset; wait for it, or stop it"):
            replies, whole_bytes = _read(path)
            with path.open("ab", buffering=0) as file:
                file.truncate(whole_bytes)
                yield cls(file, replies)

    def get(self, key: str, attempt: int) -> Reply | None:
        """The reply to a question that was asked before, or None."""
        return self._replies.get((key, attempt))

    def put(self, key: str, attempt: int, reply: Reply, about: Mapping[str, Any]) -> None:
        """Add a reply; it is on the disk when this returns. `about` is for people who read the file."""
        reply = replace(reply, text=reply.text[:STORED_REPLY])
        values = (reply.text, reply.problem, reply.tokens_in, reply.tokens_out)
        line = {**about, "attempt": attempt, "key": key, **dict(zip(_KEPT, values, strict=True))}
        text = json.dumps(line).encode() + b"\n"
        with self._lock:
            self._append(text)
            self._replies[key, attempt] = reply
            self.written.append(reply)

    def _append(self, text: bytes) -> None:
        """Write a whole line, or on a full disk nothing; OSError names the file."""
        size = self._file.seek(0, os.SEEK_END)
        try:
            if self._file.write(text) < len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError as error:
            self._file.truncate(size)
            raise OSError(error.errno, error.strerror, self._file.name) from error


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
