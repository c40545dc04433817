"""What training games leave out, and instructions that refer back."""

import hashlib
import itertools
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from animegamer_core.data.records import ClipRecord
from animegamer_core.game.recall import named_in
from animegamer_core.toybox import splits
from animegamer_core.toybox.dataset import DatasetGames, write_dataset
from animegamer_core.toybox.games import opening_game, sample_game, sparse_game
from animegamer_core.toybox.referring import HEADS, WINDOW, answers, chance
from animegamer_core.toybox.splits import NOVELTIES, SPLITS, Casting, castings, novelties
from animegamer_core.toybox.world import (
    ADVERBS,
    CHARACTERS,
    MOTIONS,
    PLACES,
    PROPS,
    caption,
    instruction,
    vocabulary,
    words,
)

SEEDS = st.integers(0, 2**40)
TRAINED = sorted({"train", "heldout"})


def scenes_of(game):
    return game.scenes if game.opening is None else (game.opening, *game.scenes)


def hard_scenes(split, seeds, make=sample_game):
    return [scene for seed in seeds for scene in scenes_of(make(seed, split=split))]


def test_the_games_are_those_that_the_shipped_weights_were_trained_on():
    """Recorded: fields and instructions of 420 seeds, with and without opening."""
    fields = "character partner motion place time prop prop_colour prop_told amplitude seed refers".split()
    digest = hashlib.sha256()
    for split, seed in itertools.product(SPLITS, range(60)):
        others = opening_game(seed, split=split), sparse_game(seed, (2, 7), turns=9, split=split)
        games = (sample_game(seed, split=split, turns=1 + seed % 13), *others)
        for scene in (scene for game in games for scene in (game.opening, *game.scenes)):
            digest.update(repr(scene and tuple(getattr(scene, name) for name in fields)).encode())
            digest.update(instruction(scene, 3).encode() if scene else b"")
    assert digest.hexdigest() == "3073ce0e8c514ebc66e91c5c7f6a0768ad1f3e2e3be1cbffa1da1f8244190086"


def test_the_tables_allow_no_kept_pair_in_training_and_every_other_one():
    trained = castings("train")
    assert not {(row.motion, row.place) for row in trained} & splits.NEW_SETTINGS
    shown = {(name, row.place) for row in trained for name in (row.character, row.partner) if name}
    assert not shown & splits.NEW_PLACES
    assert all(CHARACTERS[row.character].film == CHARACTERS[row.partner or row.character].film for row in trained)
    pairs = set(itertools.product(CHARACTERS, MOTIONS))
    assert {(row.character, row.motion) for row in trained} == pairs - splits.NEW_MOTIONS - splits.NEW_PARTNERS
    for split in NOVELTIES:
        rows = castings(split)
        assert rows and all(novelties(row) == {split} for row in rows), "new in one way alone"


@given(SEEDS, st.sampled_from(sorted(SPLITS)), st.integers(1, 14))
def test_every_scene_of_a_split_is_new_in_its_way_alone(seed, split, turns):
    for make in (sample_game, opening_game):
        game = make(seed, split=split, turns=turns)
        assert game == make(seed, split=split, turns=turns)
        scenes = scenes_of(game)
        assert all(novelties(Casting.of(scene)) == SPLITS[split] for scene in scenes)
        lowest = {"train": 0, "heldout": 1}.get(split, 2)
        assert {scene.seed % 4 for scene in scenes} == {lowest}, "the probes' own are 3"


@given(SEEDS, st.sampled_from(TRAINED))
def test_a_reference_is_answered_by_the_turns_before_and_not_by_its_words(seed, split):
    game = opening_game(seed, split=split) if seed % 2 else sample_game(seed, split=split)
    scenes = game.scenes
    assert scenes[0].refers is None
    for turn, scene in enumerate(scenes):
        if scene.refers is None:
            assert instruction(scene, 3) == caption(scene, 3)
            continue
        before, text = scenes[max(0, turn - WINDOW) : turn], set(words(instruction(scene, 3)))
        couples = [other for other in before if other.partner]
        source = couples[-1] if scene.refers in ("they", "friend") else before[-1]
        for head in HEADS[scene.refers]:
            assert getattr(scene, head) == getattr(source, head)
            assert (getattr(scene, head) or "nobody").lower() not in text, "the words do not say it"
        assert len(answers(scene)) > 1 and chance(scene) <= 0.5
        assert set(words(caption(scene, 3))) & set(ADVERBS[3])


def test_references_read_as_english_and_are_made_of_known_words():
    scene = next(scene for scene in hard_scenes("train", range(900)) if scene.refers == "friend" and not scene.prop)
    who = CHARACTERS[scene.character].pronoun
    said = instruction(scene, 3)
    assert said.startswith(f"Character: {who}; Motion: ") and " the friend from before; Background: " in said
    known = set(vocabulary(references=True))
    assert len(known) <= 120 and set(vocabulary()) < known
    for scene in hard_scenes("heldout", range(60)):
        assert set(words(instruction(scene, 2))) <= known
        named = named_in(instruction(scene, 2))
        assert {thing for phrase in named.things for thing in phrase} <= {*PROPS, "friend", "guitar"}
        assert set(named.scene) <= {name.lower() for name in (*CHARACTERS, *PLACES)}


def test_a_guess_is_right_as_often_as_there_are_few_answers():
    scene = next(scene for scene in hard_scenes("train", range(99)) if scene.refers == "place")
    fitting = [row.place for row in castings("train") if row[:3] == Casting.of(scene)[:3]]
    assert chance(scene) == 1 / len(set(fitting)) and scene.place in fitting
    with pytest.raises(ValueError, match="does not refer back"):
        chance(sample_game(1).scenes[0])


def test_a_dataset_keeps_what_is_said_apart_from_what_is_shown(tmp_path, monkeypatch):
    monkeypatch.setattr("animegamer_core.toybox.dataset.draw_shot", lambda scene: np.zeros((17, 8, 8, 3), np.uint8))
    monkeypatch.setattr("animegamer_core.toybox.dataset.motion_value", lambda clip: next(values))
    values = map(float, range(1, 99))
    games = DatasetGames(games=3, held_out=1, turns=6)
    folder = write_dataset(tmp_path, games, workers=1, pictures_only=True)
    scenes = [scene for row in games.scenes().values() for scene in row]
    assert any(scene.refers for scene in scenes)
    for turn, scene in zip(folder.turns, scenes, strict=True):
        assert turn.instruction == instruction(scene, turn.motion_level)
        assert turn.caption == caption(scene, turn.motion_level) and turn.motion_text in turn.caption
        assert (turn.said is None) == (scene.refers is None)
        assert msgspec.json.decode(turn.to_json(), type=ClipRecord) == turn


@pytest.mark.parametrize(("share", "matched"), [(0.0, 1.0), (0.8, 0.2), (1.0, 0.0)])
def test_unmatched_adverbs_say_another_level_in_training_only(tmp_path, monkeypatch, share, matched):
    monkeypatch.setattr("animegamer_core.toybox.dataset.draw_shot", lambda scene: np.zeros((17, 8, 8, 3), np.uint8))
    monkeypatch.setattr("animegamer_core.toybox.dataset.motion_value", lambda clip: next(values))
    values = map(float, range(1, 999))
    games = DatasetGames(games=12, held_out=2, unmatched_adverbs=share)
    folder = write_dataset(tmp_path, games, workers=1, pictures_only=True)
    levels = {word: level for level, words in ADVERBS.items() for word in words}
    scenes = games.scenes()
    for turn in folder.turns:
        level = levels[turn.adverb]
        scene = scenes[turn.film][int(Path(turn.clip).stem[-2:])]
        assert turn.instruction == instruction(scene, level), "what refers back says the same adverb"
        assert level == turn.motion_level or turn.film.startswith("train")
    rows = [levels[turn.adverb] == turn.motion_level for turn in folder.turns if turn.film.startswith("train")]
    assert np.mean(rows) == pytest.approx(matched, abs=0.12 if 0 < share < 1 else 0)
