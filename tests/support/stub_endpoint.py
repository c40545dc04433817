"""A tiny OpenAI-compatible chat endpoint with pictures, over a function from request to text, with faults to order.

    with StubEndpoint(lambda ask: "hello") as stub:
        stub.script[:] = [refusal(500), GOOD]
        client = OpenAI(base_url=stub.url, api_key="none")

Each request takes the next answer of the script; once that is used up, good ones follow. `asks` keeps every request.
"""

from __future__ import annotations

import base64
import io
import json
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from PIL import Image


@dataclass(frozen=True)
class Ask:
    """One request. texts and pictures (Pillow's) in the order of the last message."""

    body: dict[str, Any]
    headers: dict[str, str]

    @property
    def _parts(self) -> list[dict[str, Any]]:
        content = self.body["messages"][-1]["content"]
        return [{"type": "text", "text": content}] if isinstance(content, str) else content

    @property
    def texts(self) -> list[str]:
        return [part["text"] for part in self._parts if part["type"] == "text"]

    @property
    def pictures(self) -> list[Image.Image]:
        urls = [part["image_url"]["url"] for part in self._parts if part["type"] == "image_url"]
        return [Image.open(io.BytesIO(base64.b64decode(url.split(",", 1)[1]))).convert("RGB") for url in urls]


@dataclass(frozen=True)
class Answer:
    """How one request is answered.

    content: in place of the good text, or made of it. cut_off: only the first half of it, ended by the limit of tokens.
    body: JSON in place of a completion. sent: the fraction of the bytes that is sent before the connection ends; 0: it
    is reset.
    """

    content: Any = None
    cut_off: bool = False
    body: Any = None
    code: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    sent: float = 1.0


GOOD, CUT_OFF, CUT_BODY, RESET = Answer(), Answer(cut_off=True), Answer(sent=0.5), Answer(sent=0)
FOREIGN = Answer("<S>\u5c11\u5973</S><MD>\u8d70</MD><EV>\u591c</EV><MA>\u5feb</MA><SC>0</SC><ET>0</ET><ST>-1</ST>")


def refusal(code: int, message: str = "no", **headers: str) -> Answer:
    """A status in place of an answer: 429, 500, 400 that names a parameter ..."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(body={"error": {"message": message, "type": "stub", "code": None}}, code=code, headers=named)


def completion(model: str, content: Any, finish: str) -> dict[str, Any]:
    """A chat completion as services send it. Tokens are counted as 100 in and a word out each."""
    words = len(content.split()) if isinstance(content, str) else 0
    return {
        "id": "stub-1",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": words, "total_tokens": 100 + words},
    }


class StubEndpoint:
    """The server; `url` is what a client takes as its base. It runs in threads of this process."""

    def __init__(self, good: Callable[[Ask], str]) -> None:
        self.good, self.script = good, list[Answer]()
        self.asks: list[Ask] = []
        self._lock = threading.Lock()

    def __enter__(self) -> StubEndpoint:
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"stub": self}))
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, ask: Ask) -> Answer:
        """Keep a request and choose its answer."""
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
        assert self.path == "/v1/chat/completions"
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        ask = Ask(sent, {name.lower(): value for name, value in self.headers.items()})
        answer = self.stub.take(ask)
        if not answer.sent:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True
            return
        value = answer.body
        if value is None:
            good, content = self.stub.good(ask), answer.content
            content = good if content is None else content(good) if callable(content) else content
            content, finish = (content[: len(content) // 2], "length") if answer.cut_off else (content, "stop")
            value = completion(sent["model"], content, finish)
        body = json.dumps(value).encode()
        self.send_response(answer.code)
        about = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        for name, text in (about | answer.headers).items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body[: int(len(body) * answer.sent)])
        self.close_connection = self.close_connection or answer.sent < 1
