"""Predicting ahead: the next turn is predicted while a shot is drawn, and the story is the same."""

import os
import subprocess
import sys
import threading

import pytest
import torch
from test_play import GAME, ROOT, content, opened

from animegamer_core.runtime.cfg_parallel import replicas
from animegamer_core.runtime.models import LoadedModels
from animegamer_core.state import GameSession, GameState
from animegamer_core.story.player import Player, PlaySettings
from animegamer_core.story.story import Story

WAIT = 60  # seconds until the barrier fails


class Watched(LoadedModels):
    """The world's models; records each prediction and its thread. meet: a barrier for engine and decoder."""

    def __init__(self, world, meet=None):
        super().__init__(world, PlaySettings())
        self.meet = meet
        self.read = []
        self.drawn = 0

    def engine(self):
        engine, models = super().engine(), self

        class Reader:
            def predict(self, past, instruction):
                models.read.append((instruction, threading.current_thread()))
                if models.meet is not None and len(models.read) > 1:
                    models.meet.wait()
                return engine.predict(past, instruction)

        return Reader()

    def decoder(self):
        self.drawn += 1
        if self.meet is not None and self.drawn < len(GAME):
            self.meet.wait()
        return super().decoder()


def play(world, root, instructions, ahead=True, models=None, after=0, **callbacks):
    player = Player(world, opened(world, root), PlaySettings(), after, models)
    player.play(instructions, ahead=ahead, **callbacks)
    return player


@pytest.fixture(scope="module")
def plain(world, tmp_path_factory):
    return content(play(world, tmp_path_factory.mktemp("plain"), GAME, ahead=False).story.folder)


def test_the_next_turn_is_predicted_while_a_shot_is_drawn(world, tmp_path, plain):
    seen = []

    def on_turn(played):
        assert played.clip.is_file() and played.predicted and played.drawn
        seen.append((played.turn.number, len(opened(world, tmp_path).entries)))

    models = Watched(world, threading.Barrier(2, timeout=WAIT))  # passes only if both work at the same time
    player = play(world, tmp_path, GAME, models=models, on_turn=on_turn)
    assert seen == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert [instruction for instruction, _ in models.read] == list(GAME)
    assert threading.current_thread() not in [thread for _, thread in models.read]
    assert content(player.story.folder) == plain
    assert [turn.instruction for turn in player.session.turns] == list(GAME)


both_ways = pytest.mark.parametrize("ahead", [True, False])


@both_ways
def test_known_turns_load_no_model(world, tmp_path, plain, ahead):
    play(world, tmp_path, GAME[:3], ahead)
    models = Watched(world)
    again = play(world, tmp_path, GAME[:3], ahead, models)
    assert (models.read, models.drawn) == ([], 0)
    models = Watched(world)
    play(world, tmp_path, GAME, ahead, models)
    assert [instruction for instruction, _ in models.read] == [GAME[3]] and models.drawn == 1
    assert content(again.story.folder) == plain


@both_ways
def test_an_interruption_while_drawing_keeps_the_turns_before_and_nothing_half(world, tmp_path, plain, ahead):
    steps = []

    def stop(done, total, latent):
        steps.append(done)
        if steps.count(1) == 3 and done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(world, tmp_path, GAME, ahead, on_step=stop)
    story = opened(world, tmp_path)
    assert len(story.entries) == 2 and len(story.session(2, 4).turns) == 2
    assert not list(story.folder.rglob("part-*"))
    states = {path.stem for path in (story.folder / "turns").glob("*.json")}
    assert len(states) == 3  # turn 4, predicted ahead, is not saved yet
    again = play(world, tmp_path, GAME, ahead)
    assert content(again.story.folder) == plain


PLAY = """
import sys
from pathlib import Path
from animegamer_core.checkpoint import open_world
from animegamer_core.story.player import Player, PlaySettings
from animegamer_core.story.story import Story

world = open_world(sys.argv[1])
player = Player(world, Story.open(Path(sys.argv[2]), "game", world.spec.name, world.fingerprint), PlaySettings())
player.play(sys.argv[3:], lambda played: print(played.turn.number, flush=True), ahead=True)
"""


def test_a_kill_loses_the_turn_in_progress_only(world, tmp_path):
    lines = GAME * 3
    command = [sys.executable, "-c", PLAY, str(world.folder), str(tmp_path / "killed"), *lines]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        reported = next(int(line) for line in process.stdout if int(line) == 4)
        process.kill()
    entered = len(opened(world, tmp_path / "killed").entries)
    assert reported <= entered < len(lines)
    again = play(world, tmp_path / "killed", lines[: entered + 1])
    whole = play(world, tmp_path / "whole", lines[: entered + 1], ahead=False)
    assert content(again.story.folder) == content(whole.story.folder)


class Failing(Watched):
    """An engine that cannot read the third turn."""

    def engine(self):
        reader, models = super().engine(), self
        plain = reader.predict

        def predict(past, instruction):
            if len(models.read) == 2:
                raise ValueError("the engine failed")
            return plain(past, instruction)

        reader.predict = predict
        return reader


def test_an_error_ahead_is_raised_in_its_turn(world, tmp_path, plain):
    seen = []
    with pytest.raises(ValueError, match="the engine failed"):
        play(world, tmp_path, GAME, models=Failing(world), on_turn=lambda played: seen.append(played.turn.number))
    assert seen == [1, 2] and len(opened(world, tmp_path).entries) == 2
    assert content(play(world, tmp_path, GAME).story.folder) == plain


@both_ways
@pytest.mark.parametrize("place", [0, 2])
def test_an_empty_instruction_stops_the_game_there(world, tmp_path, place, ahead):
    play(world, tmp_path, [], ahead)
    assert not (tmp_path / "game").exists(), "no instructions write nothing"
    with pytest.raises(ValueError, match="the instruction is empty"):
        play(world, tmp_path, [*GAME[:place], " \n", *GAME[place:]], ahead)
    assert (tmp_path / "game").exists() == bool(place) and len(opened(world, tmp_path).entries) == place


def test_a_callback_may_rewind(world, tmp_path):
    """A prediction ahead of a rewound turn is discarded."""

    def play_and_go_back(root, ahead):
        player = Player(world, opened(world, root), PlaySettings())

        def on_turn(played):
            if played.turn.number == 2 and played.turn.instruction == GAME[1]:
                player.rewind(1)

        player.play(GAME, on_turn, ahead=ahead)
        return player

    back, straight = play_and_go_back(tmp_path / "a", True), play_and_go_back(tmp_path / "b", False)
    assert [turn.instruction for turn in back.session.turns] == [GAME[0], GAME[2], GAME[3]]
    assert [turn.address for turn in back.session.turns] == [turn.address for turn in straight.session.turns]
    assert [entry.shot for entry in back.story.entries] == [entry.shot for entry in straight.story.entries]


def test_an_opening_and_a_resumed_game_are_the_same_ahead(world, tmp_path):
    state = world.spec.state
    picture = GameState.of_picture(torch.full((state.tokens, state.width), 0.5))
    opening = GameSession(opening={"stamina": 90, "social": 10, "entertainment": 10}).open_with("Miko waves", picture)
    folders = {}
    for ahead in (True, False):
        story = Story.open(tmp_path / str(ahead), "game", world.spec.name, world.fingerprint)
        Player(world, story, PlaySettings(), opening=opening).play(GAME[:2], ahead=ahead)
        folders[ahead] = play(world, tmp_path / str(ahead), GAME[2:], ahead, after=2).story.folder
    assert content(folders[True]) == content(folders[False])


def test_an_offloaded_engine_cannot_predict_ahead(world, tmp_path, monkeypatch):
    monkeypatch.setattr("animegamer_core.runtime.offloading.is_offloaded", lambda model: True)
    with pytest.raises(ValueError, match="give it a device of its own"):
        play(world, tmp_path, GAME)
    assert len(play(world, tmp_path, GAME[:1], ahead=False).story.entries) == 1


@pytest.mark.parametrize(
    "engine, decoder, apart, precision",
    [
        (None, "cpu", False, "float32"),
        ("cpu:0", "cpu", False, "float32"),
        ("cpu", "cuda", True, "float32+stored"),
        ("cuda:0", "cuda", False, "stored"),
        ("cuda:1", "cuda", True, "stored"),
    ],
)
def test_an_engine_on_a_device_of_its_own(engine, decoder, apart, precision):
    settings = PlaySettings(device=decoder, engine_device=engine)
    assert (settings.engine_is_apart, settings.precision) == (apart, precision)


def test_how_shots_are_drawn_is_in_the_address_of_shots_only(world, tmp_path):
    plain = play(world, tmp_path, GAME[:1]).story.entries[0]
    player = Player(world, opened(world, tmp_path), PlaySettings(precision_suffix="+first_block"))
    entry = player.play(GAME[:1]) and player.story.entries[0]
    assert entry.state == plain.state and entry.shot != plain.shot
    assert player.story.shots.record(entry.shot)["key"]["precision"] == "float32+first_block"


def test_a_second_device_gives_the_decoder_a_copy(world):
    assert len(replicas(LoadedModels(world, PlaySettings(cfg_parallel="cpu")).decoder())) == 2
    assert len(replicas(LoadedModels(world, PlaySettings()).decoder())) == 1
