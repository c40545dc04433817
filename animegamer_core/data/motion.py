"""The measured motion of a clip: optical flow as one number, and numbers as five levels.

The paper's "Motion Scope" (supplement, section 1) is the mean absolute flow of a clip, after a threshold of r=0.2 has
filtered out the background. The paper does not say of what 0.2 is. As pixels per frame it keeps nearly the whole
picture where anything moves; as a fraction of what the quick pixels do it leaves out what is slow next to them, and
agrees better with an eye (docs/dataset.md). Datasets of films use both, with a larger fraction. `flow` offers several
programs that compute the flow; the rest is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ..game.state import level_of

MEASURE_HEIGHT = 480  # flow is in pixels per frame at this height, whatever the clip's own
DEFAULT_THRESHOLD = 0.2  # px per frame
QUICK = 95  # percentile of the magnitudes; the largest of all may be one misread pixel
SLOW_FRACTION = 0.5  # of the quick pixels' magnitude; for datasets cut from films, the Toybox's own has none
LEVELS = 5

FlowBackend = Callable[[Sequence["NDArray[np.uint8]"]], Iterator["NDArray[np.floating]"]]


def dis_flow(frames: Sequence[NDArray[np.uint8]]) -> Iterator[NDArray[np.floating]]:
    """Yield OpenCV's DIS flow (H, W, 2) between consecutive RGB frames (H, W, 3), in pixels.

    On our clips the preset ULTRAFAST ranks like FAST and MEDIUM in a fraction of their time.
    """
    import cv2

    flow = cv2.DISOpticalFlow_create(cv2.DISOPTICAL_FLOW_PRESET_ULTRAFAST)
    previous = None
    for frame in frames:
        grey = cv2.cvtColor(np.ascontiguousarray(frame), cv2.COLOR_RGB2GRAY)
        if previous is not None:
            yield flow.calc(previous, grey, None)
        previous = grey


def motion_value(
    frames_FHWC: NDArray[np.uint8],
    *,
    backend: FlowBackend = dis_flow,
    threshold: float = DEFAULT_THRESHOLD,
    slow_fraction: float = 0.0,
) -> float:
    """A clip's mean motion in pixels per frame at 480 px height, over consecutive frames.

    frames_FHWC is uint8 RGB (F, H, W, 3) with F >= 2, at 8 frames per second. Clips lower than 480 px are enlarged
    (bicubic), higher ones reduced (area). Magnitudes below `threshold` (px), or below `slow_fraction` of the magnitude
    that one pixel in 20 of the pair exceeds, are left out; a pair of frames without others counts 0. backend: one that
    `flow.open_flow` opened. Source: the paper's supplement, section 1, "Motion Scope".
    ValueError: an array of another shape, or flow that is not finite.
    """
    if frames_FHWC.ndim != 4 or frames_FHWC.shape[-1] != 3 or frames_FHWC.shape[0] < 2:
        raise ValueError(f"a clip of shape {frames_FHWC.shape} cannot be measured; give RGB frames (F >= 2, H, W, 3)")
    if frames_FHWC.dtype != np.uint8:
        raise ValueError(f"a clip of type {frames_FHWC.dtype} cannot be measured; convert it to uint8 (0..255)")
    frames = [_at_measure_height(frame) for frame in frames_FHWC]
    return float(np.mean([_pair_value(flow, threshold, slow_fraction) for flow in backend(frames)]))


def _at_measure_height(frame_HWC: NDArray[np.uint8]) -> NDArray[np.uint8]:
    import cv2

    height, width = frame_HWC.shape[:2]
    if height == MEASURE_HEIGHT:
        return frame_HWC
    size = (max(1, round(width * MEASURE_HEIGHT / height)), MEASURE_HEIGHT)
    return cv2.resize(frame_HWC, size, interpolation=cv2.INTER_CUBIC if height < MEASURE_HEIGHT else cv2.INTER_AREA)


def _pair_value(flow_HW2: NDArray[np.floating], threshold: float, slow_fraction: float) -> float:
    magnitude = np.hypot(flow_HW2[..., 0], flow_HW2[..., 1])
    if not np.isfinite(magnitude).all():
        raise ValueError("the flow backend returned values that are not finite; give it matching weights")
    moving = magnitude[magnitude >= max(threshold, slow_fraction * np.percentile(magnitude, QUICK))]
    return float(moving.mean()) if moving.size else 0.0


def level_edges(values: Sequence[float]) -> tuple[float, float, float, float]:
    """The four quintile edges of measured motion values; ValueError for fewer than five, or too many alike."""
    if len(values) < LEVELS:
        raise ValueError(
            f"{len(values)} motion values are too few for {LEVELS} levels; measure at least {LEVELS} clips"
        )
    edges = tuple(float(edge) for edge in np.quantile(np.asarray(values, dtype=float), (0.2, 0.4, 0.6, 0.8)))
    if any(low >= high for low, high in zip(edges, edges[1:], strict=False)):
        raise ValueError(f"the quintile edges {edges} do not increase; drop still clips or add moving ones")
    return edges


def median_by_level(values: Sequence[float], edges: Sequence[float]) -> tuple[float, ...]:
    """The median motion value of each level, a world's own motion table; ValueError if a level has no value."""
    by_level = [[value for value in values if level_of(value, edges) == level] for level in range(1, LEVELS + 1)]
    empty = [level for level, members in enumerate(by_level, start=1) if not members]
    if empty:
        raise ValueError(f"no motion value falls in level {empty}; take the edges from the same clips")
    return tuple(float(np.median(members)) for members in by_level)
