"""Asks one model many questions, several at a time; every reply is stored before it is used."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from ...data.captions.asking import (
    BatchResult,
    OnProgress,
    ReplyLog,
    Spent,
    Task,
    check_asking,
    failure_lines,
    first_valid_reply,
    run_batch,
)
from ...endpoint import VisionModel

T = TypeVar("T")
LONGEST_KEPT = 20_000  # most characters of a stored reply; a longer one is invalid anyway
_FENCE = re.compile(r"```\w*\s*\n(.*?)\n\s*```", re.DOTALL)


@dataclass(frozen=True)
class AskSettings:
    """How questions are asked; ValueError for an impossible value."""

    tries: int = 3
    """Invalid replies before a question is set aside."""
    asked_at_once: int = 4
    """Parallel requests."""
    price_in: float | None = None
    """Price per million input tokens, in any currency, to report the cost; unset: free or unknown."""
    price_out: float | None = None
    """Price per million output tokens."""

    def __post_init__(self) -> None:
        check_asking(self.tries, self.price_in, self.price_out)
        if not 1 <= self.asked_at_once <= 256:
            raise ValueError(f"asked at once {self.asked_at_once}; expected 1 to 256 parallel requests")


def whole_reply(text: str) -> str:
    """A reply in Unicode form NFC, without surrounding whitespace or a code fence around all of it."""
    whole = unicodedata.normalize("NFC", text).strip()
    fenced = _FENCE.fullmatch(whole)
    return fenced[1].strip() if fenced else whole


def kept_replies(path: Path) -> AbstractContextManager[ReplyLog]:
    """Open the log of replies that earlier runs stored; new ones are added. See `ReplyLog.open`."""
    return ReplyLog.open(path, f"{path}: another run is asking these questions; wait for it, or stop it", LONGEST_KEPT)


def ask_all(
    model: VisionModel,
    tasks: Sequence[Task[T]],
    kept: ReplyLog,
    settings: AskSettings,
    on_progress: OnProgress | None = None,
) -> BatchResult[T]:
    """Ask all questions for which no valid reply is stored.

    If a refused key or an unavailable service stops the run early, the result says so. After an interrupt, requests in
    flight are finished and stored before it is raised.
    """
    jobs = {}
    for task in tasks:
        about = {"question": task.name, "model": model.name, **task.about}
        stored = replace(task, depends=(task.prompt, *task.depends), about=about)
        jobs[task.name] = partial(first_valid_reply, stored, model, kept, settings.tries)
    return run_batch(jobs, "questions", settings.asked_at_once, on_progress)


def summary(result: BatchResult[T], asked: int, kept: ReplyLog, settings: AskSettings) -> str:
    """The counts and costs of a run as a few lines of text."""
    spent = Spent.of(kept.written, settings.price_in, settings.price_out)
    lines = [
        f"questions: {asked}, answered {len(result.values)}, set aside {len(result.invalid)}",
        *(f"set aside: {name}: {error}" for name, error in result.invalid.items()),
        *spent.lines,
        *failure_lines(result.failures, "questions"),
    ]
    return "\n".join([*lines, *([f"stopped early: {result.stopped}"] if result.stopped else [])])
