"""The language model that proposes and translates instructions: its address and its requests.

It is served by an OpenAI-compatible endpoint. Imports neither torch nor Pillow.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from functools import lru_cache
from typing import TYPE_CHECKING

from ..state import clean_text

if TYPE_CHECKING:
    from ..endpoint import Question, Reply, VisionModel

URL, MODEL = "ANIMEGAMER_ENDPOINT_URL", "ANIMEGAMER_ENDPOINT_MODEL"  # environment variables
TRIES = 3  # maximum replies until one has a valid line
LATER_TRIES = range(2, 2 + TRIES)  # a model's first attempt is its likeliest reply, for any seed
TIMEOUT, RETRIES, MOST_TOKENS = 60.0, 2, 2000  # s for one answer; further requests; tokens, thoughts included
LONGEST_LINE = 300  # maximum characters of an instruction in a prompt or a reply
CHECK_EVERY = 0.2  # seconds between checks whether the player wants to stop

_BULLET = re.compile(r"\s*(?:[-*\u2022]|\d{1,2}[.):])?\s*")


def do_nothing() -> None:
    """The default callback while waiting for an answer."""


def stated() -> tuple[str, str]:
    """(url, model) of the environment variables; empty texts where they are not set."""
    return os.environ.get(URL, "").strip(), os.environ.get(MODEL, "").strip()


@lru_cache(maxsize=4)
def model_at(url: str, model: str) -> VisionModel:
    """The model of this name at an endpoint. ValueError for an invalid address, or without a key or `openai`."""
    from ..endpoint import EndpointModel, EndpointSettings

    return EndpointModel(EndpointSettings(url, model, timeout=TIMEOUT, retries=RETRIES, max_tokens=MOST_TOKENS))


def give_up_after(seconds: float) -> Callable[[], None]:
    """A `check` that raises a ValueError once that time has passed since this call."""
    end = time.monotonic() + seconds

    def check() -> None:
        if time.monotonic() > end:
            raise ValueError(f"the endpoint gave no valid answer within {seconds:g} s; try again, or look at its log")

    return check


def answer_of(model: VisionModel, question: Question, attempt: int, check: Callable[[], None] = do_nothing) -> Reply:
    """The model's reply. check: called until it is there; raises to give up. ValueError if no answer comes."""
    stop = threading.Event()
    answered: Future[Reply] = Future()

    def ask() -> None:
        try:
            answered.set_result(model.answer(question, attempt, stop))
        except BaseException as error:  # noqa: BLE001  carried to the caller, whatever it is
            answered.set_exception(error)

    threading.Thread(target=ask, daemon=True, name="endpoint").start()
    try:
        while True:
            check()
            try:
                return answered.result(timeout=CHECK_EVERY)
            except LateError:
                if answered.done():  # raised by the model itself
                    raise
    finally:
        stop.set()


def lines_of(text: str) -> Iterator[str]:
    """The lines of a reply as instructions: without bullets and quotation marks, and with a full stop at the end."""
    for line in text.splitlines():
        plain = clean_text(_BULLET.sub("", line, count=1)).strip("`\"'* ")
        if plain and len(plain) <= LONGEST_LINE:
            yield plain.rstrip(".") + "."
