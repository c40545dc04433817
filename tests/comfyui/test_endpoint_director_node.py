"""A language model proposes and translates turns in a real ComfyUI, which was started with the endpoint's address."""

import json
import time
import urllib.error
import urllib.parse

import pytest
from comfy_server import message, running
from graphs import PLAY, WAVE, load, node
from stub_endpoint import Say, Slow, StubEndpoint
from tiny_world import save_tiny_world

KITE = "Character: Miko; Motion: quickly fly a kite; Background: day moor."
TYPED = "琪琪在山坡上放风筝"  # words that no table has
NAP = "Character: Miko; Motion: nap; Background: night moor."


@pytest.fixture(scope="module")
def stub():
    with StubEndpoint(lambda ask: f"{KITE}\n{NAP}") as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def server(tmp_path_factory, stub):
    """A ComfyUI that knows the endpoint, with the world `tiny`, which states no words."""
    names = {"ANIMEGAMER_ENDPOINT_URL": stub.url, "ANIMEGAMER_ENDPOINT_MODEL": "gpt", "OPENAI_API_KEY": "none"}
    with running(tmp_path_factory.mktemp("endpoint"), **names) as comfy:
        save_tiny_world(comfy.models_dir / "animegamer" / "tiny")
        yield comfy


def play(story, **more):
    inputs = PLAY | {"model": ["load", 0], "story": story, "instructions": WAVE, "director": "endpoint"} | more
    return {"load": load(), "play": node("PlayGameStory", **inputs)}


def lines(server, story):
    path = server.output_dir / "animegamer" / story / "branches" / "main.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def test_it_proposes_turns_and_plays_them(server, stub):
    asked = len(stub.asks)
    server.run(play("a life", autoplay=2))
    assert [line["instruction"] for line in lines(server, "a life")] == [WAVE, KITE, KITE]
    assert [line.get("proposed_by") for line in lines(server, "a life")] == [None, *["endpoint gpt, seed 0"] * 2]
    query = {"world": "tiny", "story": "a life", "director": "endpoint", "seed": 3}
    found = server.get(f"/animegamer/suggestions?{urllib.parse.urlencode(query)}")
    assert [one["instruction"] for one in found["suggestions"]] == [KITE, NAP]
    assert found["proposed_by"] == "endpoint gpt, seed 3" and len(stub.asks) == asked + 3
    server.run(play("a life", autoplay=2, export=True))
    assert len(stub.asks) == asked + 3, "what was proposed before is read from the story"


def test_an_interrupt_ends_the_wait_for_an_answer(server, stub):
    stub.script[:] = [Slow(60)]
    asked, waiting = len(stub.asks), server.queue(play("waits", autoplay=1))
    server.wait_until(lambda: len(stub.asks) > asked)
    began = time.monotonic()
    server.post("/interrupt", {})
    entry = server.wait(waiting)
    assert message(entry, "execution_interrupted") and time.monotonic() - began < 10
    assert [line["instruction"] for line in lines(server, "waits")] == [WAVE]


def test_a_reply_that_cannot_be_played_is_told_in_a_sentence(server, stub):
    stub.script[:] = [Say("I cannot do that.")] * 6
    text = server.refusal(play("no", autoplay=1))
    assert "endpoint gpt proposed nothing playable" in text and "I cannot do that" in text
    with pytest.raises(urllib.error.HTTPError) as refused:
        server.get("/animegamer/suggestions?world=tiny&story=a+life&director=endpoint")
    assert refused.value.code == 400 and "proposed nothing" in json.loads(refused.value.read())["error"]


def test_an_instruction_in_chinese_is_translated_once(server, stub):
    asked = len(stub.asks)
    server.run(play("translated", instructions=TYPED))
    assert len(stub.asks) == asked + 1 and TYPED in stub.asks[-1].texts[0]
    assert [(line["instruction"], line["typed"]) for line in lines(server, "translated")] == [(KITE, TYPED)]
    server.run(play("translated", instructions=f"{TYPED}\n{WAVE}"))
    turn = {"world": "tiny", "story": "typed", "instruction": TYPED}
    status, answer = server.post("/animegamer/turn?wait=1", turn)
    assert status == 200, answer
    assert lines(server, "typed")[0]["instruction"] == KITE and len(stub.asks) == asked + 1
    assert [line["instruction"] for line in lines(server, "translated")] == [KITE, WAVE]


def test_what_the_model_cannot_translate_is_told_in_a_sentence(server, stub):
    stub.script[:] = [Say("好的")] * 6
    assert "gpt did not translate" in server.refusal(play("untranslated", instructions=f"{TYPED}吧"))
    stub.script.clear()
    assert lines(server, "untranslated") == []
