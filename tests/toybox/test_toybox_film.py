"""The generated film: its file says what its truth says, so that others may test against the truth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from film_parts import BORDERS, FilmPlan
from made_film import FilmTruth, make_film

from animegamer_core.data.films.framing import DARK
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


def test_the_file_has_the_frames_and_the_rate_of_its_plan(rich):
    _, truth, frames, times = rich
    assert len(frames) == truth.frames and frames.shape[1:3] == truth.size == RICH.size
    assert np.allclose(times, np.arange(truth.frames) / RICH.fps, atol=1e-4)
    assert truth.seconds == pytest.approx(times[-1] + 1 / RICH.fps, abs=1e-4)


def test_scenes_follow_one_another_and_meet_at_the_cuts(rich):
    _, truth, _, _ = rich
    assert truth.scenes[0].start == 0 and truth.scenes[-1].end == truth.seconds
    assert len(truth.cuts) == len(truth.scenes) - 1
    for cut, before, after in zip(truth.cuts, truth.scenes, truth.scenes[1:], strict=False):
        assert cut.start <= cut.seconds <= cut.end and before.start < after.start
        assert (before.clear_end, after.clear_start) == pytest.approx((cut.start, cut.end), abs=1e-5)
        assert before.end >= after.start if cut.kind == "cross" else before.end == after.start
    assert sorted(cut.kind for cut in truth.cuts if cut.kind != "cut") == ["black", "cross", "white"]


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
            assert outside.max() < DARK, "what the borders are searched by"
            checked.add(scene.crop)
    assert len(checked) == len(RICH.borders) == len(BORDERS)


def test_the_same_plan_gives_the_same_film_and_another_seed_another(tmp_path):
    small = FilmPlan(seed=1, scenes=2, seconds=(0.5, 0.6), size=(64, 96))
    files = [tmp_path / name for name in ("a.mp4", "b.mp4", "c.mp4")]
    for path, seed in zip(files, (1, 1, 2), strict=True):
        make_film(path, FilmPlan(**(vars(small) | {"seed": seed})))
    assert files[0].read_bytes() == files[1].read_bytes() != files[2].read_bytes()


@pytest.mark.parametrize("motion", sorted(CAMERAS))
def test_a_drawing_goes_on_after_its_shot_without_a_jump(motion):
    scene = next(scene for seed in range(200) for scene in sample_game(seed, turns=4).scenes if scene.motion == motion)
    frames = [draw_frame(scene, 14 + step / 3) for step in range(16)]
    changes = [difference(first, second) for first, second in zip(frames, frames[1:], strict=False)]
    assert max(changes) < 4 * np.median(changes) + 2
