"""Scenes: cuts, fades and flashes of generated films against their truth, and of pictures made for one case each."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from drawn_film import DrawnFilm, drawn_film
from film_parts import FilmPlan, parts_of
from hypothesis import given, settings
from hypothesis import strategies as st
from made_film import FilmTruth, make_film

from animegamer_core.data.films.film import FilmFrame, read_frames
from animegamer_core.data.films.scenes import Scene, SceneFinder
from animegamer_core.data.films.transnet import TransNet, reduced

FPS = 24.0

HARD = {"seconds": (0.9, 1.7), "size": (120, 214), "borders": ("none", "letterbox", "both"), "similar": 0.6}
HARD |= {"wild": 0.3, "short": 0.2, "fades": 2, "cross_fades": 2, "flashes": 5, "grain": 3.0}
HARD |= {"credits": True, "dark_opening": True}
VARIABLE = {"seconds": (1.0, 1.8), "size": (96, 128), "fps": 24000 / 1001, "borders": ("pillarbox",), "similar": 0.5}
VARIABLE |= {"wild": 0.3, "held": 0.7, "fades": 1, "flashes": 2, "variable": True}
FILMS = {"hard": FilmPlan(seed=11, scenes=12, **HARD), "variable": FilmPlan(seed=12, scenes=9, **VARIABLE)}


def found(pictures: Iterable[np.ndarray], fps: float = FPS) -> list[Scene]:
    """The scenes of pictures that are shown one after the other at a steady rate."""
    finder, count = SceneFinder(fps), 0
    for picture in pictures:
        finder.add(FilmFrame(count / fps, picture))
        count += 1
    return finder.finish(count / fps)


def picture(seed: int) -> np.ndarray:
    """A soft picture (90, 160, 3) of its own for every seed."""
    blocks = np.random.default_rng(seed).integers(30, 225, (9, 16, 3), dtype=np.uint8)
    return cv2.resize(blocks, (160, 90), interpolation=cv2.INTER_CUBIC)


def numbers(scenes: Sequence[Scene]) -> list[int]:
    """The first frame of each scene but the first."""
    return [round(scene.start * FPS) for scene in scenes[1:]]


def shown(*spans: tuple[np.ndarray, int]) -> Iterator[np.ndarray]:
    for image, count in spans:
        for _ in range(count):
            yield image


def mixed(first: np.ndarray, second: np.ndarray, count: int) -> Iterator[np.ndarray]:
    for share in np.arange(1, count + 1) / (count + 1):
        yield np.rint((1 - share) * first + share * second).astype(np.uint8)


@pytest.fixture(scope="module", params=sorted(FILMS))
def film(request, tmp_path_factory) -> tuple[FilmTruth, list[Scene], set[float]]:
    """The film, what is found, and the times of cuts between two scenes at one place."""
    path = tmp_path_factory.mktemp("scenes") / f"{request.param}.mp4"
    truth = make_film(Path(path), FILMS[request.param])
    finder = SceneFinder(truth.fps)
    for frame in read_frames(path):
        finder.add(frame)
    pairs = zip(truth.cuts, pairwise(part.scene for part in parts_of(FILMS[request.param])), strict=True)
    same = {cut.seconds for cut, (a, b) in pairs if a and b and (a.place, a.time) == (b.place, b.time)}
    return truth, finder.finish(truth.seconds), same


def test_every_hard_cut_is_found_within_a_frame_and_nothing_else_is(film):
    truth, scenes, same_place = film
    transitions = {scene.start for scene in scenes[1:]}
    frame = 1.01 / truth.fps
    missed = []
    for cut in truth.cuts:
        near = {at for at in transitions if cut.start - frame <= at <= cut.end + frame}
        missed += [] if near or (cut.kind == "cut" and cut.seconds in same_place) else [cut.kind]
        assert len(near) <= 1, (cut, near)
        transitions -= near
    # Wild motion on both sides may hide a cross-fade. A cut between two drawings of one place is like a jump of pose.
    assert not transitions and missed in ([], ["cross"])


def test_scenes_tell_how_they_begin_and_which_of_their_seconds_a_fade_takes(film):
    truth, scenes, _ = film
    assert scenes[0].begins == "start"
    for before, after in zip(scenes, scenes[1:], strict=False):
        cut = min(truth.cuts, key=lambda cut: abs(cut.seconds - after.start))
        rises_from_black = truth.scene_at(cut.seconds).kind == "credits" and after.fade_in > 0
        assert after.begins == ("fade" if cut.kind != "cut" or rises_from_black else "cut")
        if cut.kind != "cut":
            assert before.end - before.fade_out <= cut.start + 0.1
            assert after.start + after.fade_in >= cut.end - 0.1


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(9, 30), min_size=1, max_size=6), st.integers(0, 2**20))
def test_hard_cuts_of_still_pictures_are_exact(lengths, seed):
    spans = [(picture(seed + number), length) for number, length in enumerate(lengths)]
    scenes = found(shown(*spans))
    assert numbers(scenes) == np.cumsum(lengths)[:-1].tolist()
    assert scenes[0].start == 0 and scenes[-1].end == pytest.approx(sum(lengths) / FPS)
    assert all(before.end == after.start for before, after in zip(scenes, scenes[1:], strict=False))


@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("flash", [np.full((90, 160, 3), 255, np.uint8), np.zeros((90, 160, 3), np.uint8), picture(9)])
def test_up_to_three_frames_of_something_else_are_a_flash(frames, flash):
    (scene,) = found(shown((picture(1), 30), (flash, frames), (picture(1), 30)))
    assert [round(first * FPS) for first, _ in scene.flashes] == list(range(30, 30 + frames))


def test_a_quick_thing_that_passes_is_no_flash():
    thing = cv2.circle(picture(1).copy(), (120, 60), 12, (255, 255, 255), -1)
    (scene,) = found(shown((picture(1), 30), (thing, 2), (picture(1), 30)))
    assert scene.flashes == ()


def test_longer_interruptions_and_flashes_between_two_scenes_are_cuts():
    assert numbers(found(shown((picture(1), 30), (picture(2), 9), (picture(1), 30)))) == [30, 39]
    white = np.full((90, 160, 3), 255, np.uint8)
    scenes = found(shown((picture(1), 30), (white, 2), (picture(2), 30)))
    assert numbers(scenes) == [30] and scenes[1].fade_in == pytest.approx(2 / FPS)


@pytest.mark.parametrize(("tone", "count", "held"), [(0, 6, 10), (0, 12, 1), (255, 12, 10), (255, 30, 1)])
def test_a_fade_through_black_or_white_is_one_cut(tone, count, held):
    blank = np.full((90, 160, 3), tone, np.uint8)
    fading = [*mixed(picture(1), blank, count), *shown((blank, held)), *mixed(blank, picture(2), count)]
    before, after = found([*shown((picture(1), 40)), *fading, *shown((picture(2), 40))])
    assert 40 + count - 2 <= round(after.start * FPS) <= 40 + count + held and after.begins == "fade"
    assert round((before.end - before.fade_out) * FPS) <= 42
    assert round((after.start + after.fade_in) * FPS) >= 40 + 2 * count + held - 2


def test_a_cross_fade_is_found_where_pictures_are_held_for_long_and_between_scenes_that_move():
    finder, seconds = SceneFinder(12.0), 0.0  # a varying rate: half as many frames as a steady one
    frames = [(picture(1), 9 / 24)] * 12 + [(mix, 1 / 24) for mix in mixed(picture(1), picture(2), 10)]
    for image, held in [*frames, *[(picture(2), 9 / 24)] * 12]:
        finder.add(FilmFrame(seconds, image))
        seconds += held
    assert [scene.begins for scene in finder.finish(seconds)] == ["start", "fade"]
    wide = [cv2.resize(picture(seed), (640, 90), interpolation=cv2.INTER_CUBIC) for seed in (3, 8)]
    shares = np.clip((np.arange(120) - 50) / 14, 0, 1)
    for step in (1, 2):
        moving = [[image[:, step * at : step * at + 160] for at in range(120)] for image in wide]
        pans = [np.rint((1 - s) * one + s * two).astype(np.uint8) for s, one, two in zip(shares, *moving, strict=True)]
        before, after = found(pans)
        assert 50 <= round(after.start * FPS) <= 64 and after.begins == "fade"
        assert (before.end - before.fade_out) * FPS < 55 and (after.start + after.fade_in) * FPS > 60


def test_a_film_that_begins_and_ends_in_black_has_its_fades_but_no_more_scenes():
    black = np.zeros((90, 160, 3), np.uint8)
    fades = [*mixed(black, picture(1), 12), *shown((picture(1), 40)), *mixed(picture(1), black, 12)]
    (scene,) = found([*shown((black, 6)), *fades, *shown((black, 6))])
    assert (scene.start, scene.end, scene.begins) == (0, pytest.approx(76 / FPS), "start")
    assert scene.fade_in == pytest.approx(18 / FPS, abs=0.1) and scene.fade_out == pytest.approx(18 / FPS, abs=0.1)


def test_motion_is_no_cut_however_wild_and_whether_drawings_are_held_or_not():
    wide = cv2.resize(picture(3), (1600, 90), interpolation=cv2.INTER_CUBIC)
    for held in (1, 2, 3):
        pan = [wide[:, 5 * (at // held * held) :][:, :160] for at in range(120)]
        assert len(found(pan)) == 1


def test_light_that_turns_is_no_wipe():
    down, across = np.mgrid[-1:1:90j, -1.8:1.8:160j]
    for reach in (1, 2):
        turned = ((across * np.cos(angle) + down * np.sin(angle)) / reach for angle in np.arange(60) * 0.08)
        shares = (np.clip(0.5 + way, 0, 1)[..., None] for way in turned)
        assert len(found(np.rint((255, 165, 42) + share * (0, 90, 213)).astype(np.uint8) for share in shares)) == 1


def test_anime_on_threes_is_cut_where_the_place_changes_and_flashes_where_nothing_is_kept():
    kinds = ("talk", "pose", "cycle", "hold")
    drawn = [
        replace(shot, action=kind, step=3, impacts=()) for shot, kind in zip(drawn_film(2, 4).shots, kinds, strict=True)
    ]
    drawn[1] = replace(drawn[1], impacts=(("inverted", 12, 2),))
    film = DrawnFilm(drawn, ("start", "cut", "wipe", "cut"), seed=2)
    scenes = found(film)
    assert len(scenes) == 4
    for scene, change in zip(scenes[1:], film.changes, strict=True):
        assert change.first - 1 <= round(scene.start * FPS) <= change.end + 1
    (flash,) = film.flashes
    assert [round(start * FPS) for scene in scenes for start, _ in scene.flashes] == [flash.first, flash.first + 1]


def test_the_network_streams_and_leaves_the_program_as_it_was():
    films = np.stack(list(shown((picture(1), 70), (picture(2), 61))))
    before = torch.random.get_rng_state()
    one, many = TransNet(), TransNet()
    many._windows = 2
    for image in films:
        one.add(reduced(image))
        many.add(reduced(image))
    assert max(len(net._frames) for net in (one, many)) < 160, "only the last windows are kept"
    for first, second in zip(one.finish(), many.finish(), strict=True):
        assert len(first) == 131 and np.allclose(first, second, atol=1e-5)
    assert torch.equal(before, torch.random.get_rng_state()) and not torch.are_deterministic_algorithms_enabled()
