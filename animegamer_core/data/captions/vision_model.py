"""The interface of all vision models: questions in, replies out, and errors that say what failed."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from PIL import Image

VARIED = 0.7  # temperature of every attempt after the first, which would otherwise repeat its reply
STORED_REPLY = 2000  # characters of a reply that are stored; a longer one is invalid anyway


class CaptionerError(ValueError):
    """A question got no answer, because of the service, the model or the clip's file."""


class CaptionerUnavailable(CaptionerError):
    """The model cannot answer any question for now, so stop asking."""


class ClipUnreadable(CaptionerError):
    """The clip's file cannot be read; the model is not to blame."""


class Cancelled(CaptionerUnavailable):
    """The run was stopped while a question waited."""


@dataclass(frozen=True)
class Question:
    """A prompt about pictures, which it calls Image-1, Image-2 and so on.

    seed: for services that can repeat a reply.
    """

    text: str
    pictures: tuple[Image.Image, ...] = ()
    seed: int | None = None


@dataclass(frozen=True)
class Reply:
    """What a model answered. problem: why the text is not a whole reply ('' if it is). Token counts are None where the
    service does not report them."""

    text: str
    problem: str = ""
    tokens_in: int | None = None
    tokens_out: int | None = None


class VisionModel(Protocol):
    """A model that answers questions about pictures; may be called from several threads.

    name: kind and model; replies are stored under it. trouble: the number of failed requests by kind.
    """

    name: str
    trouble: Mapping[str, int]

    def answer(self, question: Question, attempt: int, stop: threading.Event) -> Reply:
        """The reply; attempt 1 is the model's most likely one, later ones vary. CaptionerError if there is none."""
