"""The generated film: its file says what its truth says, so that others may test against the truth."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from film_parts import BORDERS, FilmPlan, parts_of
from made_film import FilmTruth, make_film

from animegamer_core.toybox.drawing.draw import CAMERAS, draw_frame
from animegamer_core.toybox.games import sample_game

av = pytest.importorskip("av")
pytest.importorskip("cv2")

RICH = FilmPlan(
    seed=5,
    scenes=9,
    seconds=(1.6, 2.6),
    size=(120, 214),
    fps=24000 / 1001,
    borders=("letterbox", "none", "pillarbox", "both"),
    fades=2,
    cross_fades=1,
    flashes=3,
    stills=1,
    repeats=1,
    credits=True,
    dark_opening=True,
    sound=True,
)


def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """(frames (F, H, W, C), their seconds), read without the code under test elsewhere."""
    with av.open(str(path)) as film:
        frames = list(film.decode(video=0))
    return np.stack([frame.to_ndarray(format="rgb24") for frame in frames]), np.array([frame.time for frame in frames])


@pytest.fixture(scope="module")
def rich(tmp_path_factory) -> tuple[Path, FilmTruth, np.ndarray, np.ndarray]:
    path = tmp_path_factory.mktemp("film") / "rich.mp4"
    truth = make_film(path, RICH)
    return path, truth, *read(path)


def difference(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.abs(first.astype(int) - second.astype(int)).mean())


def test_the_file_has_the_frames_the_rate_and_the_sound_of_its_plan(rich):
    path, truth, frames, times = rich
    assert len(frames) == truth.frames and frames.shape[1:3] == truth.size == RICH.size
    assert np.allclose(times, np.arange(truth.frames) / RICH.fps, atol=1e-4)
    assert truth.seconds == pytest.approx(times[-1] + 1 / RICH.fps, abs=1e-4)
    with av.open(str(path)) as film:
        sound = film.streams.audio[0]
        assert float(sound.duration * sound.time_base) == pytest.approx(truth.seconds, abs=0.1)


def test_scenes_follow_one_another_and_meet_at_the_cuts(rich):
    _, truth, _, _ = rich
    assert truth.scenes[0].start == 0 and truth.scenes[-1].end == truth.seconds
    assert len(truth.cuts) == len(truth.scenes) - 1
    for cut, before, after in zip(truth.cuts, truth.scenes, truth.scenes[1:], strict=False):
        assert cut.start <= cut.seconds <= cut.end and before.start < after.start
        assert (before.clear_end, after.clear_start) == pytest.approx((cut.start, cut.end), abs=1e-5)
        assert before.end >= after.start if cut.kind == "cross" else before.end == after.start
    assert sorted(cut.kind for cut in truth.cuts if cut.kind != "cut") == ["black", "cross", "white"]


def test_every_hard_cut_is_the_greatest_change_of_its_neighbourhood(rich):
    _, truth, frames, times = rich
    for cut in truth.cuts:
        if cut.kind == "cut":
            first = int(np.searchsorted(times, cut.seconds - 1e-3))
            changes = [difference(frames[at - 1], frames[at]) for at in range(first - 3, min(first + 4, len(frames)))]
            assert np.argmax(changes) == 3


def test_fades_reach_their_colour_at_the_cut_and_leave_the_borders_black(rich):
    _, truth, frames, times = rich
    for cut in truth.cuts:
        if cut.kind in ("black", "white"):
            scene = truth.scene_at(cut.seconds)
            shown = frames[int(np.searchsorted(times, cut.seconds - 1e-3))]
            top, bottom, left, right = scene.crop or (0, 0, 0, 0)
            inside = shown[top + 2 : len(shown) - bottom - 2, left + 2 : shown.shape[1] - right - 2]
            assert inside.max() < 12 if cut.kind == "black" else inside.min() > 240
            assert top < 3 or shown[: top - 2].max() < 12


def test_borders_are_black_and_end_where_the_truth_says(rich):
    _, truth, frames, times = rich
    checked = set()
    for scene in truth.scenes:
        if scene.kind == "scene":
            start, stop = (np.searchsorted(times, at - 1e-3) for at in (scene.clear_start, scene.clear_end))
            light = frames[start:stop].max(axis=(0, 3))
            top, bottom, left, right = scene.crop
            height, width = truth.size
            assert all(light[edge].max() > 60 for edge in (top + 1, height - bottom - 2))
            assert all(light[:, edge].max() > 60 for edge in (left + 1, width - right - 2))
            outside = light.copy()
            outside[max(0, top - 2) : height - bottom + 2, max(0, left - 2) : width - right + 2] = 0
            assert outside.max() < 24
            checked.add(scene.crop)
    assert len(checked) == len(RICH.borders) == len(BORDERS)


def test_stills_stand_still_and_a_dark_scene_is_dark_but_for_its_lamp(rich):
    _, truth, frames, times = rich
    for scene in truth.scenes:
        start, stop = (np.searchsorted(times, at - 1e-3) for at in (scene.clear_start, scene.clear_end))
        if scene.kind == "still":
            assert scene.amplitude == 0 and difference(frames[start + 1], frames[stop - 1]) < 3
        if scene.kind == "dark":
            assert np.median(frames[start]) < 40 < 180 < frames[start].max()
    assert {"still", "dark", "credits", "scene"} == {scene.kind for scene in truth.scenes}


def test_a_repeat_shows_the_pictures_of_an_earlier_scene_from_its_beginning(rich):
    _, truth, frames, times = rich
    again = next(scene for scene in truth.scenes if scene.repeats is not None)
    first = truth.scenes[again.repeats]
    assert first.scene == again.scene
    assert first.end - first.start == pytest.approx(again.end - again.start, abs=1.0)  # longer where a fade needs it
    (start, other) = (np.searchsorted(times, row.start - 1e-3) for row in (again, first))
    middle = slice(RICH.size[0] // 3, -RICH.size[0] // 3), slice(RICH.size[1] // 3, -RICH.size[1] // 3)
    if again.crop == first.crop:
        assert difference(frames[start + 20][middle], frames[other + 20][middle]) < 8


def test_flashes_last_at_most_three_frames_and_the_picture_comes_back(rich):
    _, truth, frames, times = rich
    flashes = [flash for scene in truth.scenes for flash in scene.flashes]
    assert flashes
    for seconds, count in flashes:
        first = int(np.searchsorted(times, seconds - 1e-3))
        before, within, after = frames[first - 1], frames[first], frames[first + count]
        assert 1 <= count <= 3
        assert difference(before, within) > 3 * difference(before, after)


def test_credits_are_white_letters_on_black_and_a_roll_moves_up(rich):
    _, truth, frames, times = rich
    rows = [scene for scene in truth.scenes if scene.kind == "credits"]
    assert len(rows) == 4 and all(row.crop is None and row.scene is None for row in rows)
    for row in rows:
        shown = frames[int(np.searchsorted(times, (row.clear_start + row.clear_end) / 2))]
        assert np.median(shown) < 10 and shown.max() > 150
    roll = frames[np.searchsorted(times, rows[-1].start + 3) :][:2].astype(float).mean(axis=(2, 3))
    shifts = [np.abs(np.roll(roll[0], -shift) - roll[1])[10:-10].mean() for shift in range(6)]
    assert 1 <= np.argmin(shifts) <= 4


def test_the_same_plan_gives_the_same_film_and_another_seed_another(tmp_path):
    small = FilmPlan(seed=1, scenes=2, seconds=(0.5, 0.6), size=(64, 96))
    files = [tmp_path / name for name in ("a.mp4", "b.mp4", "c.mp4")]
    for path, seed in zip(files, (1, 1, 2), strict=True):
        make_film(path, FilmPlan(**(vars(small) | {"seed": seed})))
    assert files[0].read_bytes() == files[1].read_bytes() != files[2].read_bytes()
    assert json.loads(files[0].with_suffix(".truth.json").read_text())["path"] == "a.mp4"
    with pytest.raises(ValueError, match=r"is a folder; give a file, such as .*film\.mp4"):
        make_film(tmp_path, small)


def test_captions_tell_every_scene_and_no_credits(rich):
    path, truth, _, _ = rich
    spans = [json.loads(line) for line in path.with_suffix(".captions.jsonl").read_text().splitlines()]
    scenes = [scene for scene in truth.scenes if scene.kind != "credits"]
    assert [(span["start"], span["end"]) for span in spans] == [(scene.start, scene.end) for scene in scenes]
    for span, scene in zip(spans, scenes, strict=True):
        assert span["character"][0] == scene.scene["character"]
        assert span["background"] == f"{scene.scene['time']} {scene.scene['place']}"
        assert sorted(span["adverbs"]) == ["1", "2", "3", "4", "5"]


def test_a_film_of_variable_rate_leaves_pictures_out_and_keeps_its_time(tmp_path):
    plan = FilmPlan(seed=3, scenes=6, seconds=(0.8, 1.2), size=(64, 96), variable=True, flashes=1)
    truth = make_film(tmp_path / "film.mp4", plan)
    _, times = read(tmp_path / "film.mp4")
    steps = np.round(np.diff(times) * plan.fps).astype(int)
    assert set(steps) - {1} <= {2, 3} and len(set(steps)) > 1
    assert truth.seconds == pytest.approx(times[-1] + 1 / plan.fps, abs=1e-4)
    for cut in truth.cuts:
        assert np.abs(times - cut.seconds).min() < 1e-3


@pytest.mark.parametrize("motion", sorted(CAMERAS))
def test_a_drawing_goes_on_after_its_shot_without_a_jump(motion):
    scene = next(scene for seed in range(200) for scene in sample_game(seed, turns=4).scenes if scene.motion == motion)
    frames = [draw_frame(scene, 14 + step / 3) for step in range(16)]
    changes = [difference(first, second) for first, second in zip(frames, frames[1:], strict=False)]
    assert max(changes) < 4 * np.median(changes) + 2


def test_parts_are_many_kinds_of_scenes_whose_neighbours_may_look_alike():
    parts = parts_of(FilmPlan(scenes=60, similar=0.5, wild=0.3, short=0.2))
    pairs = list(zip(parts, parts[1:], strict=False))
    alike = [
        first.scene.place == second.scene.place and first.scene.time == second.scene.time for first, second in pairs
    ]
    assert 0.35 < np.mean(alike) < 0.75
    assert {part.scene.time for part in parts} == {"day", "night"}
    assert sum(part.frames < 36 for part in parts) > 5 and sum(part.scene.amplitude > 14 for part in parts) > 10


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"borders": ("round",)}, "round"),
        ({"borders": ()}, "letterbox"),
        ({"size": (121, 200)}, "121"),
        ({"scenes": 3, "fades": 3}, "3 scenes"),
    ],
)
def test_a_plan_that_cannot_be_filmed_is_refused(fields, said):
    with pytest.raises(ValueError, match=said):
        FilmPlan(**fields)
