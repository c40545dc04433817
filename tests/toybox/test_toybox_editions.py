"""What the games of each edition keep from training, and instructions that refer back."""

import hashlib
import itertools
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from animegamer_core.data.records import ClipRecord
from animegamer_core.game.recall import named_in
from animegamer_core.toybox.dataset import DatasetGames, write_dataset
from animegamer_core.toybox.editions import EDITION_NOTE, EDITIONS, FIRST, NOVELTIES, SECOND, Casting, edition_of
from animegamer_core.toybox.games import opening_game, sample_game, sparse_game
from animegamer_core.toybox.referring import HEADS, WINDOW, answers, chance
from animegamer_core.toybox.world import (
    ADVERBS,
    CHARACTERS,
    MOTIONS,
    PLACES,
    PROPS,
    REFERENCES,
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
    return [scene for seed in seeds for scene in scenes_of(make(seed, split=split, edition=SECOND))]


def test_the_first_edition_draws_the_games_that_the_shipped_weights_were_trained_on():
    """Recorded before there was a second one: fields and instructions of 180 seeds, with and without opening."""
    fields = "film character partner motion place time prop prop_colour prop_told amplitude seed".split()
    digest = hashlib.sha256()
    for split, seed in itertools.product(("train", "heldout", "unseen"), range(60)):
        games = (
            sample_game(seed, split=split, turns=1 + seed % 13),
            opening_game(seed, split=split),
            sparse_game(seed, (2, 7), turns=9, split=split),
        )
        for scene in (scene for game in games for scene in (game.opening, *game.scenes)):
            digest.update(repr(scene and tuple(getattr(scene, name) for name in fields)).encode())
            digest.update(instruction(scene, 3).encode() if scene else b"")
    assert digest.hexdigest() == "0455326b0dd763ca3de370f3a97e7675ec425d60de4129fafab9b622334521c0"


def test_the_second_edition_keeps_one_in_six_of_every_kind_of_pair_from_training():
    kinds = (
        (SECOND.motions, CHARACTERS, MOTIONS),
        (SECOND.places, CHARACTERS, PLACES),
        (SECOND.settings, MOTIONS, PLACES),
    )
    for pairs, first, second in kinds:
        assert len(pairs) / (len(first) * len(second)) >= 0.15
        assert {one for one, _ in pairs} == set(first) and {other for _, other in pairs} == set(second), (
            "spread over all"
        )
    ((motion,),) = {frozenset(motion for _, motion in SECOND.partners)}
    assert MOTIONS[motion].partner and len({name for name, _ in SECOND.partners}) == 2
    assert not SECOND.partners & SECOND.motions, "a kind of its own"


def test_the_tables_allow_no_kept_pair_in_training_and_every_other_one():
    trained = SECOND.castings("train")
    assert not {(row.character, row.motion) for row in trained} & (SECOND.motions | SECOND.partners)
    assert not {(row.motion, row.place) for row in trained} & SECOND.settings
    shown = {(name, row.place) for row in trained for name in (row.character, row.partner) if name}
    assert not shown & SECOND.places
    assert all(CHARACTERS[row.character].film == CHARACTERS[row.partner or row.character].film for row in trained)
    pairs = set(itertools.product(CHARACTERS, MOTIONS))
    assert {(row.character, row.motion) for row in trained} == pairs - SECOND.motions - SECOND.partners
    assert {(row.character, row.place) for row in trained} == set(itertools.product(CHARACTERS, PLACES)) - SECOND.places
    assert {(row.motion, row.place) for row in trained} == set(itertools.product(MOTIONS, PLACES)) - SECOND.settings
    for split in SECOND.new_splits:
        rows = SECOND.castings(split)
        assert rows and all(SECOND.novelties(row) == {split} for row in rows), "new in one way alone"
    assert set(SECOND.new_splits) == set(NOVELTIES)


@pytest.mark.parametrize("make", [sample_game, opening_game])
def test_a_thousand_training_games_hold_nothing_new_and_all_the_rest(make):
    drawn = {Casting.of(scene) for scene in hard_scenes("train", range(1000), make)}
    assert drawn <= set(SECOND.castings("train"))
    assert len(drawn) > 0.97 * len(SECOND.castings("train"))


@given(SEEDS, st.sampled_from(sorted(SECOND.splits)), st.integers(1, 14))
def test_every_scene_of_a_split_is_new_in_its_way_alone(seed, split, turns):
    for make in (sample_game, opening_game):
        game = make(seed, split=split, turns=turns, edition=SECOND)
        assert game == make(seed, split=split, turns=turns, edition=SECOND)
        scenes = scenes_of(game)
        assert all(SECOND.novelties(Casting.of(scene)) == SECOND.splits[split] for scene in scenes)
        lowest = {"train": 0, "heldout": 1}.get(split, 2)
        assert {scene.seed % 4 for scene in scenes} == {lowest}, "the probes' own are 3"


def test_each_novelty_occurs_in_all_its_forms():
    for split in SECOND.new_splits:
        drawn = {Casting.of(scene) for scene in hard_scenes(split, range(400))}
        assert len(drawn) > 0.9 * len(SECOND.castings(split)), split


@given(SEEDS, st.sampled_from(TRAINED))
def test_a_reference_is_answered_by_the_turns_before_and_not_by_its_words(seed, split):
    game = (
        opening_game(seed, split=split, edition=SECOND) if seed % 2 else sample_game(seed, split=split, edition=SECOND)
    )
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
        assert len(answers(scene, SECOND)) > 1 and chance(scene, SECOND) <= 0.5
        assert set(words(caption(scene, 3))) & set(ADVERBS[3])


def test_three_turns_in_ten_refer_back_in_every_way():
    scenes = hard_scenes("train", range(400))
    count = Counter(scene.refers for scene in scenes)
    assert set(count) == {None, *REFERENCES}
    assert 0.2 < 1 - count[None] / len(scenes) < 0.3, "the first turn never does"
    assert min(count[kind] for kind in REFERENCES) > 0.02 * len(scenes)


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
        assert {thing for phrase in named.things for thing in phrase} <= {*PROPS, "friend"}
        assert set(named.scene) <= {name.lower() for name in (*CHARACTERS, *PLACES)}


def test_a_guess_is_right_as_often_as_there_are_few_answers():
    scene = next(scene for scene in hard_scenes("train", range(99)) if scene.refers == "place")
    fitting = [row.place for row in SECOND.castings("train") if row[:3] == Casting.of(scene)[:3]]
    assert chance(scene, SECOND) == 1 / len(set(fitting)) and scene.place in fitting
    with pytest.raises(ValueError, match="does not refer back"):
        chance(sample_game(1).scenes[0], SECOND)


def test_a_dataset_keeps_what_is_said_apart_from_what_is_shown(tmp_path, monkeypatch):
    monkeypatch.setattr("animegamer_core.toybox.dataset.draw_shot", lambda scene: np.zeros((17, 96, 144, 3), np.uint8))
    monkeypatch.setattr("animegamer_core.toybox.dataset.motion_value", lambda clip: next(values))
    values = map(float, range(1, 99))
    games = DatasetGames(games=3, held_out=1, turns=6, edition=2)
    folder = write_dataset(tmp_path, games, workers=1, pictures_only=True)
    scenes = [scene for row in games.scenes().values() for scene in row]
    assert any(scene.refers for scene in scenes)
    for turn, scene in zip(folder.turns, scenes, strict=True):
        assert turn.instruction == instruction(scene, turn.motion_level)
        assert turn.caption == caption(scene, turn.motion_level) and turn.motion_text in turn.caption
        assert (turn.said is None) == (scene.refers is None)
        assert msgspec.json.decode(turn.to_json(), type=ClipRecord) == turn
    assert games.facts["edition"] == 2 and "edition" not in DatasetGames(1, 1).facts


@pytest.mark.parametrize(("share", "matched"), [(0.0, 1.0), (0.8, 0.2), (1.0, 0.0)])
def test_unmatched_adverbs_say_another_level_in_training_only(tmp_path, monkeypatch, share, matched):
    monkeypatch.setattr("animegamer_core.toybox.dataset.draw_shot", lambda scene: np.zeros((17, 96, 144, 3), np.uint8))
    monkeypatch.setattr("animegamer_core.toybox.dataset.motion_value", lambda clip: next(values))
    values = map(float, range(1, 999))
    games = DatasetGames(games=12, held_out=2, edition=2, unmatched_adverbs=share)
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
    assert games.facts.get("unmatched_adverbs", 0.0) == share


def test_a_world_says_which_edition_it_was_trained_on():
    assert edition_of({}) is FIRST and edition_of({EDITION_NOTE: "2"}) is SECOND
    with pytest.raises(ValueError, match="this program knows 1, 2"):
        edition_of({EDITION_NOTE: "3"})
    assert all(number == edition.number for number, edition in EDITIONS.items())
