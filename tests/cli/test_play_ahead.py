"""`play --suggest`: the offered turns are drawn while the player thinks, and stop before the game goes on."""

import argparse
import threading
import time

import pytest
from tiny_world import save_tiny_world

from animegamer_core.__main__ import main
from animegamer_core.cli import ahead as cli_ahead
from animegamer_core.cli.ahead import DrawingAhead
from animegamer_core.runtime.models import PlaySettings
from animegamer_core.story.ahead import Ahead
from animegamer_core.story.ahead_store import AheadStore, ahead_bytes
from animegamer_core.story.director import SUGGESTIONS, Director
from animegamer_core.story.player import PlayedTurn, Player
from animegamer_core.story.story import Story
from animegamer_core.toybox.world import WORDS

FIRST = "Character: Miko; Motion: gently wave hello; Background: day beach."


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return save_tiny_world(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def player(world, tmp_path):
    story = Story.open(tmp_path, "game", world.spec.name, world.fingerprint)
    player = Player(world, story, PlaySettings(steps=2), ahead=AheadStore(tmp_path, world.fingerprint))
    player.step(FIRST)
    return player


def drawing(player, notes, **options):
    given = argparse.Namespace(**{"ahead": "on", "turns_ahead": 1, "ahead_seconds": 60.0, **options})
    return DrawingAhead(player, given, notes.append)


def offered(player):
    return [one.instruction for one in Director(WORDS)(player.session, SUGGESTIONS)]


def wait_until(reached):
    end = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_typed_game_plays_what_was_drawn_while_the_player_thought(world, tmp_path, capsys, monkeypatch):
    """The player answers once all three are drawn."""
    answers = iter([FIRST, "2", "quit"])

    def think():
        answer = next(answers)
        if answer == "2":
            wait_until(lambda: len(list((tmp_path / ".ahead").glob("*/shots/*.json"))) == SUGGESTIONS)
        return f"{answer}\n"

    monkeypatch.setattr("sys.stdin.readline", think)
    words = ["play", "--world", str(world.folder), "--out", str(tmp_path), "--steps", "2", "--suggest", "--ahead", "on"]
    assert main([*words, "--ahead-seconds", "60"]) == 0
    said = capsys.readouterr()
    assert said.out.count("(drawn ahead)") == 1 and "turn 2" in said.out
    assert len(Story.read(tmp_path, "story").entries) == 2


def test_it_stops_within_a_shot_before_the_game_goes_on(player):
    draws, notes = drawing(player, []), []
    began = threading.Event()
    decoder = player.models.decoder()
    decoder.transformer.register_forward_pre_hook(lambda *_: began.set() or time.sleep(0.05))
    for text in offered(player):
        ahead = Ahead(player, player.ahead)
        ahead.draw(ahead.next_piece([text]))  # the states are there
    object.__setattr__(player, "settings", PlaySettings(steps=500))
    with draws.while_waiting(offered(player), lambda: Director(WORDS)):
        assert began.wait(60)
        at = time.monotonic()
    assert time.monotonic() - at < 1.0 and not notes
    assert threading.active_count() == 1 or not any(thread is draws._thread for thread in threading.enumerate())
    assert not list(player.ahead.shots.folder.glob("*"))


@pytest.mark.parametrize("chosen", [0, 1])
def test_what_is_being_drawn_of_the_chosen_turn_is_finished(player, chosen):
    draws = drawing(player, [])
    began = threading.Event()

    def hold(*_):
        """Go on drawing when the player has chosen."""
        began.set()
        draws._stop.wait(60)

    player.models.decoder().transformer.register_forward_pre_hook(hold)
    texts = offered(player)
    with draws.while_waiting(texts, lambda: Director(WORDS)) as choose:
        assert began.wait(60)
        choose(texts[chosen])
    shots = [turn.shot for turn in Ahead(player, player.ahead).look(texts)]
    assert [bool(shot) for shot in shots] == [chosen == 0, False, False], "the first one was being drawn"
    assert player.step(texts[0]).ahead == (chosen == 0)


def test_ctrl_c_ends_what_is_being_finished(player, monkeypatch):
    draws = drawing(player, [])
    began = threading.Event()
    player.models.decoder().transformer.register_forward_pre_hook(lambda *_: began.set() or time.sleep(0.05))
    object.__setattr__(player, "settings", PlaySettings(steps=500))
    texts, join = offered(player), threading.Thread.join

    def interrupted(thread):
        monkeypatch.setattr(threading.Thread, "join", join)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), draws.while_waiting(texts, lambda: Director(WORDS)) as choose:
        assert began.wait(60)
        choose(texts[0])
        monkeypatch.setattr(threading.Thread, "join", interrupted)
        at = time.monotonic()
    assert time.monotonic() - at < 1.0 and not list(player.ahead.shots.folder.glob("*.mp4"))


def test_what_goes_wrong_is_said_and_ends_it_but_not_the_game(player, monkeypatch):
    notes = []
    draws = drawing(player, notes)
    monkeypatch.setattr(Ahead, "draw", lambda *_: (_ for _ in ()).throw(RuntimeError("out of memory")))
    with draws.while_waiting(offered(player), lambda: Director(WORDS)):
        wait_until(lambda: notes)
    assert notes == ["nothing more is drawn ahead: out of memory"] and not draws.on
    assert player.step(offered(player)[0]).drawn


def test_the_seconds_of_a_minute_are_kept_to(player, monkeypatch):
    draws, now = drawing(player, [], ahead_seconds=10.0), [100.0]
    monkeypatch.setattr(cli_ahead.time, "monotonic", lambda: now[0])
    assert draws._pause() == 0
    draws._spent += [(95.0, 6.0), (99.0, 5.0)]
    assert draws._pause() == 55.0
    now[0] = 156.0
    assert draws._pause() == 0


@pytest.mark.parametrize(("mode", "pace", "on"), [("auto", None, False), ("auto", 9.0, False), ("auto", 0.1, True)])
def test_auto_is_on_where_a_turn_is_faster_than_its_clip(player, mode, pace, on):
    draws = drawing(player, [], ahead=mode)
    if pace is not None:
        draws.timed(PlayedTurn(player.session.turns[-1], None, 1.0, True, True), pace)
        draws.timed(PlayedTurn(player.session.turns[-1], None, 1.0, False, False), 0.0)  # known: says nothing
    assert draws.on is on


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--turns-ahead", "4"], "--turns-ahead is 4"), (["--ahead-seconds", "0"], "--ahead-seconds is 0")],
)
def test_wrong_options_are_refused(world, tmp_path, capsys, words, said):
    assert main(["play", "--world", str(world.folder), "--out", str(tmp_path), "--suggest", *words]) != 0
    assert said in capsys.readouterr().err


def test_off_draws_nothing(player, tmp_path):
    with drawing(player, [], ahead="off").while_waiting(offered(player), lambda: Director(WORDS)):
        time.sleep(0.3)
    assert ahead_bytes(tmp_path) == 0
