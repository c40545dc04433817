"""A tiny Hugging Face hub: the three routes that downloading needs, over files in memory, with faults to order."""

import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from huggingface_hub import constants, file_download
from huggingface_hub.utils import _http

REVISION = "0123456789abcdef0123456789abcdef01234567"


def new_session():
    """Forget the hub client's session: before version 1 it keeps the settings that it was made with."""
    (getattr(_http, "close_session", None) or _http.reset_sessions)()


def ask_instead(patch, url):
    """This process asks the server at `url` in place of the real hub, for files too."""
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    patch.setattr(constants, "ENDPOINT", url)
    patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    patch.setattr(file_download, "HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)  # before version 1
    patch.setattr(constants, "HF_HUB_OFFLINE", False)
    patch.delenv("HF_TOKEN", raising=False)
    patch.setenv("NO_PROXY", "*")
    new_session()


class Hub:
    """repositories: name -> {path: bytes}. Everything else is a fault or a record of what was asked."""

    def __init__(self):
        self.repositories = {}
        self.gated = set()
        self.wrong = {}  # path -> bytes that are sent in place of the listed ones
        self.stall_at = None  # (path, byte): nothing comes from there on
        self.cut_once = set()  # paths whose next answer breaks off half way
        self.asked = []  # (path, first byte) in the order asked

    def __enter__(self):
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def listing(self, repo):
        siblings = []
        for path, content in self.repositories[repo].items():
            file = {"rfilename": path, "size": len(content)}
            file["blobId"] = hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
            if not path.endswith((".json", "latest")):
                file["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
            siblings.append(file)
        return {"id": repo, "sha": REVISION, "tags": ["license:test-1.0"], "siblings": siblings}


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        words = unquote(urlsplit(self.path).path).strip("/").split("/")
        if words[:2] == ["api", "models"]:
            return self._about("/".join(words[2:4]), words[4:])
        repo, path = "/".join(words[:2]), "/".join(words[4:])
        assert words[2:4] == ["resolve", REVISION]
        if repo in self.hub.gated:
            return self._refuse()
        self._file(path, self.hub.wrong.get(path, self.hub.repositories[repo][path]))

    def _about(self, repo, rest):
        if repo not in self.hub.repositories:
            return self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        if rest == ["auth-check"] and repo in self.hub.gated:
            return self._refuse()
        self._send(200, b"{}" if rest else json.dumps(self.hub.listing(repo)).encode())

    def _refuse(self):
        self._send(403, b"{}", {"X-Error-Code": "GatedRepo", "X-Error-Message": "access is restricted"})

    def _file(self, path, content):
        first = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        self.hub.asked.append((path, first))
        body = content[first:]
        end = len(body)
        if path in self.hub.cut_once:
            self.hub.cut_once.remove(path)
            end //= 2
        stalled = self.hub.stall_at and self.hub.stall_at[0] == path
        if stalled:
            end = max(0, self.hub.stall_at[1] - first)
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(body)))
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        self.wfile.write(body[:end])
        self.wfile.flush()
        while stalled and self.hub.stall_at:
            time.sleep(0.05)
        self.close_connection = end < len(body)

    def _send(self, code, body, headers=None):
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
