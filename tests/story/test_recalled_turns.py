"""Games that recall earlier turns: what is saved of it, and that replaying them is exact."""

import json
from dataclasses import replace

import pytest
import torch
from test_play import opened

from animegamer_core.__main__ import main
from animegamer_core.game.life import Consequence, Rules
from animegamer_core.game.state import CACHED_TURNS, GameSession
from animegamer_core.media.video import to_uint8
from animegamer_core.story.player import Player, PlaySettings, save_turn
from animegamer_core.story.turn import predict_turn, shot_key

TOLD = "Character: Miko; Motion: gently run with a red scarf; Background: day beach."
PLAIN = "Character: Miko; Motion: gently run; Background: day beach."
ASKED = "Character: Miko; Motion: softly dance with the scarf; Background: day beach."
GAME = (TOLD, *[PLAIN] * 5, ASKED)


def played(world, root, instructions=GAME, after=0, **settings):
    player = Player(world, opened(world, root), PlaySettings(**settings), after)
    for line in instructions:
        player.step(line)
    return player


def addresses(player):
    return [entry.state for entry in player.story.entries]


def index_of(player):
    return json.loads((player.story.folder / "story.json").read_text())


def test_the_engine_reads_the_recalled_turn_in_place_of_the_oldest(world, tmp_path):
    player = played(world, tmp_path)
    turn, before = player.session.turns[-1], player.session.turns[:-1]
    assert turn.recalled == (1,)
    state = player.models.engine().predict([before[number - 1] for number in (1, 4, 5, 6)], ASKED)
    assert torch.equal(turn.state.representation, state.representation)
    assert player.story.states.record(turn.address)["key"]["recalled"] == [1]
    assert index_of(player)["memory"] == {"kind": "recall", "turns": 2}


def test_a_replay_predicts_nothing(world, tmp_path, monkeypatch):
    first = played(world, tmp_path)
    monkeypatch.setattr(type(world), "load_engine", lambda *_: pytest.fail("an engine was loaded for known turns"))
    again = played(world, tmp_path)
    assert again.story.branch == "main" and again.session.turns[-1].recalled == (1,)
    assert addresses(again) == addresses(first)
    assert [turn.recalled for turn in again.story.session(7, 4).turns] == [()] * 6 + [(1,)]


def test_an_opening_picture_is_recalled_after_it_was_dropped(world, tmp_path):
    state = world.spec.state
    picture = torch.full((state.tokens, state.width), 0.5)
    opening = GameSession().open_with("Miko stands", played(world, tmp_path / "x", [PLAIN]).session.turns[0].state)
    opening = replace(opening, turns=(replace(opening.turns[0], state=type(opening.turns[0].state)(picture, 1)),))
    player = Player(world, opened(world, tmp_path), PlaySettings(), opening=opening)
    for line in (*[PLAIN] * (CACHED_TURNS + 2), ASKED):
        player.step(line)
    assert player.session.turns[-1].recalled == (0,)
    resumed = played(world, tmp_path, [ASKED], after=CACHED_TURNS + 2)
    assert resumed.session.turns[-1].address == player.session.turns[-1].address
    loaded = resumed.story.load_session(resumed.story.session(CACHED_TURNS + 2, 4))
    assert loaded.recall(ASKED) == (0,), "a graph that loads the story has the picture too"
    bare = replace(loaded, turns=(resumed.story.session(0, 4).turns[0], *loaded.turns[1:]))
    assert predict_turn(world, resumed.models, bare, ASKED).key.recalled == (), "nobody has the picture"


def test_a_graphs_recalled_turns_are_saved_with_it(world, tmp_path):
    player = played(world, tmp_path / "player")
    rules = Rules(consequences=(Consequence("stamina", 100, ("stamina",)),))
    models, session = player.models, GameSession(memory=world.memory, rules=rules)
    for line in GAME:
        session = predict_turn(world, models, session, line).follow(session, len(session.turns))
    turn = session.turns[-1]
    key = shot_key(world, models, PlaySettings(steps=4, guidance="cosine", solver="ddim"), turn, 2.5)
    frames = models.decoder().shoot(turn.state.representation, 2.5, seed=0, steps=1)
    save_turn(opened(world, tmp_path / "graph"), session, "paper", models.precision, key, to_uint8(frames), fps=8)
    saved = opened(world, tmp_path / "graph")
    assert [entry.state for entry in saved.entries] == addresses(player)
    assert (saved.memory, saved.rules) == (world.memory, rules)


def test_play_takes_the_memory_and_names_the_remembered_turns(world, tmp_path, capsys):
    file = tmp_path / "game.txt"
    file.write_text("\n".join(GAME))
    common = ["play", str(file), "--world", str(world.folder), "--out", str(tmp_path), "--steps", "1"]
    assert main(common) == 0 and capsys.readouterr().out.count("  remembered: turn 1\n") == 1
    given = ["--memory", "recent"]
    for name, memory in (("recent", given), ("game", given), ("recent", [])):  # a new story, the one above, and on
        assert main([*common, "--name", name, *memory]) == 0
        assert "remembered" not in capsys.readouterr().out
    assert main([*common, "--memory", "recent", "--recalled-turns", "2"]) == 2
    assert "choose memory recall" in capsys.readouterr().err
    read = (("paper", None), ("reference", 4), ("reference", None), ("as_run", 4))
    kinds = [replace(world, trained_window=window).with_profile(profile).memory.kind for profile, window in read]
    assert kinds == ["recall", "recall", "recent", "recent"], "as the released scripts, which have no other"
