"""A vision model behind an OpenAI-compatible endpoint: vLLM, llama.cpp, LM Studio, or a service that is paid.

The client's own retries are off: here every request is counted, waits are shared by all threads, and a stop is heeded.
"""

from __future__ import annotations

import base64
import importlib
import io
import json
import os
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ...state import clean_text
from .pace import FIRST_WAIT, Pace, asked_wait, growing_wait
from .questions import VARIED, Cancelled, CaptionerAway, CaptionerError, Question, Reply

if TYPE_CHECKING:
    from PIL import Image

KEY = "OPENAI_API_KEY"
NO_KEY = "none"
LONGEST_ANSWER = 2**20  # bytes of one answer, everything included
TOO_LARGE = f"the answer is larger than {LONGEST_ANSWER} bytes"
LONGEST_PAUSE = 300.0  # seconds; a service that asks for more is away
JPEG_QUALITY = 92
_BAD_URL = "the endpoint's url must be http://HOST[:PORT]/v1 or https://..., without a password"
_SHOWN = 200  # characters of a service's own message that are shown
_TRIED_AGAIN = (408, 409, 425, 429, *range(500, 600))
_ALL_THE_SAME = (401, 402, 403, 404, 405)  # the next question would meet the same


@dataclass(frozen=True)
class EndpointSettings:
    """Where the model is, and how it is asked.

    url: the endpoint's address up to /v1. timeout: seconds for one whole answer. per_minute: requests a minute at
    most, tried-again ones included; None for no limit. retries: further requests after one that failed.
    first_wait: seconds before the first of them. max_tokens: of one reply.
    """

    url: str
    model: str
    timeout: float = 120.0
    per_minute: float | None = None
    retries: int = 5
    first_wait: float = FIRST_WAIT
    max_tokens: int = 256

    def __post_init__(self) -> None:
        if not _is_address(self.url):
            raise ValueError(_BAD_URL)
        if not self.model.strip():
            raise ValueError("the endpoint's model is not named; give the name that the service lists at /v1/models")
        if not self.timeout > 0 or self.retries < 0 or self.max_tokens < 1 or not self.first_wait >= 0:
            raise ValueError(
                f"timeout {self.timeout}, retries {self.retries}, first_wait {self.first_wait}, max_tokens "
                f"{self.max_tokens}; expected a timeout above 0, retries and wait of 0 or more, at least 1 token"
            )


def _is_address(url: str) -> bool:
    """Whether a url tells a host and, if any, a port that connections can be made to, and no password."""
    try:
        parts = urlsplit(url)
        found = parts.hostname and parts.hostname.encode("idna") and parts.port != 0
    except ValueError:  # a port that is no number, a host that no name can be
        return False
    return bool(found) and parts.scheme in ("http", "https") and not parts.username and not parts.password


class _Trouble(Exception):
    """One request that failed and may be tried again. wait: seconds that the service asks for."""

    def __init__(self, kind: str, wait: float | None = None) -> None:
        super().__init__(kind)
        self.kind, self.wait = kind, wait


class EndpointModel:
    """Answers questions through the `openai` client. The key is read from the environment, never from anywhere else."""

    def __init__(self, settings: EndpointSettings) -> None:
        self.name = f"endpoint {settings.model}"
        self.settings = settings
        self.trouble: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._pace = Pace(settings.per_minute)
        self._key = _key()
        self._openai = _openai()
        try:
            self._client = self._openai.OpenAI(
                api_key=self._key, base_url=settings.url, timeout=settings.timeout, max_retries=0
            )
        except _http(self._openai.Timeout.__init__).InvalidURL as error:  # its rules for hosts are newer than Python's
            raise ValueError(_BAD_URL) from error
        self._limit, self._varies = "max_tokens", True

    def answer(self, question: Question, attempt: int, stop: threading.Event) -> Reply:
        """The reply. CaptionerError: no answer after all retries; CaptionerAway: none to be had, and why."""
        messages = [{"role": "user", "content": _content(question)}]
        for failures in range(1, self.settings.retries + 2):
            if not self._pace.wait(stop):
                raise Cancelled("the run was stopped")
            try:
                return self._request(messages, attempt)
            except _Trouble as trouble:
                last = trouble
            with self._lock:
                self.trouble[last.kind] += 1
            if (last.wait or 0.0) > LONGEST_PAUSE:
                raise CaptionerAway(f"{self.name}: {last.kind}, and asks to wait {last.wait:.0f} s; go on later")
            if last.wait is not None:
                self._pace.pause(last.wait)
            if failures <= self.settings.retries and stop.wait(growing_wait(failures, self.settings.first_wait)):
                raise Cancelled("the run was stopped")
        raise CaptionerError(f"{self.name}: no answer to {failures} requests; of the last: {last.kind}")

    def _request(self, messages: list[dict[str, Any]], attempt: int) -> Reply:
        deadline = time.monotonic() + self.settings.timeout
        options: dict[str, Any] = {self._limit: self.settings.max_tokens}
        if self._varies:
            options["temperature"] = 0.0 if attempt == 1 else VARIED
        create = self._client.chat.completions.with_streaming_response.create
        try:
            with create(model=self.settings.model, messages=messages, **options) as response:
                data = _read(response, deadline)
            return Reply("", TOO_LARGE) if data is None else _reply(data)
        except self._openai.APITimeoutError as error:
            raise _Trouble("timeout") from error
        except self._openai.APIConnectionError as error:
            raise _Trouble(f"no connection to {self.settings.url}") from error
        except self._openai.APIStatusError as error:
            return self._refused(error, messages, attempt)

    def _refused(self, error: Any, messages: list[dict[str, Any]], attempt: int) -> Reply:
        """What a status of 400 and above means: try again, give up, or ask in the way that this model wants."""
        status = error.status_code
        if status in _TRIED_AGAIN:
            headers = {name.lower(): value for name, value in error.response.headers.items()}
            raise _Trouble(f"status {status}", asked_wait(headers)) from error
        if status == 400 and error.param == "max_tokens" and self._limit == "max_tokens":
            self._limit = "max_completion_tokens"  # newer models of OpenAI know the limit by this name only
            return self._request(messages, attempt)
        if status == 400 and error.param == "temperature" and self._varies:
            self._varies = False  # some reasoning models take no temperature
            return self._request(messages, attempt)
        said = clean_text(str(error.message))
        said = (said if self._key == NO_KEY else said.replace(self._key, "***"))[:_SHOWN]
        sentence = f"{self.name} at {self.settings.url} refuses (status {status}): {said}"
        raise (CaptionerAway if status in _ALL_THE_SAME else CaptionerError)(sentence) from error


def _key() -> str:
    key = os.environ.get(KEY, "").strip()
    if not key.isascii() or not key.isprintable():
        raise ValueError(f"the environment variable {KEY} holds letters that no key has; copy the key again")
    if not key:
        raise ValueError(f"set the environment variable {KEY} to the endpoint's key, or to `{NO_KEY}` if it wants none")
    return key


def _openai() -> Any:
    try:
        return importlib.import_module("openai")
    except ImportError as error:
        raise ValueError("captions from an endpoint need the package `openai`; pip install openai") from error


def _http(part: Any) -> Any:
    """The HTTP library that the client is made with; part: a class or function of it that tells where it is from."""
    return importlib.import_module(part.__module__.partition(".")[0])


def _content(question: Question) -> list[dict[str, Any]]:
    """The parts of a message: each picture after its name, then the text."""
    parts: list[dict[str, Any]] = []
    for number, picture in enumerate(question.pictures, start=1):
        parts.append({"type": "text", "text": f"Image-{number}:"})
        parts.append({"type": "image_url", "image_url": {"url": _data_url(picture)}})
    return [*parts, {"type": "text", "text": question.text}]


def _data_url(picture: Image.Image) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=JPEG_QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _read(response: Any, deadline: float) -> bytes | None:
    """An answer's bytes, None for more than LONGEST_ANSWER; _Trouble where they end early or go on past the deadline.

    The client does not translate what breaks here, so these are the errors of the HTTP library that it is made with.
    """
    http = _http(type(response.http_response))
    data = bytearray()
    try:
        for chunk in response.iter_bytes():
            data += chunk
            if len(data) > LONGEST_ANSWER:
                return None
            if time.monotonic() > deadline:
                raise _Trouble("timeout")
    except http.TimeoutException as error:
        raise _Trouble("timeout") from error
    except http.HTTPError as error:
        raise _Trouble("the connection broke off") from error
    return bytes(data)


def _reply(data: bytes) -> Reply:
    """The reply in an answer's bytes; _Trouble where they are no chat completion."""
    try:
        answer = json.loads(data)
        choice = answer["choices"][0]
        text, ending = choice["message"].get("content"), choice.get("finish_reason")
    except (ValueError, RecursionError) as error:
        raise _Trouble("an answer that is no json") from error
    except (LookupError, TypeError, AttributeError) as error:
        raise _Trouble("an answer without a choice") from error
    if ending == "content_filter" or choice["message"].get("refusal"):
        problem = "the service refused to describe the pictures"
    elif ending == "length":
        problem = "the reply was cut off at the limit of tokens"
    else:
        problem = "" if isinstance(text, str) else "the answer holds no text"
    usage = answer.get("usage")
    counted = [_count(usage, name) for name in ("prompt_tokens", "completion_tokens")]
    return Reply(text if isinstance(text, str) else "", problem, *counted)


def _count(usage: Any, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if type(value) is int and 0 <= value < 10**9 else None
