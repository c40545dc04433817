"""Options of the tasks that ask a model behind an OpenAI-compatible endpoint, and the progress line."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..data.captions.client import EndpointModel
    from ..research.judging.asking import AskSettings

_SETTINGS = ("url", "model", "timeout", "per_minute", "retries", "max_tokens")
_TERMS = ("tries", "at_once", "price_in", "price_out")


def add_endpoint_arguments(parser: argparse.ArgumentParser, max_tokens: int) -> None:
    """Declare where the model is and how it is asked. max_tokens: the default length of a reply."""
    group = parser.add_argument_group("the model", "The key is read from the environment variable OPENAI_API_KEY.")
    add = group.add_argument
    add("--url", required=True, help="an OpenAI-compatible address, such as http://localhost:8000/v1")
    add("--model", required=True, help="the model's name at the endpoint")
    add("--asked-at-once", dest="at_once", type=int, metavar="N", help="parallel requests (default 4)")
    add("--tries", type=int, metavar="N", help="invalid replies before a question is set aside (default 3)")
    add("--max-tokens", type=int, default=max_tokens, metavar="N", help="tokens per reply (default %(default)s)")
    add_request_arguments(add)


def add_request_arguments(add: Callable[..., object], taken_by: str = "") -> None:
    """Declare the options for rate limits and prices of an endpoint. taken_by: words before each help text."""
    add("--timeout", type=float, metavar="SECONDS", help=f"{taken_by}time limit for one complete answer (default 120)")
    add("--retries", type=int, metavar="N", help=f"{taken_by}retries after a failed request (default 5)")
    add("--per-minute", type=float, metavar="N", help=f"{taken_by}maximum requests per minute (default: no limit)")
    add("--price-in", type=float, metavar="X", help=f"{taken_by}price per million input tokens, to report the cost")
    add("--price-out", type=float, metavar="X", help=f"{taken_by}price per million output tokens")


def endpoint_of(args: argparse.Namespace) -> tuple[EndpointModel, AskSettings]:
    """The model and the settings of asking it; ValueError for an invalid option."""
    from ..data.captions.client import EndpointModel, EndpointSettings
    from ..research.judging.asking import AskSettings

    terms = AskSettings(**_given(args, _TERMS))
    return EndpointModel(EndpointSettings(**_given(args, _SETTINGS))), terms


def _given(args: argparse.Namespace, names: tuple[str, ...]) -> dict[str, object]:
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
