"""A tiny OpenAI-compatible chat endpoint with pictures, over a function from request to reply, with faults to order.

    with StubEndpoint(lambda ask: "hello", script=[Status(500), Slow(0.2)]) as stub:
        client = OpenAI(base_url=stub.url, api_key="none")

Each request takes the next behaviour of the script; once that is used up, `good` ones follow. Every request is kept
in `asks` as it came, whatever was made of it.
"""

from __future__ import annotations

import base64
import io
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Ask:
    """One request. texts and pictures in the order of the last message; at: seconds on the monotonic clock."""

    body: dict[str, Any]
    headers: dict[str, str]
    at: float

    @property
    def model(self) -> str:
        return self.body["model"]

    @property
    def _parts(self) -> list[dict[str, Any]]:
        content = self.body["messages"][-1]["content"]
        return [{"type": "text", "text": content}] if isinstance(content, str) else content

    @property
    def texts(self) -> list[str]:
        return [part["text"] for part in self._parts if part["type"] == "text"]

    @property
    def pictures(self) -> list[Any]:
        """Pillow pictures, decoded from their data URLs."""
        from PIL import Image

        urls = [part["image_url"]["url"] for part in self._parts if part["type"] == "image_url"]
        return [Image.open(io.BytesIO(base64.b64decode(url.split(",", 1)[1]))).convert("RGB") for url in urls]


@dataclass(frozen=True)
class Behaviour:
    """How one request is treated; this one answers as asked. Subclasses change one step of it."""

    def text(self, good: str) -> str | None:
        return good

    def completion(self, ask: Ask, good: str) -> Any:
        return completion(ask.model, self.text(good))

    def send(self, handler: _Handler, ask: Ask, good: str) -> None:
        handler.send_json(200, self.completion(ask, good))


@dataclass(frozen=True)
class Say(Behaviour):
    """Another text than the good one: prose around tags, a foreign script, something huge."""

    words: str | Callable[[str], str] | None

    def text(self, good: str) -> str | None:
        return self.words(good) if callable(self.words) else self.words


@dataclass(frozen=True)
class Slow(Behaviour):
    """The good answer, some seconds late."""

    seconds: float

    def send(self, handler: _Handler, ask: Ask, good: str) -> None:
        handler.stub.gone.wait(self.seconds)
        super().send(handler, ask, good)


@dataclass(frozen=True)
class CutOff(Behaviour):
    """The first half of the text, ended by the limit of tokens."""

    def completion(self, ask: Ask, good: str) -> Any:
        return completion(ask.model, good[: len(good) // 2], finish="length")


@dataclass(frozen=True)
class CutBody(Behaviour):
    """Half of the answer's bytes, then the connection is closed."""

    def send(self, handler: _Handler, ask: Ask, good: str) -> None:
        body = json.dumps(self.completion(ask, good)).encode()
        handler.head(200, len(body))
        handler.wfile.write(body[: len(body) // 2])
        handler.close_connection = True


@dataclass(frozen=True)
class Reset(Behaviour):
    """No answer: the connection is reset."""

    def send(self, handler: _Handler, ask: Ask, good: str) -> None:
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()
        handler.close_connection = True


@dataclass(frozen=True)
class Status(Behaviour):
    """A refusal: 429 with Retry-After, 500, 400 that names a parameter ... A header may be made when it is sent."""

    code: int
    headers: dict[str, str | Callable[[], str]] = field(default_factory=dict)
    message: str = "no"
    param: str | None = None

    def send(self, handler: _Handler, ask: Ask, good: str) -> None:
        error = {"message": self.message, "type": "stub", "param": self.param, "code": None}
        headers = {name: value() if callable(value) else value for name, value in self.headers.items()}
        handler.send_json(self.code, {"error": error}, headers)


@dataclass(frozen=True)
class Body(Behaviour):
    """A status of 200 with some other body: empty choices, no json, a web page, a huge one."""

    content: Any

    def send(self, handler: _Handler, ask: Ask, good: str) -> None:
        raw = self.content if isinstance(self.content, bytes) else json.dumps(self.content).encode()
        handler.head(200, len(raw))
        handler.wfile.write(raw)


@dataclass(frozen=True)
class Changed(Behaviour):
    """The good answer with some of its top-level or choice's fields changed: no usage, another finish_reason ..."""

    answer: dict[str, Any] = field(default_factory=dict)
    choice: dict[str, Any] = field(default_factory=dict)

    def completion(self, ask: Ask, good: str) -> Any:
        whole = completion(ask.model, good) | self.answer
        for choice in whole["choices"]:
            choice.update(self.choice)
        return whole


GOOD = Behaviour()
FOREIGN = Say("<S>\u5c11\u5973</S><MD>\u8d70</MD><EV>\u591c</EV><MA>\u5feb</MA><SC>0</SC><ET>0</ET><ST>-1</ST>")


def completion(model: str, text: str | None, finish: str = "stop") -> dict[str, Any]:
    """A chat completion as services send it. Tokens are counted as 100 in and a word out each."""
    words = len((text or "").split())
    return {
        "id": "stub-1",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": words, "total_tokens": 100 + words},
    }


class StubEndpoint:
    """The server; `url` is what a client takes as its base. It runs in threads of this process."""

    def __init__(self, good: Callable[[Ask], str], script: Sequence[Behaviour] = ()) -> None:
        self.good, self.script = good, list(script)
        self.asks: list[Ask] = []
        self.gone = threading.Event()  # ends everything slow
        self._lock = threading.Lock()

    def __enter__(self) -> StubEndpoint:
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"stub": self}))
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        return self

    def __exit__(self, *_: object) -> None:
        self.gone.set()
        self._server.shutdown()
        self._server.server_close()

    def take(self, ask: Ask) -> Behaviour:
        """Keep a request and choose its behaviour."""
        with self._lock:
            self.asks.append(ask)
            return self.script.pop(0) if self.script else GOOD


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        pass  # a client that goes away is what some tests are about


class _Handler(BaseHTTPRequestHandler):
    stub: StubEndpoint
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        ask = Ask(body, {name.lower(): value for name, value in self.headers.items()}, time.monotonic())
        behaviour = self.stub.take(ask)
        if self.path != "/v1/chat/completions":
            behaviour = Status(404, message=f"no route {self.path}")
        behaviour.send(self, ask, "" if type(behaviour) is Status else self.stub.good(ask))

    def send_json(self, code: int, value: Any, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self.head(code, len(body), headers)
        self.wfile.write(body)

    def head(self, code: int, length: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {"Content-Type": "application/json", "Content-Length": length, **(headers or {})}.items():
            self.send_header(name, str(value))
        self.end_headers()
