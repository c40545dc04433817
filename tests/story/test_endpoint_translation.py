"""Instructions in Chinese and Japanese that the table cannot read, by a language model that the environment names."""

import json
from dataclasses import replace

import pytest
from stub_endpoint import Say, StubEndpoint
from tiny_world import save_tiny_world

from animegamer_core.checkpoint import open_world
from animegamer_core.life import Life
from animegamer_core.runtime.models import PlaySettings
from animegamer_core.story import endpoint_translation
from animegamer_core.story.endpoint import MODEL, TRIES, URL, model_at
from animegamer_core.story.endpoint_translation import read_with_endpoint
from animegamer_core.story.player import Player
from animegamer_core.story.story import Story
from animegamer_core.toybox.world import WORDS

KITE = "Character: Qiqi; Motion: fly a kite; Background: day hill."
TYPED = "琪琪在山坡上放风筝"


@pytest.fixture
def stub(monkeypatch):
    with StubEndpoint(lambda ask: KITE) as running:
        for name, value in {URL: running.url, MODEL: "gpt", "OPENAI_API_KEY": "none"}.items():
            monkeypatch.setenv(name, value)
        model_at.cache_clear()
        endpoint_translation._kept.clear()
        yield running


def test_only_what_the_table_cannot_read_is_translated(stub):
    assert read_with_endpoint(TYPED, None, "qiqi") == KITE
    (text,) = stub.asks[0].texts
    assert TYPED in text and "琪琪, キキ: Qiqi" in text and stub.asks[0].body["temperature"] == 0
    assert read_with_endpoint(TYPED, None, "qiqi") == KITE and len(stub.asks) == 1, "asked once"
    assert read_with_endpoint("琪琪在森林里跑步", None, "qiqi").startswith("Character: Qiqi; Motion: run;")
    assert read_with_endpoint("Qiqi flies a kite.", None, "qiqi") == "Qiqi flies a kite."
    with pytest.raises(ValueError, match="has words that this world does not know"):
        read_with_endpoint("美子在海滩放风筝", WORDS, "toybox")  # a world that states its words knows no others
    assert len(stub.asks) == 1


def test_without_an_endpoint_the_text_stays_as_it_is(stub, monkeypatch):
    monkeypatch.delenv(MODEL)
    assert read_with_endpoint(TYPED, None, "qiqi") == TYPED and not stub.asks


def test_a_reply_that_is_no_english_instruction_is_asked_for_again(stub):
    stub.script[:] = [Say("好的"), Say(f"Character: 琪琪; Motion: fly; Background: hill.\n\n- {KITE}")]
    assert read_with_endpoint(TYPED, None, "qiqi") == KITE
    stub.script[:] = [Say("Qiqi flies a kite")] * TRIES
    expected = f"gpt did not translate '琪琪在.*in {TRIES} replies: it said 'Qiqi flies a kite'"
    with pytest.raises(ValueError, match=expected):
        read_with_endpoint(f"{TYPED}吧", None, "qiqi")


def test_a_story_keeps_how_a_line_was_read(stub, tmp_path):
    save_tiny_world(tmp_path / "world")
    world = open_world(tmp_path / "world")

    def play():
        story = Story.open(tmp_path, "tale", world.spec.name, world.fingerprint)
        player = Player(replace(world, life=Life()), story, PlaySettings(steps=1))
        player.step(TYPED, draw=False)
        return player.step("Qiqi naps.", draw=False)

    play()
    endpoint_translation._kept.clear()  # as after a restart, when the model may answer otherwise
    stub.script[:] = [Say("Character: Qiqi; Motion: run; Background: hill.")]
    assert not play().predicted and len(stub.asks) == 1
    lines = (tmp_path / "tale" / "branches" / "main.jsonl").read_text(encoding="utf-8").splitlines()
    assert [(json.loads(line)["instruction"], json.loads(line).get("typed")) for line in lines] == [
        (KITE, TYPED),
        ("Qiqi naps.", None),
    ]
