"""A server of bare sockets, for what no HTTP library would send."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

Behaviour = Callable[[socket.socket, threading.Event], None]  # (connection, set when the server ends)
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


class RawServer:
    """Treats every connection alike, once the request's headers have come; `asked` holds their first lines."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour, self._end = behaviour, threading.Event()
        self.asked: list[str] = []

    def __enter__(self) -> RawServer:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while not self._end.is_set():
                connection, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            self.asked.append(connection.recv(1 << 16).partition(b"\r\n")[0].decode())
            self._behaviour(connection, self._end)


def silent(_: socket.socket, end: threading.Event) -> None:
    """Accepts, and says nothing."""
    end.wait(60)


def repeat(head: bytes, piece: bytes, pause: float = 0.0, times: int = 1 << 30) -> Behaviour:
    """Sends `head`, then `piece` again and again, `pause` seconds apart."""

    def send(connection: socket.socket, end: threading.Event) -> None:
        connection.sendall(head)
        for _ in range(times):
            if end.wait(pause) if pause else end.is_set():
                return
            connection.sendall(piece)

    return send


def bomb(status: bytes, megabytes: int) -> Behaviour:
    """A gzip body that unpacks to so many MB of zeros."""
    body = gzip.compress(bytes(megabytes << 20), 9)
    head = status + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    return repeat(head + body, b"", times=0)


OK, ERROR, BAD, MOVED = (
    b"HTTP/1.1 %s\r\n" % words
    for words in (b"200 OK", b"503 Busy", b"400 Bad Request", b"307 Moved\r\nLocation: /elsewhere")
)
BLOCK = b"10000\r\n" + b"x" * (1 << 16) + b"\r\n"
UNENDING: dict[str, Behaviour] = {
    "nothing": silent,
    "a status line letter by letter": repeat(b"HTTP/1.1 200 ", b"O", 0.05),
    "headers without end": repeat(OK, b"X-More: y\r\n", 0.05),
    "headers without end at full speed": repeat(OK, b"X-More: yyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n"),
    "'100 Continue' without end": repeat(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.001),
    "a body letter by letter": repeat(OK + b"Content-Length: 100000\r\n\r\n", b" ", 0.05),
    "a body without end": repeat(OK + CHUNKED, BLOCK),
    "an error's body letter by letter": repeat(ERROR + b"Content-Length: 100000\r\n\r\n", b" ", 0.05),
    "an error's body without end": repeat(ERROR + CHUNKED, BLOCK),
    "a refusal's body letter by letter": repeat(BAD + b"Content-Length: 100000\r\n\r\n", b" ", 0.05),
    "a refusal's body without end": repeat(BAD + CHUNKED, BLOCK),
    "a redirect's body without end": repeat(MOVED + CHUNKED, BLOCK),
    "a compressed body": bomb(OK, 256),
    "an error's compressed body": bomb(ERROR, 256),
    "a refusal's compressed body": bomb(BAD, 256),
}
