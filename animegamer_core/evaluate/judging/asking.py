"""Asks one model many questions, several at a time; every reply is stored before it is used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from ...data.captions.asking import (
    AskSettings,
    BatchResult,
    OnProgress,
    ReplyLog,
    Task,
    first_valid_reply,
    run_batch,
)
from ...endpoint import VisionModel

T = TypeVar("T")


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


def summary(result: BatchResult[T], asked: int, kept: ReplyLog) -> str:
    """The counts of a run and the tokens that it took, as a few lines of text."""
    lines = [
        f"questions: {asked}, answered {len(result.values)}, set aside {len(result.invalid)}",
        *(f"set aside: {name}: {error}" for name, error in result.invalid.items()),
    ]
    return "\n".join([*lines, *result.lines("questions", kept.written)])
