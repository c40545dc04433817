"""Segments: their times, and which of a generated film are left out and why."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from film_parts import FilmPlan
from hypothesis import given
from hypothesis import strategies as st
from made_film import SceneTruth, make_film

from animegamer_core.data.films.cutting import FADE_MARGIN, Duplicates, segments_of, signature, why_left_out
from animegamer_core.data.films.film import frames_at, read_frames
from animegamer_core.data.films.framing import Crop, fit
from animegamer_core.data.films.scenes import Scene
from animegamer_core.data.films.writing import MOST_TEXT, credits_and_subtitles, looked_at, read_text, reading_size
from animegamer_core.data.motion import motion_value

SHAPE = {"seed": 21, "scenes": 11, "fps": 12.0, "seconds": (2.3, 4.4), "size": (180, 270), "short": 0.0, "grain": 3.0}
PLAN = FilmPlan(**SHAPE, fades=1, flashes=2, stills=2, repeats=2, credits=True, dark_opening=True)
SECONDS = st.floats(0, 5000, allow_nan=False)


@st.composite
def scenes(draw) -> Scene:
    start, length = draw(SECONDS), draw(st.floats(0.04, 40))
    fade_in, fade_out = (draw(st.sampled_from((0.0, 0.3, 1.1))) for _ in range(2))
    return Scene(start, start + length, "cut", min(fade_in, length), min(fade_out, length))


@given(scenes(), st.sampled_from(((17, 8), (9, 4), (33, 8))))
def test_no_segment_crosses_a_border_and_times_rise(scene, shape):
    frames, fps = shape
    segments = segments_of(scene, frames, fps)
    length = (frames - 1) / fps
    for segment in segments:
        times = segment.times
        assert len(times) == frames and times[0] == segment.start
        assert all(first < second for first, second in zip(times, times[1:], strict=False))
        assert scene.start + scene.fade_in - 1e-6 <= times[0] and times[-1] < scene.end - scene.fade_out
        assert times[:-1] == pytest.approx([segment.start + index / fps for index in range(frames - 1)], abs=0.006)
        assert segment.start + length <= scene.end - scene.fade_out + 1e-5
    for before, after in zip(segments, segments[1:], strict=False):
        assert after.start - before.start == pytest.approx(length)
    used = length * (len(segments) + 1)
    assert used > scene.end - scene.start - scene.fade_in - scene.fade_out - 2 * FADE_MARGIN - 1e-5


def test_segments_keep_away_from_fades_and_name_flashed_frames():
    (segment,) = segments_of(Scene(0.0, 4.0, "fade", 0.5, 0.5, flashes=((1.05, 1.1), (1.6, 1.7))))
    assert segment.start == pytest.approx(0.5 + FADE_MARGIN)
    hit = [index for index, time in enumerate(segment.times) if 1.05 <= time < 1.1 or 1.6 <= time < 1.7]
    assert list(segment.flashed) == hit and len(hit) == 1


Cut = tuple[SceneTruth, np.ndarray, list[np.ndarray], str]  # scene, frames without flashes, pages, its scene's number


@pytest.fixture(scope="module")
def cut(tmp_path_factory) -> list[Cut]:
    """Every segment of the film, cut by its truth."""
    path = Path(tmp_path_factory.mktemp("segments") / "film.mp4")
    truth = make_film(path, PLAN)
    rows = []
    for number, row in enumerate(truth.scenes):
        flashes = tuple((first, first + frames / truth.fps) for first, frames in row.flashes)
        fades = row.clear_start - row.start, row.end - row.clear_end
        rows += [(number, one) for one in segments_of(Scene(row.start, row.end, "cut", *fades, flashes))]
    pictures = frames_at(read_frames(path), [time for _, segment in rows for time in segment.times])
    cuts = []
    for number, segment in rows:
        row = truth.scenes[number]
        crop, shown = Crop(*(row.crop or ())), [next(pictures) for _ in segment.times]
        clip = np.stack([fit(picture, crop, (96, 144)) for picture in shown])
        read = [shown[index] for index in looked_at(len(shown))]
        pages = [fit(picture, crop, reading_size(picture, crop, (96, 144))) for picture in read]
        cuts.append((row, np.delete(clip, segment.flashed, axis=0), pages, str(number)))
    return cuts


def test_credits_stills_and_repeats_are_left_out_and_nothing_else(cut):
    seen, clips = [], {number: clip for _, clip, _, number in reversed(cut)}
    duplicates = Duplicates(clips.__getitem__)
    texts = credits_and_subtitles([read_text(pages) for _, _, pages, _ in cut], MOST_TEXT)
    for (row, clip, _, number), (is_credits, _) in zip(cut, texts, strict=True):
        reason = "credits" if is_credits else why_left_out(clip, motion_value(clip))
        reason = reason or duplicates.add(signature(clip), number, number)
        if row.kind in ("credits", "still"):
            assert reason == row.kind
        elif row.repeats is not None:
            assert reason == f"duplicate of {row.repeats}"
        else:
            assert reason is None, row.kind
        seen.append("repeat" if row.repeats is not None else row.kind)
    assert set(seen) == {"scene", "dark", "still", "repeat", "credits"} and seen.count("scene") >= 5


def noisy(picture: np.ndarray, spread: float, frames: int = 17) -> np.ndarray:
    shaken = picture[None] + np.random.default_rng(1).normal(0, spread, (frames, *picture.shape))
    return np.clip(np.rint(shaken), 0, 255).astype(np.uint8)


def test_black_and_still_segments_are_reported_from_dark_and_calm_ones():
    black = np.zeros((96, 144, 3))
    assert why_left_out(noisy(black + 6, 2), 1.0) == "black"
    drawing = cv2.resize(np.random.default_rng(2).integers(0, 255, (6, 9, 3)).astype(np.float32), (144, 96))
    assert why_left_out(noisy(drawing, 4), 1.0) == "still"
    assert why_left_out(noisy(drawing, 0), 0.0) == "still"
    blinking = noisy(drawing, 2)
    blinking[8:10, 40:44, 60:70] = 255 - blinking[8:10, 40:44, 60:70]
    assert why_left_out(blinking, 0.5) is None
    lamp = noisy(black + 6, 2)
    lamp[:, 30:50, 60:80] = 240
    lamp[8:, 50:60, 60:80] = 90
    assert why_left_out(lamp, 1.0) is None


def moving(seed: int, start: int) -> np.ndarray:
    wide = cv2.resize(np.random.default_rng(seed).integers(0, 255, (8, 48, 3), dtype=np.uint8), (720, 96))
    return np.stack([wide[:, start + 8 * index :][:, :144] for index in range(17)])


def test_duplicates_are_found_across_scenes_also_a_little_earlier_or_later_cropped_or_compressed():
    clips = {"a": moving(1, 80), "b": moving(1, 80), "c": moving(1, 112), "d": moving(2, 80), "e": moving(1, 440)}
    cropped = [cv2.resize(frame[1:-1, 1:-1], (144, 96)) for frame in clips["a"]]
    jpegs = [cv2.imencode(".jpg", frame, [cv2.IMWRITE_JPEG_QUALITY, 40])[1] for frame in cropped]
    clips["f"] = np.stack([cv2.imdecode(jpeg, cv2.IMREAD_COLOR) for jpeg in jpegs])
    clips["g"] = clips["a"].copy()
    clips["g"][:, 50:74, 20:38] = (60, 110, 210)  # one figure more, a quarter of the height
    duplicates = Duplicates(clips.__getitem__)
    scenes = dict.fromkeys("ab", "film#1") | dict.fromkeys("cd", "film#2")
    found = {name: duplicates.add(signature(clip), name, scenes.get(name, name)) for name, clip in clips.items()}
    assert found == dict.fromkeys("abdeg") | dict.fromkeys("cf", "duplicate of a")
