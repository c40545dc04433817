"""A question to a vision model and its reply, whatever runs the model; and what goes wrong beyond a wrong reply."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from PIL import Image

VARIED = 0.7  # temperature of every attempt after the first, which would else give the same reply again
STORED_REPLY = 2000  # characters of a reply that are kept; a longer one is invalid anyway


class CaptionerError(ValueError):
    """A question that was not answered: the service, the model or the clip's file is the matter, not the reply."""


class CaptionerAway(CaptionerError):
    """No question can be answered for now, so that going on with the next clip is no use."""


class ClipUnreadable(CaptionerError):
    """The clip's file is the matter, not the model."""


class Cancelled(CaptionerAway):
    """Somebody stopped the run while a question waited its turn."""


@dataclass(frozen=True)
class Question:
    """What a model is asked: our text about pictures that it knows as Image-1, Image-2 and so on."""

    text: str
    pictures: tuple[Image.Image, ...] = ()


@dataclass(frozen=True)
class Reply:
    """What a model answered. problem: why the text cannot be a whole reply ('' if it can). Tokens are None where the
    service does not count them."""

    text: str
    problem: str = ""
    tokens_in: int | None = None
    tokens_out: int | None = None


class VisionModel(Protocol):
    """A model that answers questions about pictures; may be called from several threads.

    name: kind and model; replies are kept under it. trouble: how often what went wrong and was tried again.
    """

    name: str
    trouble: Mapping[str, int]

    def answer(self, question: Question, attempt: int, stop: threading.Event) -> Reply:
        """The reply; attempt 1 is the model's likeliest, later ones vary. CaptionerError where there is none."""
