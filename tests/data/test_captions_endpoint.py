"""The model behind an endpoint, against a server that speaks the protocol and misbehaves in every way we know of."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image
from stub_endpoint import (
    EMPTY_CHOICES,
    FOREIGN,
    GOOD,
    HUGE,
    NO_USAGE,
    PROSE,
    Body,
    Changed,
    CutBody,
    CutOff,
    Drip,
    Reset,
    Say,
    Slow,
    Status,
    StubEndpoint,
)

from animegamer_core.data.captions.client import LONGEST_ANSWER, EndpointModel, EndpointSettings
from animegamer_core.data.captions.replies import ReplyError, parse_caption
from animegamer_core.data.captions.vision_model import Cancelled, CaptionerError, CaptionerUnavailable, Question

SECRET = "sk-very-secret-0123456789"
CAPTION = "<S>Girl</S><MD>run</MD><EV>day forest</EV><MA>slowly</MA><SC>0</SC><ET>1</ET><ST>-1</ST>"


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def model(stub, **changes) -> EndpointModel:
    settings = {"url": stub.url, "model": "tiny-vl", "timeout": 5.0, "retries": 3, **changes}
    return EndpointModel(EndpointSettings(**settings))


def ask(stub, script=(), pictures=(), attempt=1, **changes):
    stub.script[:] = list(script)
    return model(stub, **changes).answer(Question("what?", pictures), attempt, threading.Event())


@pytest.fixture(scope="module")
def server():
    with StubEndpoint(lambda ask: CAPTION) as stub:
        yield stub


@pytest.fixture
def stub(server):
    server.asks.clear()
    server.script.clear()
    server.most_at_once = 0
    return server


def test_a_question_arrives_whole_and_its_reply_comes_back(stub):
    pictures = tuple(Image.new("RGB", (40, 30), colour) for colour in ("red", "blue"))
    reply = ask(stub, pictures=pictures)
    assert (reply.text, reply.problem, reply.tokens_in, reply.tokens_out) == (CAPTION, "", 100, 2)
    (asked,) = stub.asks
    assert asked.texts == ["Image-1:", "Image-2:", "what?"] and asked.model == "tiny-vl"
    red, blue = (picture.getpixel((20, 15)) for picture in asked.pictures)
    assert red[0] > 240 and red[2] < 20 and blue[2] > 240 and blue[0] < 20
    assert asked.headers["authorization"] == f"Bearer {SECRET}"
    assert asked.body["temperature"] == 0.0 and asked.body["max_tokens"] == 256


def test_later_attempts_vary_and_a_question_needs_no_picture(stub):
    ask(stub, attempt=2)
    assert stub.asks[0].body["temperature"] > 0.3 and stub.asks[0].texts == ["what?"]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Status(500), "status 500"),
        (Status(429), "status 429"),
        (Status(408), "status 408"),
        (Reset(), "no connection"),
        (CutBody(), "the connection broke off"),
        (Slow(10.0), "timeout"),
        (Drip(0.1), "timeout"),
        (Body(b"<html>welcome to the hotel</html>"), "the answer is not a chat completion"),
        (Body(b"[" * 100_000), "the answer is not a chat completion"),
        (EMPTY_CHOICES, "the answer is not a chat completion"),
        (Body([1]), "the answer is not a chat completion"),
        (Body({"choices": [{"message": None}]}), "the answer is not a chat completion"),
    ],
)
def test_trouble_is_tried_again_and_counted(stub, fault, kind):
    stub.script[:] = [fault, fault]
    asked = model(stub, timeout=2.0 if kind == "timeout" else 10.0)
    assert asked.answer(Question("?"), 1, threading.Event()).text == CAPTION
    assert len(stub.asks) == 3
    assert [(name.startswith(kind), count) for name, count in asked.trouble.items()] == [(True, 2)]


def test_trouble_forever_is_reported(stub):
    with pytest.raises(CaptionerError, match="no answer to 4 requests; the last failed with: status 500") as caught:
        ask(stub, [Status(500)] * 9)
    assert len(stub.asks) == 4 and not isinstance(caught.value, CaptionerUnavailable)


def test_nobody_listening_is_reported(stub):
    with StubEndpoint(lambda ask: "") as gone:
        pass
    with pytest.raises(CaptionerError, match="no connection to http://127.0.0.1"):
        ask(gone, retries=1)


@pytest.mark.parametrize(
    ("behaviour", "text", "problem"),
    [
        (CutOff(), CAPTION[: len(CAPTION) // 2], "cut off"),
        (Say(None), "", "has no text"),
        (Changed(choice={"finish_reason": "content_filter"}), CAPTION, "refused"),
        (Changed(choice={"message": {"content": None, "refusal": "no!"}}), "", "refused"),
        (HUGE, "", f"larger than {LONGEST_ANSWER}"),
        (PROSE, f"Sure! Here is the description: {CAPTION} Let me know if you need more.", ""),
        (FOREIGN, FOREIGN.words, ""),
    ],
)
def test_replies_that_are_no_use_are_replies_nevertheless(stub, behaviour, text, problem):
    reply = ask(stub, [behaviour])
    assert reply.text == text and problem in reply.problem and bool(problem) == bool(reply.problem)
    assert len(stub.asks) == 1  # it is paid for; whether to ask again is not decided here
    if not problem:
        with pytest.raises(ReplyError):
            parse_caption(reply.text)


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": -4, "completion_tokens": "many"}, [1]])
def test_tokens_that_are_not_told_are_none(stub, usage):
    reply = ask(stub, [NO_USAGE if usage is None else Changed({"usage": usage})])
    assert (reply.text, reply.tokens_in, reply.tokens_out) == (CAPTION, None, None)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "0.3"}, 0.3),
        ({"retry-after-ms": "300", "Retry-After": "30"}, 0.3),
    ],
)
def test_retry_after_is_waited_for(stub, headers, seconds):
    ask(stub, [Status(429, headers)])
    first, second = (asked.at for asked in stub.asks)
    assert seconds <= second - first < seconds + 5


def test_a_pause_that_is_too_long_stops_the_run(stub):
    with pytest.raises(CaptionerUnavailable, match="asks to wait 3600 s"):
        ask(stub, [Status(429, {"Retry-After": "3600"})])
    assert len(stub.asks) == 1


@pytest.mark.parametrize("code", [401, 404])
def test_a_refused_key_or_model_is_reported_at_once_without_the_key(stub, code):
    with pytest.raises(CaptionerUnavailable, match=f"status {code}") as caught:
        ask(stub, [Status(code, message=f"bad key {SECRET} <b>\x1b[31m\n{'x' * 900}")])
    assert len(stub.asks) == 1
    assert SECRET not in str(caught.value) and str(caught.value).isprintable() and len(str(caught.value)) < 400


def test_a_question_that_is_refused_is_reported_at_once(stub):
    with pytest.raises(CaptionerError, match="context length") as caught:
        ask(stub, [Status(400, message="context length exceeded")])
    assert len(stub.asks) == 1 and not isinstance(caught.value, CaptionerUnavailable)


def test_models_that_know_other_options_are_asked_in_their_way(stub):
    stub.script[:] = [Status(400, param="max_tokens"), Status(400, param="temperature")]
    asked = model(stub)
    assert asked.answer(Question("?"), 1, threading.Event()).text == CAPTION
    assert asked.answer(Question("?"), 2, threading.Event()).text == CAPTION
    assert [sorted(set(a.body) - {"messages", "model"}) for a in stub.asks] == [
        ["max_tokens", "temperature"],
        ["max_completion_tokens", "temperature"],
        ["max_completion_tokens"],
        ["max_completion_tokens"],
    ]
    with pytest.raises(CaptionerError, match="status 400"):
        stub.script[:] = [Status(400, param="max_tokens")]
        asked.answer(Question("?"), 1, threading.Event())


def test_the_rate_is_held_by_all_threads_together(stub):
    shared = model(stub, per_minute=1800)
    begun = time.monotonic()
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: shared.answer(Question("?"), 1, threading.Event()), range(10)))
    at = sorted(asked.at for asked in stub.asks)
    assert len(at) == 10
    assert all(when - begun >= number * 60 / 1800 for number, when in enumerate(at))  # late is possible, early is not


def test_a_stop_ends_the_wait_for_the_rate_and_further_retries(stub):
    limited, stop = model(stub, per_minute=0.1), threading.Event()
    limited.answer(Question("?"), 1, stop)
    threading.Timer(0.3, stop.set).start()
    begun = time.monotonic()
    with pytest.raises(Cancelled):
        limited.answer(Question("?"), 1, stop)
    assert time.monotonic() - begun < 2
    with pytest.raises(Cancelled):
        model(stub).answer(Question("?"), 1, stop)
    assert len(stub.asks) == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"url": "localhost:8000/v1"}, "http://HOST"),
        ({"url": "http://me:pass@host/v1"}, "without a password"),
        ({"url": "http://host/v1?key=secret"}, "a key goes into the environment"),
        ({"url": "http://localhost:80O0/v1"}, "http://HOST"),
        ({"url": "http://local..host/v1"}, "http://HOST"),
        ({"url": "http://\u2603.host/v1"}, "http://HOST"),
        ({"url": "http://[::1/v1"}, "http://HOST"),
        ({"url": "http://host/\udcff"}, "http://HOST"),
        ({"url": "http://host/\x1b[31m"}, "http://HOST"),
        ({"model": " "}, "no model name"),
        ({"model": "\udcff"}, "printable characters"),
        ({"model": "\x1b[31mgpt"}, "printable characters"),
        ({"model": "m" * 301}, "at most 300 printable"),
        ({"timeout": 0}, "timeout 0"),
        ({"retries": -1}, "retries -1"),
        ({"max_tokens": 0}, "max_tokens 0"),
        ({"per_minute": 0}, "per_minute is 0"),
        ({"per_minute": float("nan")}, "per_minute is nan"),
    ],
)
def test_settings_out_of_range_are_named(changes, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        EndpointModel(EndpointSettings(**{"url": "http://host/v1", "model": "m", **changes}))
    assert "pass@" not in str(caught.value)


def test_the_key_comes_from_the_environment_alone(stub, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "")
    with pytest.raises(ValueError, match="OPENAI_API_KEY.*`none`"):
        model(stub)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-\u20acuro")
    with pytest.raises(ValueError, match="invalid characters for a key") as caught:
        model(stub)
    assert "uro" not in str(caught.value)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    assert ask(stub, [GOOD]).text == CAPTION
    monkeypatch.setenv("OPENAI_BASE_URL", "http://elsewhere/v1")
    assert ask(stub).text == CAPTION  # the url that was given, not the environment's
