"""Games whose models come from elsewhere, that begin from something, or whose turns were played outside a Player."""

import json
from dataclasses import replace

import pytest
import torch
from test_play import GAME, content, opened, played

from animegamer_core.game.state import GameSession, GameState
from animegamer_core.media.video import read_clip, to_uint8
from animegamer_core.model.latents import StartLatent
from animegamer_core.runtime.presets import Preset, with_preset
from animegamer_core.story.player import LoadedModels, Player, PlaySettings, save_turn
from animegamer_core.story.turn import draw_turn, predict_turn, shot_key, with_opening_address

RESTED = GameSession(opening={"stamina": 90, "social": 10, "entertainment": 10})


class BorrowedModels:
    """Models of a host, which may unload them between uses."""

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


def test_models_are_requested_at_each_use_except_for_known_turns(world, tmp_path):
    first, second = BorrowedModels(world), BorrowedModels(world)
    whole = Player(world, opened(world, tmp_path), PlaySettings(), models=first)
    whole.play(GAME[:2])
    assert first.asked == ["engine", "decoder"] * 2
    again = Player(world, opened(world, tmp_path), PlaySettings(), models=second)
    again.play(GAME[:2])
    assert second.asked == []
    assert content(again.story.folder) == content(played(world, tmp_path / "own", GAME[:2]).story.folder)
    second.precision = "bfloat16+float32"
    turn = Player(world, opened(world, tmp_path / "bf16"), PlaySettings(), models=second).step(GAME[0]).turn
    assert turn.address != again.session.turns[0].address, "the precision of the models is in the addresses"


def test_an_opening_picture_is_used_by_the_engine_and_saved(world, tmp_path, monkeypatch):
    opening = RESTED.open_with("Miko waves", picture(world))
    player = Player(world, opened(world, tmp_path), PlaySettings(), opening=opening)
    player.play(GAME[:1])
    assert opened(world, tmp_path).session(1, 4).picture is not None, "it is saved with the first turn"
    player.play(GAME[1:2])
    state = player.models.engine().predict([opening.turns[0]], GAME[0])
    assert torch.equal(player.session.turns[1].state.representation, state.representation)
    assert [turn.number for turn in player.session.turns] == [0, 1, 2]
    unsaved = replace(opening, window=player.session.window, memory=world.memory)
    outside = predict_turn(world, player.models, unsaved, GAME[0]).follow(unsaved, 0)
    assert outside.turns[1].address == player.session.turns[1].address, "the opening counts before it is saved, too"
    assert [path.name for path in player.finish()][:2] == ["turn-001.mp4", "turn-002.mp4"]
    assert played(world, tmp_path / "plain", GAME[:2]).story.entries[0].state != player.story.entries[0].state
    later = Player(world, opened(world, tmp_path), PlaySettings(), after=2)
    assert later.session.character == player.session.character and later.session.picture is not None
    assert later.step(GAME[2]).turn.number == 3
    monkeypatch.setattr(type(world), "load_engine", lambda *_: pytest.fail("an engine was loaded for known turns"))
    again = Player(world, opened(world, tmp_path), PlaySettings(), opening=opening)
    again.play(GAME[:3])
    assert again.story.branch == "main" and len(again.story.entries) == 3


# Turns of a graph


def graph(world, opening=None):
    """A game played without a story, and its shots: [(session after turn n, shot's key, frames)]."""
    models, turns = LoadedModels(world, PlaySettings()), []
    session = replace(opening or GameSession(), memory=world.memory)
    for number, instruction in enumerate(GAME[:3]):
        session = with_opening_address(world.fingerprint, session)
        session = predict_turn(world, models, session, instruction).follow(session, number)
        turn = session.turns[-1]
        settings = with_preset(Preset(""), PlaySettings(), world)
        key = shot_key(world, models, settings, turn, world.motion_table.value(turn.state.motion))
        assert key.seed == number and replace(key, seed=0) == shot_key(world, models, settings, turn, key.motion, 0)
        start = StartLatent(torch.zeros(1), 0.4)
        begun = shot_key(world, models, settings, turn, key.motion, start=start)
        assert begun == replace(key, latent=start.digest, denoise=0.4)
        decoder = models.decoder()
        turns.append((session, key, to_uint8(decoder.decode_vae(draw_turn(decoder, turn, key))[0])))
    return turns


def keep(world, root, turns, order):
    for index in order:
        story = opened(world, root)
        session, shot, frames = turns[index]
        save_turn(story, session, world.profile.name, shot.precision, shot, frames, world.spec.decoder.fps)
    return opened(world, root)


@pytest.mark.parametrize("with_opening, order", [(False, (0, 1, 2)), (False, (1, 2, 0, 2)), (True, (2, 1, 0))])
def test_a_graphs_game_saved_in_any_order_equals_a_players(world, tmp_path, with_opening, order):
    opening = RESTED.open_with("Miko waves", picture(world)) if with_opening else None
    turns = graph(world, opening)
    story = keep(world, tmp_path / "graph", turns, order)
    player = Player(world, opened(world, tmp_path / "player"), PlaySettings(), opening=opening)
    player.play(GAME[:3])
    assert content(story.folder) == content(player.story.folder)
    note, entry = json.loads(read_clip(story.clips()[2]).metadata["animegamer"]), story.entries[1]
    assert (note["turn"], note["instruction"], note["seed"], note["state"]) == (2, GAME[1], 1, entry.state)
    retake = turns[0][0], replace(turns[0][1], seed=9), turns[0][2]
    assert len(keep(world, tmp_path / "graph", [retake], [0]).entries) == 3, "a turn keeps those after it"


def test_each_turns_window_is_its_own_and_its_model_too(world, tmp_path):
    (session, shot, frames) = graph(world)[1]
    profile, story = world.profile.name, opened(world, tmp_path)
    with pytest.raises(ValueError, match="turn 1 was predicted and drawn with different models"):
        save_turn(story, session, profile, "float16", shot, frames, 8.0)
    turns = tuple(replace(turn, state=replace(turn.state, representation=None)) for turn in session.turns)
    with pytest.raises(ValueError, match="representation of turn 1 is not in memory"):
        save_turn(story, replace(session, turns=turns), profile, shot.precision, shot, frames, 8.0)
    with pytest.raises(ValueError, match="opening picture"):
        opening = GameSession().open_with("Miko waves", picture(world))
        save_turn(story, opening, profile, shot.precision, shot, frames, 8.0)
    assert not (tmp_path / "game").exists()
    save_turn(story, replace(session, window=0), profile, shot.precision, shot, frames, 8.0)
    assert [story.states.record(entry.state)["key"]["window"] for entry in story.entries] == [4, 4]
    assert opened(world, tmp_path).entries[1].state == session.turns[1].address
