"""Borders are found to 2 pixels, whatever the scenes show, and frames are made to fit."""

from collections.abc import Callable, Sequence
from dataclasses import astuple

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from animegamer_core.data.films.film import FilmFrame
from animegamer_core.data.films.framing import Crop, Margins, border_sample, crops_of_scenes, fit
from animegamer_core.data.films.scenes import Scene

HEIGHT, WIDTH = 180, 320
NONE, LETTERBOX, PILLARBOX, BOTH = (0, 0, 0, 0), (22, 22, 0, 0), (0, 0, 40, 40), (15, 15, 33, 33)
SECONDS = 2.0  # of each scene
Picture = Callable[[int, int, np.random.Generator], np.ndarray]  # (height, width) -> RGB


def daylight(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """Soft shapes of every brightness, black among them."""
    shapes = rng.uniform(-40, 255, (height // 20 + 2, width // 20 + 2, 3)).astype(np.float32)
    return cv2.resize(shapes, (width, height), interpolation=cv2.INTER_CUBIC).clip(0, 255).astype(np.uint8)


def night(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """Darkness, and one lamp somewhere."""
    picture = rng.integers(0, 14, (height, width, 3)).astype(np.uint8)
    y, x = rng.integers(20, height - 30), rng.integers(20, width - 40)
    picture[y : y + 12, x : x + 20] = 250
    return picture


def darkness(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    return np.zeros((height, width, 3), np.uint8)


def sky_over_ground(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """A black sky that ends in a straight horizon."""
    picture = daylight(height, width, rng)
    picture[: int(rng.integers(height // 5, height // 2))] = 4
    return picture


def vignette(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """A picture that sinks into the dark towards its edges."""
    y, x = np.hanning(height)[:, None, None], np.hanning(width)[None, :, None]
    return (daylight(height, width, rng) * y * x).astype(np.uint8)


def credits(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    picture = np.zeros((height, width, 3), np.uint8)
    for line in range(2, 7):
        cv2.putText(picture, "Directed by Miko Taro", (width // 4, line * height // 8), 0, 0.5, (255, 255, 255), 1)
    return picture


def shot(picture: Picture, crop: Sequence[int], seed: int, size: tuple[int, int] = (HEIGHT, WIDTH)) -> list[np.ndarray]:
    """Six frames of a scene, two seconds long, with its borders."""
    rng = np.random.default_rng(seed)
    height, width = size[0] - crop[0] - crop[1], size[1] - crop[2] - crop[3]
    still = picture(height, width + 18, rng)
    moving = [still[:, 3 * step : 3 * step + width] for step in range(6)]
    return [np.pad(frame, ((crop[0], crop[1]), (crop[2], crop[3]), (0, 0))) for frame in moving]


def found(shots: Sequence[Sequence[np.ndarray]]) -> list[tuple[int, int, int, int]]:
    frames = [frame for shot in shots for frame in shot]
    samples = [border_sample(FilmFrame(number * SECONDS / 6, frame)) for number, frame in enumerate(frames)]
    scenes = [Scene(number * SECONDS, (number + 1) * SECONDS, "cut") for number in range(len(shots))]
    return [astuple(crop) for crop in crops_of_scenes(samples, scenes)]


def near(crops: Sequence[Sequence[int]], truth: Sequence[Sequence[int]]) -> bool:
    return len(crops) == len(truth) and int(np.abs(np.array(crops) - np.array(truth)).max()) <= 2


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 50), st.integers(0, 80), st.integers(0, 10**6))
def test_a_single_scene_tells_borders_of_any_width(rows, columns, seed):
    crop = (rows, rows, columns, columns)
    assert near(found([shot(daylight, crop, seed)]), [crop])


def test_the_aspect_may_change_with_every_scene():
    crops = [LETTERBOX, NONE, PILLARBOX, BOTH, LETTERBOX, NONE]
    assert near(found([shot(daylight, crop, seed) for seed, crop in enumerate(crops)]), crops)


@pytest.mark.parametrize("dim", [night, darkness, credits, vignette])
@pytest.mark.parametrize("crop", [NONE, LETTERBOX, BOTH])
def test_a_scene_that_shows_no_borders_takes_the_borders_around_it(dim, crop):
    """Also where it is the first of the film."""
    shots = [shot(dim, crop, 0), shot(daylight, crop, 1), shot(dim, crop, 2), shot(daylight, crop, 3)]
    assert near(found(shots), [crop] * 4)


def test_a_lamp_where_the_others_have_a_border_is_not_cut_off():
    def lamp_above(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
        picture = darkness(height, width, rng)
        picture[4:16, 100:180] = 250
        return picture

    crops = found([shot(daylight, LETTERBOX, 0), shot(lamp_above, NONE, 1), shot(daylight, LETTERBOX, 2)])
    assert near(crops, [LETTERBOX, NONE, LETTERBOX])


def test_a_dark_sky_is_not_a_border():
    shots = [shot(sky_over_ground if seed == 2 else daylight, LETTERBOX, seed) for seed in range(4)]
    assert near(found(shots), [LETTERBOX] * 4)
    assert near(found([shot(sky_over_ground, crop, 1) for crop in (NONE, LETTERBOX, BOTH)]), [NONE, LETTERBOX, BOTH])
    assert near(found([shot(sky_over_ground, LETTERBOX, 1)] * 4 + [shot(daylight, LETTERBOX, 2)]), [LETTERBOX] * 5)


def test_noise_subtitles_and_flashes_in_the_borders_are_ignored():
    rng = np.random.default_rng(0)
    crops = [LETTERBOX, BOTH, PILLARBOX, LETTERBOX]
    shots = [shot(daylight, crop, seed) for seed, crop in enumerate(crops)]
    shots[0] = [(frame + rng.normal(6, 7, frame.shape)).clip(0, 255).astype(np.uint8) for frame in shots[0]]
    shots[1][2] = np.full_like(shots[1][2], 255)
    shots[2][4] = np.zeros_like(shots[2][4])
    for frame in shots[3]:
        cv2.putText(frame, "I have been expecting you", (90, HEIGHT - 7), 0, 0.35, (255, 255, 255), 1)
    assert near(found(shots), crops)


def test_without_anything_to_go_by_nothing_is_cut_off():
    assert found([shot(darkness, LETTERBOX, 0), shot(credits, LETTERBOX, 1)]) == [NONE, NONE]


# --- fitting ----------------------------------------------------------------------------------------------------------


def test_what_remains_is_the_middle_in_its_own_shape():
    """A disc in the middle of the picture stays round, stays in the middle, and the border is gone."""
    frame = np.pad(np.full((200, 400, 3), 200, np.uint8), ((30, 30), (50, 10), (0, 0)))
    cv2.circle(frame, (250, 130), 60, (20, 20, 20), -1)
    out = fit(frame, Crop(30, 30, 50, 10), (96, 144)) < 100
    rows, columns = np.flatnonzero(out[..., 0].any(1)), np.flatnonzero(out[..., 0].any(0))
    assert abs(len(rows) - 96 * 0.6) <= 2 and abs(len(columns) - len(rows)) <= 2
    assert abs(rows.mean() - 47.5) <= 1 and abs(columns.mean() - 71.5) <= 1
    assert not out[0].any() and not out[:, 0].any() and not out[:, -1].any()


@pytest.mark.parametrize("shape", [(180, 320, 3), (180, 240, 3), (320, 180, 3)])
def test_a_crop_takes_its_share_of_what_the_clips_would_show(shape):
    frame = np.broadcast_to(np.linspace(0, 255, shape[0])[:, None, None], shape).astype(np.uint8)
    whole = fit(frame, Crop(), (96, 144)).astype(int)
    cropped = fit(frame, Margins.parse("top=25%, bottom 12.5 %").within(Crop(), shape, (96, 144)), (96, 144))
    assert np.abs(cropped[[0, -1], 0] - whole[[24, 83], 0]).max() <= 3
    assert Margins.parse("left=40px").within(Crop(2, 3, 4, 5), shape, (96, 144)) == Crop(2, 3, 44, 5)
    with pytest.raises(ValueError, match="leaves nothing"):
        fit(frame, Margins.parse("top=60%,bottom=400px").within(Crop(), shape, (96, 144)), (96, 144))
    for text in ("top=5", "bottom=100%", "10%", "top=1%;left=1%"):
        with pytest.raises(ValueError, match="such as top=10%,bottom=80px"):
            Margins.parse(text)
