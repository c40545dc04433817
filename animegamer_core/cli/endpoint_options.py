"""Options of the tasks that ask a model behind an OpenAI-compatible endpoint, and the progress line."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

if TYPE_CHECKING:
    from ..endpoint import EndpointModel
    from ..research.judging.asking import AskSettings

_SETTINGS = ("url", "model", "timeout", "retries", "max_tokens")
_TERMS = ("tries", "at_once", "price_in", "price_out")


@dataclass(frozen=True, kw_only=True)
class EndpointOptions:
    """Where the model is and how it is asked. The key is read from the environment variable OPENAI_API_KEY."""

    url: str
    """An OpenAI-compatible address, such as http://localhost:8000/v1; the key is read from OPENAI_API_KEY."""
    model: str
    """The model's name at the endpoint."""
    at_once: Annotated[int | None, arg(name="asked-at-once")] = None
    """Parallel requests; unset: 4."""
    tries: int | None = None
    """Invalid replies before a question is set aside; unset: 3."""
    max_tokens: int
    """Tokens per reply."""
    timeout: float | None = None
    """Seconds without an answer before a request is tried again; unset: 120."""
    retries: int | None = None
    """Retries after a failed request; unset: 5."""
    price_in: float | None = None
    """Price per million input tokens, to report the cost."""
    price_out: float | None = None
    """Price per million output tokens."""


def endpoint_of(args: EndpointOptions) -> tuple[EndpointModel, AskSettings]:
    """The model and the settings of asking it; ValueError for an invalid option."""
    from ..endpoint import EndpointModel, EndpointSettings
    from ..research.judging.asking import AskSettings

    terms = AskSettings(**_given(args, _TERMS))
    return EndpointModel(EndpointSettings(**_given(args, _SETTINGS))), terms


def _given(args: EndpointOptions, names: tuple[str, ...]) -> dict[str, object]:
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


class Progress:
    """Progress on stderr: on a terminal one line that is overwritten, elsewhere one every ten seconds and the last."""

    def __init__(self, what: str = "") -> None:
        self._what, self._is_terminal, self._shown = what, sys.stderr.isatty(), time.monotonic()

    def __call__(self, done: int, count: int) -> None:
        """Show done of count."""
        self.show(self._what, done, count)

    def show(self, what: str, done: int, count: int) -> None:
        """Show done of count; count 0: unknown."""
        now = time.monotonic()
        if done != count and now - self._shown < (0.1 if self._is_terminal else 10.0):
            return
        self._shown = now
        line = f"  {what}: {done}" + (f" of {count}" if count else "")
        if self._is_terminal:
            print(f"{line:<60}", end="\r" if done != count else "\n", file=sys.stderr, flush=True)  # noqa: T201
        else:
            print(line, file=sys.stderr, flush=True)  # noqa: T201
