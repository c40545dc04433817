"""The model behind an endpoint, against a server that speaks the protocol and fails in the ways that services do."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image
from stub_endpoint import CUT_BODY, GOOD, RESET, Answer, StubEndpoint, refusal

from animegamer_core.endpoint import CaptionerError, CaptionerUnavailable, EndpointModel, EndpointSettings, Question

pytestmark = pytest.mark.usefixtures("endpoint_key")
SECRET = "sk-very-secret-0123456789"
CAPTION = "<S>Girl</S><MD>run</MD><EV>day forest</EV><MA>slowly</MA><SC>0</SC><ET>1</ET><ST>-1</ST>"


def model(stub, **changes) -> EndpointModel:
    return EndpointModel(
        EndpointSettings(**{"url": stub.url, "model": "tiny-vl", "timeout": 5.0, "retries": 3} | changes)
    )


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
    return server


def test_a_question_arrives_whole_and_its_reply_comes_back(stub):
    pictures = tuple(Image.new("RGB", (40, 30), colour) for colour in ("red", "blue"))
    reply = ask(stub, pictures=pictures)
    assert (reply.text, reply.problem, reply.tokens_in, reply.tokens_out) == (CAPTION, "", 100, 2)
    (asked,) = stub.asks
    assert asked.texts == ["Image-1:", "Image-2:", "what?"] and asked.body["model"] == "tiny-vl"
    red, blue = (picture.getpixel((20, 15)) for picture in asked.pictures)
    assert red[0] > 240 and red[2] < 20 and blue[2] > 240 and blue[0] < 20
    assert asked.headers["authorization"] == f"Bearer {SECRET}"
    assert asked.body["temperature"] == 0.0 and asked.body["max_tokens"] == 2048
    ask(stub, attempt=2)
    assert stub.asks[1].body["temperature"] > 0.3


PROVIDER = {"error": {"code": 502, "message": "The provider went away"}, "finish_reason": "error"}


@pytest.mark.parametrize(
    "fault",
    [
        *(refusal(500), refusal(429, Retry_After="0.1"), RESET, CUT_BODY),
        Answer(body={"error": "the model is loading"}),
        Answer(body={"choices": [{"message": {"role": "assistant", "content": ""}, **PROVIDER}]}),
        Answer(body={"choices": [{"message": {"content": "<S>Gi"}, "finish_reason": "error"}]}),
        Answer(body={"choices": [{"message": {"content": "<S>Gi"}, "finish_reason": "insufficient_system_resource"}]}),
        Answer(body={"choices": [{"message": {"content": None, "error": "gone"}, "finish_reason": "stop"}]}),
        *(Answer(body={"choices": choices}) for choices in (None, [None], "gone", [{"message": "gone"}])),
    ],
)
def test_a_temporary_fault_is_asked_again(stub, fault):
    assert ask(stub, [fault, fault]).text == CAPTION
    assert len(stub.asks) == 3


@pytest.mark.parametrize(
    "refusal",
    [refusal(401, message=f"bad key {SECRET}"), Answer(body={"error": {"code": 402, "message": f"pay, {SECRET}"}})],
)
def test_a_refused_key_or_account_stops_the_run_and_shows_no_key(stub, refusal):
    with pytest.raises(CaptionerUnavailable, match="bad key|pay") as caught:
        ask(stub, [refusal])
    assert len(stub.asks) == 1 and SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "refusal",
    [
        refusal(500, message="请用投影器启动"),
        Answer(body={"object": "error", "message": "请用投影器启动", "code": 400}),
        Answer(body={"detail": [{"loc": ["body"], "msg": "请用投影器启动"}]}, code=422),
        Answer(body={"error": {"message": "-", "metadata": {"raw": '{"error": {"message": "请用投影器启动"}}'}}}),
        Answer(body={"error": True, "message": "请用投影器启动"}),
        Answer(body=[{"error": {"code": 400, "message": "请用投影器启动"}}]),
        Answer(body={"choices": None, "base_resp": {"status_code": 1, "status_msg": "请用投影器启动"}}),
        Answer(body={"choices": [{"message": {"content": None}, "error": {"message": "请用投影器启动"}}]}),
    ],
)
def test_the_reason_that_a_service_gives_is_shown(stub, refusal):
    with pytest.raises(CaptionerError, match="请用投影器启动"):
        ask(stub, [refusal], retries=0)


def test_options_that_a_model_refuses_are_found_once_for_all_threads():
    class Strict(StubEndpoint):
        def take(self, asked):
            behaviour, options = super().take(asked), ("temperature", "max_tokens", "max_completion_tokens")
            refused = next((name for name in options if name in asked.body), None)
            # An error in a 200 is one of the request too.
            code = {"max_completion_tokens": 200, "temperature": 404}.get(refused, 422)
            spelled = refused and refused.title().replace("_", "")  # MaxTokens, as some services write it
            return refusal(code, message=f"{spelled}: extra input not permitted") if refused else behaviour

    with Strict(lambda asked: CAPTION) as stub, ThreadPoolExecutor(4) as pool:
        shared = model(stub, retries=0)
        replies = pool.map(lambda number: shared.answer(Question(f"{number}?"), 1, threading.Event()).text, range(12))
        assert list(replies) == [CAPTION] * 12
        assert all(set(asked.body) == {"model", "messages"} for asked in stub.asks[-8:])


def test_a_plain_value_is_no_completion(stub):
    for body in ("the server is up", []):
        with pytest.raises(CaptionerError, match="check the url"):
            ask(stub, [Answer(body=body)], retries=0)


def test_a_reply_is_read_without_thoughts(stub):
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": CAPTION}]
    for content in (parts, {"type": "output_text", "text": CAPTION}, [CAPTION]):
        assert ask(stub, [Answer(content)]).text == CAPTION
    for name in ("reasoning_content", "reasoning"):
        mistaken = {"message": {"content": None, name: CAPTION}, "finish_reason": "stop"}
        assert ask(stub, [Answer(body={"choices": [mistaken]})]).text == CAPTION


def test_a_url_has_no_password():
    with pytest.raises(ValueError, match="password") as caught:
        EndpointSettings("http://me:pass@host/v1", "m")
    assert "pass@" not in str(caught.value)


def test_the_key_comes_from_the_environment_alone(stub, monkeypatch):
    for key in ("", "sk-\u20acuro"):
        monkeypatch.setenv("OPENAI_API_KEY", key)
        with pytest.raises(ValueError, match="OPENAI_API_KEY"):
            model(stub)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://elsewhere/v1")
    assert ask(stub, [GOOD]).text == CAPTION  # at the url that was given, not the environment's
