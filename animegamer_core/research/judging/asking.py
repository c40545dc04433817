"""Asks one model many questions: several at a time, with a few tries each, resumable at every reply; adds up costs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from ...data.captions.asking import (
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
SHOWN_REPLY = 2000  # characters of an invalid reply that are reported
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


@dataclass(frozen=True)
class SetAside:
    """A question without a valid reply after all tries. reply: the beginning of the last one."""

    reason: str
    reply: str


@dataclass(frozen=True)
class Answers(Generic[T]):
    """The results of the questions.

    values, set_aside, failures: by question; failures are the reasons of those that got no reply. asked: how many
    questions there are. stopped: why the run ended early. spent: by this run. spent_in_all: with earlier runs, whose
    failed requests are not known.
    """

    values: Mapping[str, T]
    set_aside: Mapping[str, SetAside]
    failures: Mapping[str, str]
    asked: int
    stopped: str | None = None
    spent: Spent = Spent()
    spent_in_all: Spent = Spent()

    @property
    def whole(self) -> bool:
        """Whether every question has an answer."""
        return len(self.values) == self.asked

    @property
    def facts(self) -> dict[str, Any]:
        """The counts for a report, as plain JSON values."""
        return {
            "asked": self.asked,
            "answered": len(self.values),
            "set_aside": len(self.set_aside),
            "failed": len(self.failures),
            "stopped": self.stopped,
            **asdict(self.spent),
            "requests_in_all": self.spent_in_all.requests,
            "cost_in_all": self.spent_in_all.cost,
        }

    @property
    def text(self) -> str:
        """The counts as a few lines of text."""
        opened, in_all = self.asked - len(self.values) - len(self.set_aside), self.spent_in_all
        cost = "" if in_all.cost is None else f", cost {in_all.cost:.4f}"
        lines = [
            f"questions: {self.asked}, answered {len(self.values)}, set aside {len(self.set_aside)}, open {opened}",
            *self.spent.lines,
            f"with earlier runs: {in_all.requests} requests{cost}",
            *failure_lines(self.failures, "questions"),
        ]
        return "\n".join([*lines, *([f"stopped early: {self.stopped}"] if self.stopped else [])])


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
) -> Answers[T]:
    """Ask all questions for which no valid reply is stored.

    If a refused key or an unavailable service stops the run early, the answers state that. After an interrupt or an
    exception from on_progress, requests in flight are finished and stored before it is raised.
    """
    jobs = {}
    for task in tasks:
        assert task.name not in jobs, "two questions of one name"
        stored = replace(
            task,
            depends=(task.prompt, *task.depends),
            about={"question": task.name, "model": model.name, **task.about},
        )
        jobs[task.name] = partial(first_valid_reply, stored, model, kept, settings.tries)
    result = run_batch(jobs, "questions", settings.asked_at_once, on_progress)
    return Answers(
        values=result.values,
        set_aside={name: SetAside(str(error), error.reply[:SHOWN_REPLY]) for name, error in result.invalid.items()},
        failures=result.failures,
        asked=len(tasks),
        stopped=result.stopped,
        spent=Spent.of(kept.written, settings.price_in, settings.price_out),
        spent_in_all=Spent.of(kept.everything, settings.price_in, settings.price_out),
    )
