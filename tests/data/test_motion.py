"""The measured motion value and its levels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from animegamer_core.data.motion import FlowSettings, level_edges, level_of, median_by_level, motion_value, open_flow


def soft_texture(height: int, width: int) -> np.ndarray:
    """Return a smooth random picture (H, W, 3), so that optical flow has features to follow."""
    import cv2

    noise = np.random.default_rng(0).uniform(0, 255, (height // 12, width // 12, 3)).astype(np.float32)
    return cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC).clip(0, 255).astype(np.uint8)


def sliding(step: int, height: int, width: int) -> np.ndarray:
    picture = soft_texture(height, width + 8 * step)
    return np.stack([picture[:, index * step : index * step + width] for index in range(5)])


@pytest.mark.parametrize(
    ("step", "height", "width", "value"),
    [(1, 480, 640, 1), (3, 480, 640, 3), (6, 480, 640, 6), (1, 96, 144, 5), (4, 960, 720, 2), (0, 96, 144, 0)],
)
def test_a_known_shift_is_measured_within_a_tenth_at_480_px(step, height, width, value):
    assert motion_value(sliding(step, height, width)) == pytest.approx(value, rel=0.1)


def test_still_pixels_are_left_out_of_the_mean():
    half = sliding(3, 480, 640)
    half[:, :, :320] = 128
    assert motion_value(half) == pytest.approx(3, rel=0.2)
    assert motion_value(half, threshold=100.0) == 0.0


def test_a_steady_measure_takes_the_camera_out_and_leaves_whom_it_follows():
    steady, panned = open_flow(FlowSettings(backend="steady")), sliding(6, 480, 640)
    shaken = soft_texture(540, 720)[30:510, 40:680][None].repeat(5, axis=0)
    for number, (down, right) in enumerate([(0, 0), (10, -12), (-9, 11), (12, 5), (-8, -12)]):
        shaken[number] = soft_texture(540, 720)[30 + down : 510 + down, 40 + right : 680 + right]
    for statue in (panned, shaken):
        assert motion_value(statue) > 5 and motion_value(statue, backend=steady) < 0.7
    panned[:, 160:320, 240:400] = soft_texture(160, 160)
    assert motion_value(panned, backend=steady, slow_fraction=0.5) == pytest.approx(6, rel=0.15)


def test_what_is_slow_beside_the_quick_pixels_is_background():
    slow, quick = sliding(1, 480, 320), sliding(10, 480, 320)
    both = np.concatenate([slow, quick], axis=2)
    assert motion_value(both) == pytest.approx(5.5, rel=0.2)
    assert motion_value(both, slow_fraction=0.2) == pytest.approx(10, rel=0.1)
    assert motion_value(slow, slow_fraction=0.2) == pytest.approx(1, rel=0.1), "a calm clip keeps its motion"
    flow = np.zeros((10, 10, 2))
    flow[..., 0] = np.repeat([100.0, 20.0, 9.0, 1.0], [4, 6, 50, 40]).reshape(10, 10)
    measured = motion_value(slow[:2], backend=lambda frames: iter([flow]), slow_fraction=0.5)
    assert measured == pytest.approx(52), "a tenth moves at 20 or more, and one in 20 says what is quick"


@given(st.lists(st.floats(0.1, 50), min_size=20, max_size=60, unique=True))
def test_levels_are_quintiles_and_the_table_lies_between_the_edges(values):
    edges = level_edges(values)
    levels = [level_of(value, edges) for value in values]
    assert all(abs(levels.count(level) - len(values) / 5) <= 1.5 for level in range(1, 6))
    table = median_by_level(values, edges)
    assert [level_of(value, edges) for value in table] == [1, 2, 3, 4, 5]


def test_values_that_part_no_levels_are_refused():
    with pytest.raises(ValueError, match="at least 5"):
        level_edges([1.0, 2.0])
    with pytest.raises(ValueError, match="do not increase"):
        level_edges([1.0] * 20)
    with pytest.raises(ValueError, match="level"):
        median_by_level([1.0], (1.0, 2.0, 3.0, 4.0))
