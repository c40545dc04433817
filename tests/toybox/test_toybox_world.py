"""The Toybox world: its tables, words, games and drawings."""

import itertools
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from animegamer_core.data.motion import motion_value
from animegamer_core.toybox.drawing.draw import CAMERAS, SPOTS, draw_frame, draw_shot
from animegamer_core.toybox.drawing.films import STYLES, WRITTEN
from animegamer_core.toybox.drawing.looks import LOOKS
from animegamer_core.toybox.games import opening_game, sample_game
from animegamer_core.toybox.world import (
    ADVERBS,
    AMPLITUDES,
    CASTS,
    CHARACTERS,
    COLOURS,
    MOTIONS,
    PLACES,
    PROPS,
    TIMES,
    Scene,
    instruction,
    vocabulary,
    words,
)

SEEDS = st.integers(0, 2**40)


def scene_of(character: str = "Miko", motion: str = "wave", **fields) -> Scene:
    partner = next(name for name in CHARACTERS if name != character) if MOTIONS[motion].partner else None
    values = {"partner": partner, "place": "beach", "time": "day"}
    return Scene(character=character, motion=motion, **(values | {"amplitude": 3.0, "seed": 7} | fields))


def difference(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.abs(first.astype(int) - second.astype(int)).max(axis=-1)


def test_the_world_is_as_large_as_promised():
    assert (len(CASTS), len(CHARACTERS), len(MOTIONS), len(PLACES), len(PROPS), len(COLOURS)) == (5, 20, 20, 12, 6, 6)
    assert all(sum(row.film == film for row in CHARACTERS.values()) == 4 for film in CASTS)
    assert set(CHARACTERS) == set(LOOKS) and set(MOTIONS) == set(CAMERAS) and set(CASTS) == set(STYLES)
    assert set(PLACES) == set(WRITTEN.places) and {"scarf", *SPOTS} == set(PROPS)
    assert len(vocabulary()) <= 200
    assert len({adverb for row in ADVERBS.values() for adverb in row}) == 15


@given(SEEDS, st.sampled_from(("train", "heldout")), st.integers(1, 14))
def test_games_hold_no_unseen_pair_and_one_prop_told_once(seed, split, turns):
    game = sample_game(seed, turns=turns, split=split)
    assert len(game.scenes) == turns
    shown = [scene for scene in game.scenes if scene.prop is not None]
    assert len({(scene.prop, scene.prop_colour) for scene in shown}) == 1
    assert [scene.prop_told for scene in shown] == [True] + [False] * (len(shown) - 1)


@given(SEEDS)
def test_an_opening_picture_shows_what_no_instruction_tells(seed):
    game = opening_game(seed)
    first = next(scene for scene in game.scenes if scene.prop)
    assert game.opening.prop == first.prop and game.opening.character == first.character
    instructions = " ".join(instruction(scene, 3) for scene in (game.opening, *game.scenes))
    assert not set(words(instructions)) & set(COLOURS)


def test_the_published_form_of_an_instruction():
    scene = scene_of("Miko", "fly", prop="scarf", prop_colour="red", prop_told=True, time="night")
    fields = instruction(scene, 2).split("; ")
    assert fields[0] == "Character: Miko" and fields[2] == "Background: night beach."
    assert fields[1].endswith(" fly on a broomstick with a red scarf")
    assert instruction(replace(scene, prop_told=False), 2).count(" with the scarf;") == 1
    assert instruction(scene_of("Taro", "hug"), 1).startswith("Character: Taro, Miko; Motion: ")


def test_an_impossible_game_is_refused():
    with pytest.raises(ValueError, match="split"):
        sample_game(1, split="test")
    with pytest.raises(ValueError, match="at least 1"):
        sample_game(1, turns=0)


def test_a_shot_is_the_same_for_its_seed_and_another_take_for_another():
    scene = scene_of(place="garden")
    shot = draw_shot(scene)
    assert shot.shape == (17, 192, 288, 3) and shot.dtype == np.uint8
    assert np.array_equal(shot[5], draw_frame(scene, 5))
    assert difference(shot[0], draw_frame(replace(scene, seed=1), 0)).mean() > 15


def test_all_places_look_unlike_each_other_by_day_and_night():
    shown = [scene_of(place=place, time=time) for place in PLACES for time in TIMES]
    frames = [np.asarray(Image.fromarray(draw_frame(scene, 0)).reduce(8)) for scene in shown]
    assert len(frames) == 24 and {scene.film for scene in shown} == set(STYLES)
    assert min(difference(*pair).mean() for pair in itertools.combinations(frames, 2)) > 10


@pytest.mark.parametrize("motion", sorted(CAMERAS))
def test_a_drawing_goes_on_after_its_shot_without_a_jump(motion):
    scene = scene_of(motion=motion, amplitude=12.0)
    frames = [draw_frame(scene, 14 + step / 3).astype(int) for step in range(16)]
    changes = [np.abs(first - second).mean() for first, second in itertools.pairwise(frames)]
    assert max(changes) < 4 * np.median(changes) + 2


@pytest.mark.parametrize("motion", CAMERAS)
def test_characters_look_unlike_each_other_in_every_motion(motion):
    partner = "Pico" if MOTIONS[motion].partner else None
    scene = scene_of("Miko", motion, partner=partner)
    frames = [draw_frame(replace(scene, character=name), 0) for name in LOOKS if name != partner]
    assert all((difference(*pair) > 40).sum() > 1000 for pair in itertools.combinations(frames, 2))


def test_drawings_are_those_that_the_shipped_weights_were_trained_on():
    """Recorded as thumbnails: every place by day and night, and five motions of every character."""
    scenes = [scene_of(place=place, time=time) for place in PLACES for time in TIMES]
    props = [{"prop": prop, "prop_colour": colour} for prop in PROPS for colour in COLOURS]
    pairs = [(name, tuple(MOTIONS)[number % 4 + 4 * k]) for number, name in enumerate(CHARACTERS) for k in range(5)]
    scenes += [scene_of(*pair, **props[number % len(props)]) for number, pair in enumerate(pairs)]
    drawn = np.concatenate([np.asarray(Image.fromarray(draw_frame(scene, 5)).reduce(24)) for scene in scenes])
    recorded = np.asarray(Image.open(Path(__file__).with_name("drawings.png")))
    assert difference(drawn, recorded).max() <= 2, "rounding alone may differ"


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(("scarf", *SPOTS)), st.sampled_from(sorted(CAMERAS)), st.sampled_from(TIMES))
def test_a_props_colour_is_seen_under_every_motion(prop, motion, time):
    name = "Beni"
    for place in {film: place for place, film in PLACES.items()}.values():
        scenes = [scene_of(name, motion, prop=prop, prop_colour=c, time=time, place=place) for c in COLOURS]
        frames = [draw_frame(scene, 8) for scene in scenes]
        assert all((difference(*pair) > 50).sum() >= 480 for pair in itertools.combinations(frames, 2))


@pytest.mark.parametrize("motion", CAMERAS)
def test_measured_motion_follows_the_amplitude(motion):
    rng = random.Random(motion)
    partner, values = "Beni" if MOTIONS[motion].partner else None, []
    for target in np.geomspace(*AMPLITUDES, 3):
        name, place, time = (rng.choice(names) for names in (("Miko", "Nori", "Kuma", "Bolt"), tuple(PLACES), TIMES))
        seed = rng.getrandbits(40)
        scene = scene_of(name, motion, partner=partner, place=place, time=time, amplitude=target, seed=seed)
        values.append(motion_value(draw_shot(scene)))
    assert values == sorted(values)
    assert 0.4 < values[0] < 1.3 and 13 < values[-1] < 27
