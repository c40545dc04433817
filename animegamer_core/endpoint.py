"""Asks a vision model: the interface of all of them, and the one behind an OpenAI-compatible endpoint.

Captions, judge and written stories ask through here. Timeouts and retries are those of the `openai` client.
"""

from __future__ import annotations

import base64
import io
import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from .game.state import clean_text
from .messages import shortened

if TYPE_CHECKING:
    from PIL import Image

KEY, NO_KEY = "OPENAI_API_KEY", "none"
VARIED = 0.7  # temperature of every attempt after the first, which would otherwise repeat its reply
JPEG_QUALITY = 92
BAD_GATEWAY = 502  # status of an error that states none
_SAID = (None, "text", "output_text")  # types of those parts of a reply that are no thoughts
_SHOWN = 600  # characters of a service's own message that are shown
_FINAL = (301, 302, 303, 307, 308, 401, 402, 403, 404, 405)  # statuses that the next question would get too
_NEVER_OPTIONS = (401, 402, 403, 408, 429)  # statuses of errors that are about no option
_OPTIONS = ("max_tokens", "max_completion_tokens", "temperature")  # that some models refuse
_FAULTS = ("error", "abort", "network_error", "insufficient_system_resource")  # why a reply ended that is none
_PROBLEMS = {  # by the reason why a reply ended
    "content_filter": "the service refused to describe the pictures",
    "sensitive": "the service refused to describe the pictures",
    "length": "the reply was cut off at the token limit",
}


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
    """A prompt about pictures, which it calls Image-1, Image-2 and so on."""

    text: str
    pictures: tuple[Image.Image, ...] = ()


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

    name: kind and model; replies are stored under it.
    """

    name: str

    def answer(self, question: Question, attempt: int, stop: threading.Event) -> Reply:
        """The reply; attempt 1 is the model's most likely one, later ones vary. CaptionerError if there is none."""


@dataclass(frozen=True)
class EndpointSettings:
    """Where the model is, and how to ask it."""

    url: str
    """An OpenAI-compatible address, such as http://localhost:8000/v1; the key is read from OPENAI_API_KEY."""
    model: str
    """The model's name at the endpoint; for captioner transformers, its folder."""
    timeout: float = 120.0
    """Seconds without an answer before a request is tried again."""
    retries: int = 5
    """Retries after a failed request."""
    max_tokens: int = 2048
    """Tokens per reply."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise ValueError(
                "the endpoint's url must be http://HOST[:PORT]/v1 or https://..., without a password and without "
                f"?...; a key goes into the environment variable {KEY}"
            )


class EndpointModel:
    """Answers questions through the `openai` client. The key comes from the environment and nowhere else."""

    def __init__(self, settings: EndpointSettings) -> None:
        self.name = f"endpoint {settings.model}"
        self.settings = settings
        self._refused: set[str] = set()  # options that the model does not take; all threads leave them out
        self._key = _key()
        try:
            import openai
        except ImportError as error:
            raise ValueError("requests to an endpoint need the package `openai`; run `pip install openai`") from error
        self._openai = openai
        self._client = openai.OpenAI(
            api_key=self._key,
            base_url=settings.url,
            timeout=settings.timeout,
            max_retries=settings.retries,
            http_client=openai.DefaultHttpxClient(event_hooks={"response": [_state_error]}),
        )

    def answer(self, question: Question, attempt: int, stop: threading.Event) -> Reply:
        """The reply. CaptionerError: no answer after all retries; CaptionerUnavailable: no question gets one."""
        if stop.is_set():
            raise Cancelled("the run was stopped")
        return self._reply(self._ask(question, attempt))

    def _ask(self, question: Question, attempt: int) -> Any:
        """A chat completion; asks again without an option that the model refuses."""
        options = self._options(question, attempt)
        messages = [{"role": "user", "content": _content(question)}]
        while True:
            try:
                return self._client.chat.completions.create(model=self.settings.model, messages=messages, **options)
            except self._openai.APIStatusError as error:
                refused = _refused(error, options)
                if not refused:
                    raise self._refusal(error.status_code, _said(error.response)) from error
                self._refused.add(refused)
                options = self._options(question, attempt)
            except self._openai.APIConnectionError as error:  # a timeout too
                raise CaptionerError(f"{self.name}: no answer from {self.settings.url} ({shortened(error)})") from error
            except (self._openai.APIError, ValueError) as error:  # a body that is no chat completion
                raise CaptionerError(f"{self.name}: no chat completion ({type(error).__name__})") from error

    def _options(self, question: Question, attempt: int) -> dict[str, Any]:
        options: dict[str, Any] = {"temperature": 0.0 if attempt == 1 else VARIED}
        # Newer models of OpenAI take the second name only.
        limit = "max_completion_tokens" if "max_tokens" in self._refused else "max_tokens"
        options[limit] = self.settings.max_tokens
        return {name: value for name, value in options.items() if name not in self._refused}

    def _reply(self, answer: Any) -> Reply:
        """The reply in a chat completion; CaptionerError for an answer that is none, such as a page of HTML."""
        if not getattr(answer, "choices", None):
            raise CaptionerError(
                f"{self.name}: the answer of {self.settings.url} is not a chat completion; check the url, which "
                "usually ends in /v1"
            )
        message, usage = answer.choices[0].message, answer.usage
        # Some versions of vLLM take the reply of a model that does not think for its thoughts.
        texts = (message.content, *(getattr(message, name, None) for name in ("reasoning_content", "reasoning")))
        text = next(filter(None, map(_text_of, texts)), "")
        problem = _PROBLEMS.get(answer.choices[0].finish_reason, "" if text else "the answer has no text")
        if getattr(message, "refusal", None):
            problem = _PROBLEMS["content_filter"]
        return Reply(text, problem, getattr(usage, "prompt_tokens", None), getattr(usage, "completion_tokens", None))

    def _refusal(self, status: int, said: str) -> CaptionerError:
        kind = CaptionerUnavailable if status in _FINAL else CaptionerError
        shown = clean_text(said.replace(self._key, "***"))[:_SHOWN]  # one line, without the key
        return kind(f"{self.name} at {self.settings.url} refused the request (status {status}): {shown}")


def _said(response: Any) -> str:
    """The body of an answer; in JSON, letters that are not of ASCII as themselves."""
    try:
        return json.dumps(response.json(), ensure_ascii=False)
    except ValueError:
        return response.text


def _state_error(response: Any) -> None:
    """Give an answer that holds an error the status of that error, so that the client asks again where that may help.

    Some services send an error with status 200, in place of the completion or in one of its choices.
    """
    if response.status_code != 200:
        return
    try:
        body = _first(json.loads(response.read()))
        choices = body.get("choices")
    except (ValueError, AttributeError):
        return  # a page or a plain value, which is no completion
    choice = _mapping(_first(choices))
    message = _mapping(choice.get("message"))
    error = _first(body.get("error") or body.get("errors") or choice.get("error") or message.get("error"))
    if error or choice.get("finish_reason") in _FAULTS or not message:
        code = str((_mapping(error) or body).get("code"))
        response.status_code = int(code) if code.isdecimal() and 400 <= int(code) < 600 else BAD_GATEWAY


def _mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def _first(value: Any) -> Any:
    """The first of a list, such as Gemini's errors; other values as they are."""
    return value[0] if isinstance(value, list) and value else value


def _refused(error: Any, options: Mapping[str, Any]) -> str | None:
    """The option of a question that the service does not take, by an error's parameter or text; None if it is another
    error. Other threads may have found the same meanwhile, so it is looked for among what this question had."""
    if error.status_code in _NEVER_OPTIONS:
        return None
    text = error.response.text.lower().replace("_", "")  # some write maxTokens, or Temperature
    named = [name for name in _OPTIONS if name in options and name.replace("_", "") in text]
    return error.param if error.param in options else next(iter(named), None)


def _key() -> str:
    key = os.environ.get(KEY, "").strip()
    if not key or not key.isascii():
        raise ValueError(f"set the environment variable {KEY} to the endpoint's key, or to `{NO_KEY}` if it needs none")
    return key


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


def _text_of(content: Any) -> str:
    """A message's text, which some services send as a list of parts, thoughts among them."""
    parts = content if isinstance(content, list) else [content]
    said = [part for part in parts if not isinstance(part, Mapping) or part.get("type") in _SAID]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in said]
    return "".join(text for text in texts if isinstance(text, str)).strip()
