"""Games whose models come from elsewhere, that begin from something, or whose turns were played outside a Player."""

from dataclasses import replace

import pytest
import torch
from test_play import GAME, content, opened, played
from test_play import world as tiny_world_fixture

from animegamer_core.play import LoadedModels, Player, PlaySettings, keep_turn, state_key
from animegamer_core.shelf import ShotKey, address_of, with_opening_address
from animegamer_core.state import KEPT_TURNS, CharacterState, GameSession, GameState
from animegamer_core.video import read_clip, to_uint8

world = tiny_world_fixture


class Lent:
    """Models that may be taken away between uses, as a host with little memory does."""

    def __init__(self, world):
        self.own = LoadedModels(world, PlaySettings())
        self.precision = "float32"
        self.asked = []

    def engine(self):
        self.asked.append("engine")
        return self.own.engine()

    def decoder(self):
        self.asked.append("decoder")
        return self.own.decoder()


def picture(world, value=0.5):
    state = world.spec.state
    return GameState.of_picture(torch.full((state.tokens, state.width), value))


def test_models_are_asked_for_at_each_use_and_not_for_known_turns(world, tmp_path):
    first, second = Lent(world), Lent(world)
    whole = Player(world, opened(world, tmp_path), PlaySettings(), models=first)
    whole.play(GAME[:2])
    assert first.asked == ["engine", "decoder"] * 2
    again = Player(world, opened(world, tmp_path), PlaySettings(), models=second)
    again.play(GAME[:2])
    assert second.asked == []
    assert content(again.story.folder) == content(played(world, tmp_path / "own", GAME[:2]).story.folder)


def test_the_precision_of_the_models_is_in_the_addresses(world, tmp_path):
    lent = Lent(world)
    lent.precision = "bfloat16+float32"
    player = Player(world, opened(world, tmp_path), PlaySettings(), models=lent)
    turn = player.step(GAME[0]).turn
    assert turn.address != played(world, tmp_path / "own", GAME[:1]).session.turns[0].address
    assert player.story.states.record(turn.address)["key"]["precision"] == "bfloat16+float32"


def test_an_opening_picture_is_read_by_the_engine_and_comes_back(world, tmp_path, unloadable_engine):
    opening = GameSession(opening=CharacterState(90, 10, 10)).open_with("Miko waves", picture(world))
    player = Player(world, opened(world, tmp_path), PlaySettings(), opening=opening)
    player.play(GAME[:2])
    past = [opening.turns[0]]
    state = player.models.engine().predict(past, GAME[0])
    assert torch.equal(player.session.turns[1].state.representation, state.representation)
    assert [turn.number for turn in player.session.turns] == [0, 1, 2]
    assert [path.name for path in player.finish()][:2] == ["turn-001.mp4", "turn-002.mp4"]
    plain = played(world, tmp_path / "plain", GAME[:2])
    assert plain.story.entries[0].state != player.story.entries[0].state
    later = Player(world, opened(world, tmp_path), PlaySettings(), after=2)
    assert later.session.character == player.session.character and later.session.picture is not None
    assert later.step(GAME[2]).turn.number == 3
    unloadable_engine()
    again = Player(world, opened(world, tmp_path), PlaySettings(), opening=opening)
    again.play(GAME[:3])
    assert again.story.line == "main" and len(again.story.entries) == 3


@pytest.fixture
def unloadable_engine(world, monkeypatch):
    def forbid():
        monkeypatch.setattr(type(world), "load_engine", lambda *_: pytest.fail("an engine was loaded for known turns"))

    return forbid


def test_a_line_keeps_its_own_opening(world, tmp_path):
    opening = GameSession().open_with("Miko waves", picture(world))
    story = Player(world, opened(world, tmp_path), PlaySettings(), opening=opening)
    story.play(GAME[:1])
    kept = Player(world, opened(world, tmp_path), PlaySettings(), after=0)
    assert kept.session.picture is not None
    with pytest.raises(ValueError, match="began with another opening"):
        Player(world, opened(world, tmp_path), PlaySettings(), after=1, opening=GameSession())
    other = GameSession().open_with("Miko waves", picture(world, 0.25))
    with pytest.raises(ValueError, match="began with another opening"):
        Player(world, opened(world, tmp_path), PlaySettings(), after=1, opening=other)
    Player(world, opened(world, tmp_path), PlaySettings(), after=1, opening=opening).step(GAME[1])
    plain = Player(world, opened(world, tmp_path), PlaySettings(), opening=GameSession())
    plain.step(GAME[0])
    assert plain.story.lines() == ["main", "line-2"] and plain.session.picture is None


# Turns of a graph


def graph(world, opening=None, window=4, instructions=GAME[:3]):
    """A game played without a story, and its shots: [(session after turn n, shot's key, frames)]."""
    models, session, turns = LoadedModels(world, PlaySettings()), opening or GameSession(window=window), []
    for number, instruction in enumerate(instructions):
        session = with_opening_address(world.fingerprint, session)
        key = state_key(world.fingerprint, session, instruction, world.profile.name, "float32")
        state = models.engine().predict(session.past(), instruction)
        session = session.step(instruction, state, number, address_of(key))
        spec, motion = world.spec.decoder, world.motion_table.value(state.motion)
        shot = ShotKey(
            world.fingerprint, "", number, float(motion), spec.steps, world.profile.guidance, models.precision
        )
        frames = models.decoder().shoot(state.representation, motion, seed=number)
        turns.append((session, shot, to_uint8(frames)))
    return turns


def keep(world, root, turns, order):
    for index in order:
        story = opened(world, root)
        session, shot, frames = turns[index]
        keep_turn(story, session, world.profile.name, shot.precision, shot, frames, world.spec.decoder.fps)
    return opened(world, root)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0, 2)])
def test_a_graphs_game_kept_in_any_order_is_the_game_that_a_player_plays(world, tmp_path, order):
    story = keep(world, tmp_path / "graph", graph(world), order)
    assert content(story.folder) == content(played(world, tmp_path / "player", GAME[:3]).story.folder)


def test_an_opened_graphs_game_is_kept_with_its_opening(world, tmp_path):
    opening = GameSession(opening=CharacterState(90, 10, 10)).open_with("Miko waves", picture(world))
    story = keep(world, tmp_path / "graph", graph(world, opening), (2, 1, 0))
    player = Player(world, opened(world, tmp_path / "player"), PlaySettings(), opening=opening)
    player.play(GAME[:3])
    assert content(story.folder) == content(player.story.folder)


def test_an_opened_graphs_game_is_kept_after_it_let_its_picture_go(world, tmp_path):
    opening = GameSession().open_with("Miko waves", picture(world))
    turns = graph(world, opening, instructions=[f"Miko runs {number}" for number in range(KEPT_TURNS)])
    assert turns[-1][0].picture.state.representation is None
    story = keep(world, tmp_path, turns, (0, -1))
    assert len(story.entries) == KEPT_TURNS and story.session(KEPT_TURNS, 4).picture is not None


def test_a_kept_turn_tells_its_story_in_its_metadata(world, tmp_path):
    import json

    story = keep(world, tmp_path, graph(world), (0, 1))
    note = json.loads(read_clip(story.clips()[2]).metadata["animegamer"])
    entry = story.entries[1]
    assert (note["turn"], note["instruction"], note["seed"], note["state"]) == (2, GAME[1], 1, entry.state)


def test_each_turns_window_is_its_own(world, tmp_path):
    turns = graph(world)
    session = replace(turns[1][0], window=0)
    story = opened(world, tmp_path)
    keep_turn(story, session, world.profile.name, turns[1][1].precision, *turns[1][1:], world.spec.decoder.fps)
    assert [story.states.record(entry.state)["key"]["window"] for entry in story.entries] == [4, 4]
    assert opened(world, tmp_path).entries[1].state == turns[1][0].turns[1].address


def test_a_turn_of_another_model_is_refused(world, tmp_path):
    session, shot, frames = graph(world)[1]
    with pytest.raises(ValueError, match="turn 1 was predicted with another model"):
        keep_turn(opened(world, tmp_path), session, world.profile.name, "float16", shot, frames, 8.0)
    faded = replace(
        session, turns=tuple(replace(t, state=replace(t.state, representation=None)) for t in session.turns)
    )
    with pytest.raises(ValueError, match="turn 1 let its representation go"):
        keep_turn(opened(world, tmp_path), faded, world.profile.name, shot.precision, shot, frames, 8.0)
    with pytest.raises(ValueError, match="opening picture"):
        opening = GameSession().open_with("Miko waves", picture(world))
        keep_turn(opened(world, tmp_path), opening, world.profile.name, shot.precision, shot, frames, 8.0)
    assert not (tmp_path / "game").exists()
