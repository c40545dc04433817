"""Servers that are silent, slow or without end are given up in time, and take no memory."""

import json
import os
import random
import subprocess
import sys
import threading
import time
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from hostile import http_answer
from hub_server import ask_instead, new_session
from raw_server import UNENDING, RawServer, repeat
from stub_endpoint import StubEndpoint

from animegamer_core import network
from animegamer_core.checkpoint import hub
from animegamer_core.checkpoint.storage import CheckpointError
from animegamer_core.data.captions.client import EndpointModel, EndpointSettings
from animegamer_core.data.captions.vision_model import CaptionerError, Question
from animegamer_core.network import limited, within

SECONDS, MEMORY = 20.0, 200 << 20  # of a whole test; a single wait is far shorter


@pytest.fixture
def unending(request, monkeypatch):
    """A server; what came of it has to take little time and memory."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    begun, before = time.monotonic(), psutil.Process().memory_info().rss
    with RawServer(UNENDING[request.param]) as server:
        yield server
        assert psutil.Process().memory_info().rss - before < MEMORY
    assert time.monotonic() - begun < SECONDS


@pytest.mark.parametrize("unending", UNENDING, indirect=True)
def test_an_endpoint_is_given_up(unending, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    model = EndpointModel(EndpointSettings(f"{unending.url}/v1", "m", timeout=0.5, retries=1))
    try:
        reply = model.answer(Question("?"), 1, threading.Event())
    except CaptionerError as error:
        assert str(error).isprintable() and len(str(error)) < 400
    else:
        assert reply.problem.startswith("the answer is larger than") and not reply.text


SHORT = {"SILENCE": 0.5, "WAIT": 0.01, "TRIES": 2}


@pytest.fixture
def hurried(unending, monkeypatch):
    """The unending server as the hub, with short limits."""
    ask_instead(monkeypatch, unending.url)
    for name, value in SHORT.items():
        monkeypatch.setattr(hub, name, value)
    yield unending
    new_session()


@pytest.mark.parametrize("unending", UNENDING, indirect=True)
def test_a_hub_is_given_up(hurried):
    unending = hurried
    said = r"no answer \(|the hub answered [45]|the answer has more than|not JSON|the answer is compressed|a redirect"
    with pytest.raises(CheckpointError, match=said) as caught:
        hub.list_repository("some/repository")
    assert unending.url in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("unending", "said"),
    {
        "nothing": r"no answer \(\w*Timeout\w*\) after 0 of",
        "a body letter by letter": r"no answer \(TimeoutError\) after \d+ of",
        "a body without end": "does not match the hub's list",
    }.items(),
    indirect=["unending"],
)
def test_a_download_is_given_up_or_cut_at_its_size(hurried, said, tmp_path):
    file = hub.HubFile("some/repository", "main", "file", tmp_path / "file", 1 << 20, "0" * 64)
    with pytest.raises(CheckpointError, match=said):
        hub.download(file, lambda *_: None)
    assert hurried.asked and set(hurried.asked) == {"GET /some/repository/resolve/main/file HTTP/1.1"}
    assert not file.local.exists()


@pytest.mark.parametrize(
    "target",
    ["//[", "http://[::1", "http://a:b/", "http://127.0.0.1:0/", "file:///etc/passwd", "http://\xff/"],
)
def test_a_redirect_that_leads_nowhere_is_no_answer(target, tmp_path, monkeypatch):
    for name, value in SHORT.items():
        monkeypatch.setattr(hub, name, value)
    file = hub.HubFile("some/repository", "main", "file", tmp_path / "file", 100, "0" * 64)
    answer = b"HTTP/1.1 302 Found\r\nLocation: " + target.encode("latin-1") + b"\r\nContent-Length: 0\r\n\r\n"
    with RawServer(lambda connection, _: connection.sendall(answer)) as server:
        ask_instead(monkeypatch, server.url)
        for ask in (lambda: hub.list_repository("some/repository"), lambda: hub.download(file, lambda *_: None)):
            server.asked.clear()
            with pytest.raises(CheckpointError, match="no answer"):
                ask()
            assert len(server.asked) == SHORT["TRIES"]
    new_session()


def test_a_mirror_that_ignores_ranges_sends_the_whole_file_and_no_more(tmp_path, monkeypatch):
    """It answers the request for the rest with the file from its start, and then with bytes without end."""
    content = random.Random(1).randbytes(16 << 20)
    file = hub.HubFile("some/repository", "main", "f", tmp_path / "f", len(content), sha256(content).hexdigest())
    whole = repeat(b"HTTP/1.1 200 OK\r\n\r\n" + content, b"x" * (1 << 16))
    counted = []

    def first_a_part(connection, end):
        if len(server.asked) == 1:
            connection.sendall(b"HTTP/1.1 206 Part\r\nContent-Length: 8388608\r\n\r\n" + content[: 3 << 20])
        else:
            whole(connection, end)

    before = psutil.Process().memory_info().rss
    with RawServer(first_a_part) as server:
        ask_instead(monkeypatch, server.url)
        monkeypatch.setattr(hub, "WAIT", 0.01)
        hub.download(file, lambda size, _: counted.append(size))
    assert file.local.read_bytes() == content and len(server.asked) == 2
    assert sum(counted) == len(content), "what was there is not counted again"
    assert psutil.Process().memory_info().rss - before < MEMORY
    new_session()


@pytest.mark.parametrize("falls_silent", ["each request", "every second request"])
def test_a_download_below_the_promised_rate_is_given_up(falls_silent, tmp_path, monkeypatch):
    for name, value in {"SILENCE": 0.3, "WAIT": 0.01, "TRIES": 3}.items():
        monkeypatch.setattr(hub, name, value)
    begun, little = time.monotonic(), b"x" * 100_000
    file = hub.HubFile("some/repository", "main", "file", tmp_path / "file", 1 << 30, "0" * 64)

    def send_a_little(connection, end):
        connection.sendall(b"HTTP/1.1 206 Part\r\nContent-Length: 8388608\r\n\r\n" + little)
        if falls_silent == "each request" or len(server.asked) % 2:
            end.wait(60)

    def stop(*_):
        assert time.monotonic() - begun < SECONDS, "it never ends"

    with RawServer(send_a_little) as server:
        ask_instead(monkeypatch, server.url)
        with pytest.raises(CheckpointError, match=rf"no answer .* after [1-9]\d* of {1 << 30} bytes"):
            hub.download(file, stop)
    assert file.part.stat().st_size >= 3 << 16, "what has arrived is kept"
    new_session()


def test_two_silences_before_each_block_lose_no_download(tmp_path, monkeypatch):
    for name, value in {"SILENCE": 1.0, "WAIT": 0.01, "TRIES": 3}.items():
        monkeypatch.setattr(hub, name, value)
    size = 24 << 20
    file = hub.HubFile("some/repository", "main", "f", tmp_path / "f", size, sha256(b"x" * size).hexdigest())

    def recover(connection, end):
        if len(server.asked) % 3:
            end.wait(60)
        connection.sendall(b"HTTP/1.1 206 Part\r\nContent-Length: 8388608\r\n\r\n" + b"x" * (8 << 20))

    with RawServer(recover) as server:
        ask_instead(monkeypatch, server.url)
        hub.download(file, lambda *_: None)
    assert file.local.stat().st_size == size and len(server.asked) > 3
    new_session()


@pytest.mark.parametrize("behaviour", ["nothing", "a body letter by letter"])
def test_a_fresh_process_asks_the_hub_nothing_else_first(behaviour, tmp_path):
    limits = "; ".join(f"hub.{name} = {value}" for name, value in SHORT.items())
    code = f"from animegamer_core.checkpoint import hub; {limits}; hub.list_repository('some/repository')"
    with RawServer(UNENDING[behaviour]) as server:
        outside = {"HF_ENDPOINT": server.url, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path), "HF_TOKEN": ""}
        outside |= {"NO_PROXY": "*", "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **outside}, capture_output=True, text=True, timeout=60
        )
    assert "CheckpointError" in done.stderr and "no answer (" in done.stderr
    assert set(server.asked) == {"GET /api/models/some/repository?blobs=true HTTP/1.1"}


LISTING = {"sha": "0" * 40, "tags": ["license:mit"], "siblings": [{"rfilename": "a", "size": 3, "blobId": "0" * 40}]}
CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "<S>Miko</S>"}}
COMPLETION = {"choices": [CHOICE], "usage": {"prompt_tokens": 3}, "id": "1", "created": 1, "model": "m", "object": "x"}


def ask_every_way(server, file):
    """Ask a server as a hub, for a file, and as an endpoint; each gives an answer or refuses in a sentence."""
    model = EndpointModel(EndpointSettings(f"{server.url}/v1", "m", timeout=0.3, retries=0))
    for ask in (
        lambda: hub.list_repository("some/repository"),
        lambda: hub.download(file, lambda *_: None),
        lambda: model.answer(Question("?"), 1, threading.Event()),
    ):
        server.asked.clear()
        try:
            ask()
        except (CheckpointError, CaptionerError) as error:
            assert str(error).isprintable() and 0 < len(str(error)) < 1000, repr(str(error)[:500])
        assert server.asked, "the question has to reach the server"
        assert not file.local.exists(), "nothing has the right checksum"


def answer_oddly(monkeypatch, tmp_path, seeds):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    for name, value in {"SILENCE": 0.2, "WAIT": 0.001, "TRIES": 2, "LONGEST_PAUSE": 0.001}.items():
        monkeypatch.setattr(hub, name, value)
    file = hub.HubFile("some/repository", "main", "file", tmp_path / "file", 100, "0" * 64)
    for seed in seeds:
        rng, begun, before = random.Random(seed), time.monotonic(), psutil.Process().memory_info().rss
        answers = [http_answer(json.dumps(rng.choice((LISTING, COMPLETION))).encode(), rng) for _ in range(3)]
        with RawServer(lambda connection, _: connection.sendall(rng.choice(answers))) as server:  # noqa: B023
            ask_instead(monkeypatch, server.url)
            try:
                ask_every_way(server, file)
            except Exception as error:
                raise AssertionError(f"seed {seed}: {type(error).__name__}: {answers}") from error
        assert time.monotonic() - begun < SECONDS, f"seed {seed}: {answers}"
        assert psutil.Process().memory_info().rss - before < MEMORY, f"seed {seed}: {answers}"


def test_answers_that_no_honest_server_sends_are_refused_in_a_sentence(monkeypatch, tmp_path):
    answer_oddly(monkeypatch, tmp_path, range(8))


@pytest.mark.soak
def test_many_answers_that_no_honest_server_sends(monkeypatch, tmp_path):
    answer_oddly(monkeypatch, tmp_path, range(1000, 1400))


def test_work_in_time_returns_and_late_work_is_closed():
    class Late:
        def __init__(self):
            self.closed = threading.Event()

        def close(self):
            self.closed.set()

    late, release = Late(), threading.Event()
    assert within(10, lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        within(10, lambda: 1 // 0)
    with pytest.raises(TimeoutError, match=r"0\.05 s"):
        within(0.05, lambda: release.wait(10) and late)
    release.set()
    assert late.closed.wait(5)


def test_a_body_is_cut_at_its_limit_and_needs_progress(monkeypatch):
    assert b"".join(limited([b"abc", b"def", b"ghi"], 5, 10)) == b"abcde"
    seconds = 0.0
    monkeypatch.setattr(network, "time", SimpleNamespace(monotonic=lambda: seconds))

    def slow(pieces):
        nonlocal seconds
        for piece in pieces:
            seconds += 0.03
            yield piece

    with pytest.raises(TimeoutError):
        list(limited(slow([b"x"] * 100), 1000, 0.2))
    assert len(b"".join(limited(slow([b"x" * 10] * 20), 1000, 0.2, each=10))) == 200
    with pytest.raises(TimeoutError):
        list(limited(slow([b"x"] * 100), 1000, 0.2, each=50))


KEY = "sk-very-secret-0123456789"


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (f"<S>{KEY}</S>", "<S>***</S>"),
        (f"{KEY}{KEY} and {KEY}", "*** and ***"),
        (f"key {KEY[:14]}... is wrong", "key ***... is wrong"),
        (f"it ends with {KEY[-12:]}", "it ends with ***"),
        (f"{KEY[3:17]}{KEY[:13]}", "***"),
        (f"a {KEY[:11]} prefix, sk-very", f"a {KEY[:11]} prefix, sk-very"),
        ("", ""),
    ],
)
def test_a_key_that_comes_back_is_not_kept_whole_or_in_part(sent, kept, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with StubEndpoint(lambda ask: sent) as stub:
        reply = EndpointModel(EndpointSettings(stub.url, "m")).answer(Question("?"), 1, threading.Event())
    assert reply.text == kept
