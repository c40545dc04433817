"""A language model behind an endpoint proposes the turns; nothing of its reply is played unchecked."""

import io
import json
import threading
import time
from dataclasses import replace

import pytest
from stub_endpoint import Say, Slow, StubEndpoint
from tiny_world import save_tiny_world

from animegamer_core.__main__ import main
from animegamer_core.checkpoint import open_world
from animegamer_core.life import Act, Life, Words
from animegamer_core.runtime.models import PlaySettings
from animegamer_core.state import GameSession, GameState
from animegamer_core.story.endpoint import MODEL, TRIES, URL, give_up_after, model_at
from animegamer_core.story.endpoint_director import proposer_for
from animegamer_core.story.player import Player
from animegamer_core.story.story import Story

WORDS = Words(
    characters=("Kai", "Mia"),
    acts=(Act("mend a net"), Act("talk to a friend", {"social": 1}, company=True)),
    places=("harbor", "market"),
    times=("day", "night"),
    adverbs=(("slowly",), ("quickly",)),
    untried=(("Mia", "mend a net"), ("Kai", "market")),
)
CLOSED, OPEN = Life(words=WORDS), Life()
NET = "Character: Kai; Motion: slowly mend a net; Background: day harbor."
TALK = "Character: Mia, Kai; Motion: talk to a friend; Background: night harbor."


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    for name in (URL, MODEL):
        monkeypatch.delenv(name, raising=False)
    model_at.cache_clear()


@pytest.fixture
def stub():
    """An endpoint that proposes NET and TALK."""
    with StubEndpoint(lambda ask: f"{NET}\n{TALK}") as running:
        yield running


def director(stub, life=CLOSED, seed=0, **how):
    return proposer_for("endpoint", life, "mine", GameSession(), seed, endpoint=(stub.url, "gpt"), **how)


def game(*instructions):
    session = GameSession(opening={"stamina": 35})
    for text in instructions:
        session = session.step(text, GameState(None, 2, {"social": 1, "entertainment": 0, "stamina": -1}))
    return session


def proposed(propose, count=3, session=None):
    return [one.instruction for one in propose(session or game(), count)]


def test_the_model_is_told_the_story_the_stats_and_the_words(stub):
    propose = director(stub, seed=7)
    assert proposed(propose, session=game(NET, TALK)) == [NET, TALK] and propose.name == "endpoint gpt, seed 7"
    (ask,) = stub.asks
    (text,) = ask.texts
    assert f"1. {NET} (social 55, entertainment 50, stamina 30)" in text and f"2. {TALK}" in text
    assert "Now: social 60, entertainment 50, stamina 25" in text
    assert "Use these words only." in text and "mend a net, talk to a friend (with a second character)" in text
    assert ask.body["temperature"] > 0 and ask.body["seed"] == 9
    proposed(director(stub, seed=8))
    assert stub.asks[1].body["seed"] == 10


def test_lists_and_quotation_marks_are_read(stub):
    stub.script[:] = [Say(f"Here you are:\n1. {NET.rstrip('.')}\n\n- `{TALK}`\n* {NET}\n")]
    assert proposed(director(stub)) == [NET, TALK]
    assert proposed(director(stub), count=1) == [NET]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("Kai mends a net.", "does not have the form"),
        ("Character: Kai; Motion: mend a yacht; Background: day harbor.", "does not know: yacht"),
        ("Character: Mia; Motion: mend a net; Background: harbor.", "which training data never combines"),
        ("Character: Kai; Motion: talk to a friend; Background: day market.", "'Kai' and 'market'"),
        ("Character: " + "Kai" * 200 + "; Motion: mend a net; Background: harbor.", "no line has the form"),
    ],
)
def test_what_the_world_cannot_play_is_left_out_and_asked_again(stub, line, said):
    stub.script[:] = [Say(line), Say(f"{line}\n{NET}")]
    assert proposed(director(stub)) == [NET] and len(stub.asks) == 2
    assert stub.asks[0].body["seed"] != stub.asks[1].body["seed"]
    stub.script[:] = [Say(line)] * TRIES
    with pytest.raises(ValueError, match=f"endpoint gpt proposed nothing playable in {TRIES} replies: ") as found:
        proposed(director(stub))
    assert said in str(found.value)


def test_a_world_without_stated_words_takes_any(stub):
    strange = "Character: Zed; Motion: fly a <s> kite; Background: dusk moor."
    stub.script[:] = [Say(strange)]
    session = game("Character: Zed; Motion: nap; Background: moor.")
    propose = proposer_for("endpoint", OPEN, "mine", session, 0, endpoint=(stub.url, "gpt"))
    assert proposed(propose, session=session) == [strange.replace("<", "\u2039").replace(">", "\u203a")]
    assert "For example:" in stub.asks[0].texts[0] and "characters: Zed" in stub.asks[0].texts[0]


def test_the_player_can_stop_while_the_model_thinks(stub):
    stub.script[:] = [Slow(20)]
    wanted = threading.Event()

    def check():
        if wanted.is_set():
            raise KeyboardInterrupt

    threading.Timer(0.3, wanted.set).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        proposed(director(stub, check=check))
    assert time.monotonic() - began < 5


def test_a_page_does_not_wait_for_ever_for_a_silent_endpoint(stub):
    stub.script[:] = [Slow(20)]
    began = time.monotonic()
    with pytest.raises(ValueError, match="gave no valid answer within 0.4 s"):
        proposed(director(stub, check=give_up_after(0.4)))
    assert 0.4 < time.monotonic() - began < 5
    stub.script[:] = []
    assert proposed(director(stub, check=give_up_after(30))) == [NET, TALK]


def test_an_endpoint_that_is_not_stated_is_named(monkeypatch):
    with pytest.raises(ValueError, match=f"{URL} .* and {MODEL}"):
        proposer_for("endpoint", CLOSED, "mine", GameSession(), 0)
    with pytest.raises(ValueError, match="unknown director 'cat'; choose rules or endpoint"):
        proposer_for("cat", CLOSED, "mine", GameSession(), 0)
    monkeypatch.setenv(URL, "ftp://here")
    monkeypatch.setenv(MODEL, "gpt")
    with pytest.raises(ValueError, match="url must be http"):
        proposer_for("endpoint", CLOSED, "mine", GameSession(), 0)


# Playing


@pytest.fixture
def world(tmp_path):
    save_tiny_world(tmp_path / "world")
    return open_world(tmp_path / "world")


def test_a_proposed_turn_is_recorded_and_not_asked_for_again(world, stub, tmp_path):
    """A model may answer otherwise next time, and the same command must go on with the same game."""

    def play(turns, seed=0):
        story = Story.open(tmp_path, "tale", world.spec.name, world.fingerprint)
        player = Player(replace(world, life=CLOSED), story, PlaySettings(steps=1))
        propose = director(stub, seed=seed)
        return [played.turn.instruction for played in player.autoplay(propose, turns, draw=False)]

    assert play(2) == [NET, NET] and len(stub.asks) == 2
    lines = (tmp_path / "tale" / "branches" / "main.jsonl").read_text().splitlines()
    assert [json.loads(line)["proposed_by"] for line in lines] == ["endpoint gpt, seed 0"] * 2
    stub.script[:] = [Say(TALK)] * 2
    assert play(3) == [NET, NET, TALK] and len(stub.asks) == 3
    assert play(1, seed=1) == [TALK], "another seed is another director"


def test_play_takes_the_endpoint_from_its_options(world, stub, tmp_path, capsys):
    arguments = ["play", "--world", str(world.folder), "--out", str(tmp_path), "--name", "life", "--steps", "1"]
    arguments += ["--auto", "2"]
    assert main([*arguments, "--director", "endpoint", "--director-url", stub.url, "--director-model", "gpt"]) == 0
    assert "slowly mend a net" in capsys.readouterr().out and len(stub.asks) == 2
    assert main([*arguments, "--director-url", stub.url]) != 0
    assert "need --director endpoint" in capsys.readouterr().err


def test_a_model_that_falls_silent_gives_a_typed_game_back(world, stub, tmp_path, capsys, monkeypatch):
    stub.script[:] = [Say(NET), *[Say("nothing to say")] * TRIES]
    monkeypatch.setattr("sys.stdin", io.StringIO(f"@auto 3\n{TALK}\n"))
    words = ["play", "--world", str(world.folder), "--out", str(tmp_path), "--name", "life", "--steps", "1"]
    assert main([*words, "--director", "endpoint", "--director-url", stub.url, "--director-model", "gpt"]) == 0
    story = Story.read(tmp_path, "life")
    assert [turn.instruction for turn in story.session(2, 0).turns] == [NET, TALK]
    assert "proposed nothing playable" in capsys.readouterr().err
