"""The Toybox's pictures, games and sentences: what everything else relies on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from animegamer_core.toybox.dataset import DatasetGames, write_dataset
from animegamer_core.toybox.drawing.draw import draw_figures, draw_frame, draw_shot
from animegamer_core.toybox.games import opening_game, sample_game, sparse_game
from animegamer_core.toybox.scenes import probe_scene, toybox_motion
from animegamer_core.toybox.sentences import instruction, tables, vocabulary
from animegamer_core.toybox.world import ADVERBS, CHARACTERS, FILMS, MOTIONS, PLACES, PROPS, TIMES, caption, words


def scenes_of(split, count):
    return [scene for seed in range(count) for scene in sample_game(seed, split=split).scenes]


SCENE = replace(probe_scene(7), motion="talk", character="Miko", partner="Nova", film="meadow", amplitude=5.0)


def test_the_tables_hold_five_films_of_four_characters_and_words_of_one_token():
    assert [sum(row.film == film for row in CHARACTERS.values()) for film in FILMS] == [4] * 5
    assert len(MOTIONS) == 20 and sum(row.partner for row in MOTIONS.values()) >= 5
    assert len(PLACES) == 12 and len(PROPS) == 6
    assert all(len(words(name)) == 1 for name in (*CHARACTERS, *PLACES, *PROPS)) and len(vocabulary()) < 1000


def test_a_shot_is_the_same_for_the_same_scene_and_differs_by_seed():
    shot = draw_shot(SCENE)
    assert shot.shape == (17, 192, 288, 3) and shot.dtype == np.uint8
    other = replace(SCENE, seed=SCENE.seed + 4)
    assert (np.abs(draw_frame(other, 0).astype(int) - shot[0]).mean()) > 5, "a take shows something new"
    assert np.array_equal(draw_shot(SCENE), shot), "also after another shot"


@pytest.mark.parametrize("motion", MOTIONS)
def test_a_mask_is_where_its_character_is(motion):
    partner = "Nova" if MOTIONS[motion].partner else None
    scene = replace(SCENE, motion=motion, partner=partner, prop=None, prop_colour=None)
    frames, figures = draw_figures(scene)
    assert np.array_equal(frames, draw_shot(scene)) and figures.shape == (17, 1 + (partner is not None), 192, 288)
    assert not (figures[:, 0] & figures[:, -1]).any() or partner is None
    shares = figures.mean(axis=(2, 3))
    assert shares.min() > 0.02 and shares.max() < 0.4
    changed = np.abs(frames.astype(int) - draw_shot(replace(scene, character="Bolt", film="meadow"))).max(axis=-1) > 40
    assert changed[figures[:, 0]].mean() > 3 * changed[~figures.any(axis=1)].mean(), "another character is drawn there"


def test_measured_motion_follows_the_amplitude():
    ratios = []
    for number, motion in enumerate(MOTIONS):
        base = probe_scene(900 + number)
        others = [name for name in CHARACTERS if name != base.character]
        for amplitude in (1.0, 3.0, 10.0):
            partner = others[0] if MOTIONS[motion].partner else None
            shot = draw_shot(replace(base, motion=motion, partner=partner, amplitude=amplitude))
            ratios.append(toybox_motion(shot) / amplitude)
    assert 0.85 < np.exp(np.mean(np.log(ratios))) < 1.15
    assert np.std(np.log(ratios)) < 0.3


def test_the_main_character_changes_and_a_name_always_says_who():
    games = [sample_game(seed) for seed in range(60)]
    pairs = [pair for game in games for pair in zip(game.scenes, game.scenes[1:], strict=False)]
    changed = [later for before, later in pairs if later.character != before.character]
    assert 0.2 < len(changed) / len(pairs) < 0.6
    named = [scene for scene in changed if scene.refers not in ("who", "they", "friend")]
    assert len(named) > 50 and all(scene.character.lower() in words(instruction(scene, 3)) for scene in named)
    assert all(scene.character == games[0].scenes[0].character for scene in sample_game(0, one_main=True).scenes[:1])


def test_games_are_the_same_for_the_same_seed_and_opening_games_never_name_their_colour():
    assert sample_game(3) == sample_game(3) and sample_game(3) != sample_game(4)
    game = opening_game(8)
    assert game.opening.prop and game.opening.sentence is None
    assert not any(scene.prop_told for scene in game.scenes if scene.prop == game.opening.prop)
    shown = sparse_game(5, (2, 6), turns=7, split="heldout").scenes
    assert [number for number, scene in enumerate(shown, start=1) if scene.prop] == [2, 6]


def test_every_word_of_every_instruction_is_in_the_vocabulary():
    known = set(vocabulary())
    for scene in scenes_of("train", 300) + scenes_of("couple", 20):
        for level in range(1, 6):
            text = instruction(scene, level)
            assert not set(words(text)) - known, text
            assert not set(words(caption(scene, level))) - known and "{" not in text and "  " not in text, text
    told = tables()
    assert len(told["one"][""]) + len(told["two"][""]) >= 90
    keys = {"acts": MOTIONS, "at": PLACES, "thing": PROPS, "when": TIMES, "how": map(str, ADVERBS)}
    assert all(set(told[name]) == set(wanted) for name, wanted in keys.items())


def test_a_sentence_says_what_it_must_and_leaves_out_what_was_before():
    plain = replace(SCENE, sentence=5, refers=None)
    texts = {instruction(replace(plain, sentence=number), 3) for number in range(200)}
    assert len(texts) > 150
    assert all("Miko" in text and "Nova" in text for text in texts)
    short = [instruction(replace(plain, sentence=number, same=("place", "time")), 3) for number in range(200)]
    at = {word for text in tables()["at"][plain.place] for word in words(text)} - {"the", "in", "on", "at", "a"}
    assert 0.3 < np.mean([not at & set(words(text)) for text in short]) < 0.9
    fractions = [scene.sentence is not None for scene in scenes_of("train", 100)]
    assert 0.5 < np.mean(fractions) < 0.7 and not any(s.sentence is not None for s in scenes_of("heldout", 20))


def test_a_dataset_is_written_in_order_with_measured_levels(tmp_path):
    folder = write_dataset(tmp_path / "data", DatasetGames(games=2, held_out=1, turns=4), workers=1)
    assert len(folder.turns) == 12 + 1 + 1 and len(folder.games) == 3
    assert [turn.clip for turn in folder.turns] == sorted(
        turn.clip for turn in folder.turns if turn.clip[6] == "t"
    ) + sorted(turn.clip for turn in folder.turns if turn.clip[6] == "h")
    assert folder.frames(0).shape == (17, 192, 288, 3)
    again = write_dataset(tmp_path / "data", DatasetGames(games=2, held_out=1, turns=4), workers=1)
    assert again.turns == folder.turns
