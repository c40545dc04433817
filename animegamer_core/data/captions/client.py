"""A vision model behind an OpenAI-compatible endpoint: vLLM, llama.cpp, LM Studio, or a paid service.

The `openai` client retries failed requests, with growing waits or as long as Retry-After says (up to two minutes).
Every request of its passes `EndpointModel._send`, which adds what it lacks: a rate limit over all threads, a deadline
for the whole answer, a limit on its size, retries of broken bodies, and a count of failures.
"""

from __future__ import annotations

import base64
import importlib
import io
import json
import os
import re
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec

from ...json_files import JsonError, to_type
from ...messages import brief, quoted
from ...network import PLAIN, limited, within
from ...state import clean_text
from .vision_model import VARIED, Cancelled, CaptionerError, CaptionerUnavailable, Question, Reply

KEY = "OPENAI_API_KEY"
NO_KEY = "none"
MOST_LATE = 24
SHORTEST_SECRET, LONGEST_NAME = 8, 300  # letters
SECRET_PIECE = 12  # letters of a key; shorter pieces may be words, such as its prefix
LONGEST_ANSWER = 2**20  # bytes of one answer, everything included
JPEG_QUALITY = 92
LARGEST_SEED = 2**31 - 1  # what every service takes
_BAD_URL = (
    "the endpoint's url must be http://HOST[:PORT]/v1 or https://..., without a password and without ?...; a key goes "
    f"into the environment variable {KEY}"
)
_SHOWN = 200  # characters of a service's own message that are shown
_FINAL = (301, 302, 303, 307, 308, 401, 402, 403, 404, 405)  # statuses that the next question would get too


@dataclass(frozen=True)
class EndpointSettings:
    """Where the model is, and how to ask it.

    url: the endpoint's address up to /v1. timeout: seconds for one whole answer. per_minute: most requests a minute,
    retries included; None for no limit. retries: requests after one that failed. max_tokens: of one reply.
    """

    url: str
    model: str
    timeout: float = 120.0
    per_minute: float | None = None
    retries: int = 5
    max_tokens: int = 256

    def __post_init__(self) -> None:
        if not _is_address(self.url):
            raise ValueError(_BAD_URL)
        if not self.model.strip():
            raise ValueError("no model name for the endpoint; give one that the service lists at /v1/models")
        if not self.model.isprintable() or len(self.model) > LONGEST_NAME:  # it is sent, shown and kept in stories
            raise ValueError(
                f"the endpoint's model is named {quoted(self.model)}; expected at most {LONGEST_NAME} printable "
                "characters, as the service lists the name at /v1/models"
            )
        if not self.timeout > 0 or self.retries < 0 or self.max_tokens < 1:
            raise ValueError(
                f"timeout {self.timeout}, retries {self.retries}, max_tokens {self.max_tokens}; expected a timeout "
                "above 0, 0 or more retries, 1 or more tokens"
            )


def _is_address(url: str) -> bool:
    """Whether a url has a host, a usable port if any, and neither a password nor a query, which messages would show."""
    try:
        parts = urlsplit(url)
        found = url.isprintable() and parts.hostname and parts.hostname.encode("idna") and parts.port != 0
    except ValueError:  # a port that is not a number, a host that cannot be a name
        return False
    hidden = parts.username or parts.password or parts.query or parts.fragment
    return bool(found) and parts.scheme in ("http", "https") and not hidden


class RateLimiter:
    """Spaces the requests of all threads evenly. per_minute None: no limit."""

    def __init__(self, per_minute: float | None = None) -> None:
        if per_minute is not None and not 0 < per_minute <= 1e6:
            raise ValueError(f"per_minute is {per_minute}; expected a number of requests above 0")
        self._interval = 60.0 / per_minute if per_minute else 0.0
        self._next = 0.0
        self._lock = threading.Lock()

    def wait(self, stop: threading.Event) -> bool:
        """Wait for this thread's turn; False if `stop` is set."""
        with self._lock:
            now = time.monotonic()
            turn = max(now, self._next)
            self._next = turn + self._interval
        return not stop.wait(turn - now)


class _Asking(threading.local):
    """What a thread is asking: the event that stops it, the requests so far, and how the last one failed."""

    stop = threading.Event()
    requests = 0
    failure = ""


class EndpointModel:
    """Answers questions through the `openai` client. The key comes from the environment and nowhere else."""

    def __init__(self, settings: EndpointSettings) -> None:
        self.name = f"endpoint {settings.model}"
        self.settings = settings
        self.trouble: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._limiter = RateLimiter(settings.per_minute)
        self._asking = _Asking()
        self._late = 0  # answers in a row that did not come in time; each may keep a thread waiting
        self._key = _key()
        self._openai = _openai()
        # The HTTP library that the client is made with: httpx, or httpx2 from openai 3 on.
        self._http = importlib.import_module(self._openai.Timeout.__init__.__module__.partition(".")[0])
        model = self

        class HttpClient(self._openai.DefaultHttpxClient):
            def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
                return model._send(super().send, request, options)

        try:
            self._client = self._openai.OpenAI(
                api_key=self._key,
                base_url=settings.url,
                timeout=settings.timeout,
                max_retries=settings.retries,
                http_client=HttpClient(timeout=settings.timeout),
            )
        except self._http.InvalidURL as error:  # its rules for hosts are newer than Python's
            raise ValueError(_BAD_URL) from error
        self._limit, self._varies, self._seeds = "max_tokens", True, True

    def answer(self, question: Question, attempt: int, stop: threading.Event) -> Reply:
        """The reply. CaptionerError: no answer after all retries; CaptionerUnavailable: no question gets one."""
        asking, openai = self._asking, self._openai
        asking.stop, asking.requests = stop, 0
        options: dict[str, Any] = {self._limit: self.settings.max_tokens}
        if self._varies:
            options["temperature"] = 0.0 if attempt == 1 else VARIED
        if question.seed is not None and self._seeds:
            options["seed"] = (question.seed + attempt) % LARGEST_SEED
        messages = [{"role": "user", "content": _content(question)}]
        create = self._client.chat.completions.with_raw_response.create
        try:
            data = create(model=self.settings.model, messages=messages, **options).content
        except openai.APIStatusError as error:
            if not _is_retried(error.status_code):
                if self._adapts_to(error):
                    return self.answer(question, attempt, stop)
                raise self._refusal(error) from error
            if asking.requests <= self.settings.retries:  # the client gives up when it would wait for too long
                wait = error.response.headers.get("retry-after", "long")[:_SHOWN]
                raise CaptionerUnavailable(
                    f"{self.name}: {asking.failure}; the service asks to wait {wait} s, so try again later"
                ) from error
            raise self._no_answer() from error
        except openai.APIConnectionError as error:  # a timeout too
            if stop.is_set():
                raise Cancelled("the run was stopped") from error
            if self._late >= MOST_LATE:
                raise CaptionerUnavailable(f"{self.name}: {self._late} answers in a row arrived too late") from error
            raise self._no_answer() from error
        if len(data) > LONGEST_ANSWER:
            return Reply("", f"the answer is larger than {LONGEST_ANSWER} bytes")
        reply = _reply(_completion(data))
        return replace(reply, text=self._masked(reply.text))

    def _send(self, send: Callable[..., Any], request: Any, options: dict[str, Any]) -> Any:
        """Send one request and read its answer; errors of the HTTP library make the client try again."""
        if not self._limiter.wait(self._asking.stop):
            raise Cancelled("the run was stopped")
        self._asking.requests += 1
        begun, seconds = time.monotonic(), self.settings.timeout
        failure = f"no connection to {self.settings.url}"
        request.headers.update(PLAIN)
        options["follow_redirects"] = False  # the library would read a redirect's whole body
        try:
            response = within(seconds, lambda: send(request, stream=True, **options))
            failure = "the connection broke off"
            with closing(response):
                seconds -= time.monotonic() - begun
                data = b"".join(limited(response.iter_raw(), LONGEST_ANSWER + 1, seconds))
            failure = "the answer cannot be unpacked"
            data = _unpacked(data, response.headers.get("content-encoding", ""))
            if data is None:
                raise self._http.ReadError(failure, request=request)
            self._late = 0
            if response.is_success and len(data) <= LONGEST_ANSWER:
                failure = "the answer is not a chat completion"
                _completion(data)
        except JsonError as error:
            self._count(failure)
            raise self._http.ReadError(failure, request=request) from error
        except TimeoutError as error:
            self._count("timeout")
            self._late += 1
            raise self._http.ReadTimeout("the answer took too long", request=request) from error
        except self._http.HTTPError as error:
            self._count("timeout" if isinstance(error, self._http.TimeoutException) else failure)
            raise
        if _is_retried(response.status_code):
            self._count(f"status {response.status_code}")
        # as bytes: text may contain letters that ASCII cannot encode
        headers = [item for item in response.headers.raw if item[0].decode("latin-1").lower() not in _BODY_HEADERS]
        return type(response)(response.status_code, headers=headers, content=data, request=request)

    def _count(self, failure: str) -> None:
        self._asking.failure = failure
        with self._lock:
            self.trouble[failure] += 1

    def _no_answer(self) -> CaptionerError:
        return CaptionerError(
            f"{self.name}: no answer to {self._asking.requests} requests; the last failed with: {self._asking.failure}"
        )

    def _adapts_to(self, error: Any) -> bool:
        """Whether the model refuses an option that can be renamed or omitted; also changes later questions."""
        if error.status_code == 400 and error.param == "max_tokens" and self._limit == "max_tokens":
            self._limit = "max_completion_tokens"  # newer models of OpenAI accept this name only
            return True
        if error.status_code == 400 and error.param == "temperature" and self._varies:
            self._varies = False  # some reasoning models take no temperature
            return True
        if error.status_code == 400 and error.param == "seed" and self._seeds:
            self._seeds = False
            return True
        return False

    def _masked(self, text: str) -> str:
        """The text without the key, which some services send back whole or in part; a short one could be any word."""
        return without_secret(text, self._key) if len(self._key) >= SHORTEST_SECRET else text

    def _refusal(self, error: Any) -> CaptionerError:
        message = self._masked(clean_text(str(error.message)))[:_SHOWN]
        if target := error.response.headers.get("location"):
            message = f"it redirects to {brief(self._masked(target), 100)}; use that address"
        kind = CaptionerUnavailable if error.status_code in _FINAL else CaptionerError
        return kind(f"{self.name} at {self.settings.url} refused the request (status {error.status_code}): {message}")


def without_secret(text: str, secret: str) -> str:
    """The text with *** in place of the secret, and of every piece of it of SECRET_PIECE letters or more."""
    size = min(len(secret), SECRET_PIECE)
    pieces = {secret[at : at + size] for at in range(len(secret) - size + 1)}
    hidden = sorted({hit.start() for piece in pieces for hit in re.finditer(f"(?={re.escape(piece)})", text)})
    kept, end = [], 0
    for start in hidden:
        if start > end or not kept:
            kept += [text[end:start], "***"]
        end = start + size
    return "".join([*kept, text[end:]])


def _unpacked(data: bytes, coding: str) -> bytes | None:
    """A body without its compression, up to one byte more than LONGEST_ANSWER; None if it has another one than gzip."""
    if coding.strip().lower() in ("", "identity"):
        return data
    if coding.strip().lower() not in ("gzip", "deflate"):
        return None
    try:
        return zlib.decompressobj(wbits=47).decompress(data, LONGEST_ANSWER + 1)
    except zlib.error:
        return None


# They describe the body as it was sent; ours is decoded.
_BODY_HEADERS = ("content-encoding", "content-length", "transfer-encoding")


def _is_retried(status: int) -> bool:
    """Whether the `openai` client sends a request again after this status."""
    return status in (408, 409, 429) or status >= 500


def _key() -> str:
    key = os.environ.get(KEY, "").strip()
    if not key.isascii() or not key.isprintable():
        raise ValueError(f"the environment variable {KEY} has invalid characters for a key; copy the key again")
    if not key:
        raise ValueError(f"set the environment variable {KEY} to the endpoint's key, or to `{NO_KEY}` if it needs none")
    return key


def _openai() -> Any:
    try:
        return importlib.import_module("openai")
    except ImportError as error:
        raise ValueError("requests to an endpoint need the package `openai`; run `pip install openai`") from error


def _content(question: Question) -> list[dict[str, Any]]:
    """The parts of a message: each picture after its name, then the text."""
    parts: list[dict[str, Any]] = []
    for number, picture in enumerate(question.pictures, start=1):
        buffer = io.BytesIO()
        picture.save(buffer, format="JPEG", quality=JPEG_QUALITY)
        url = "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
        parts.append({"type": "text", "text": f"Image-{number}:"})
        parts.append({"type": "image_url", "image_url": {"url": url}})
    return [*parts, {"type": "text", "text": question.text}]


class _Message(msgspec.Struct):
    content: Any = None
    refusal: Any = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: Any = None


class _Completion(msgspec.Struct):
    """What is read of a chat completion."""

    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    usage: Any = None


def _completion(data: bytes) -> _Completion:
    """The chat completion in an answer; JsonError for anything else. Half characters, which models send, are taken."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise JsonError("the answer is not JSON") from error
    return to_type(values, _Completion, "the answer")


def _reply(answer: _Completion) -> Reply:
    """The reply in a chat completion."""
    choice = answer.choices[0]
    text = choice.message.content
    if choice.finish_reason == "content_filter" or choice.message.refusal:
        problem = "the service refused to describe the pictures"
    elif choice.finish_reason == "length":
        problem = "the reply was cut off at the token limit"
    else:
        problem = "" if isinstance(text, str) else "the answer has no text"
    counts = [_token_count(answer.usage, name) for name in ("prompt_tokens", "completion_tokens")]
    return Reply(text if isinstance(text, str) else "", problem, *counts)


def _token_count(usage: Any, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if type(value) is int and 0 <= value < 10**9 else None
