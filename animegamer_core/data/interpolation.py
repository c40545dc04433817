"""A shot at another frame rate, by motion-compensated interpolation with OpenCV's DIS flow.

H height, W width. A pixel of the new picture is looked up in both neighbours along the flow, and the two are mixed. The
flow at a time in between follows from the flows between the two pictures as in Jiang et al., "Super SloMo" (CVPR 2018),
equation 4. Where the two lookups differ much, the flow is wrong, mostly because something appears or passes too fast:
there the nearer picture is taken alone, since a mix would show a ghost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

_GHOST = 40.0  # grey levels of difference from which the nearer picture is taken alone
_NEAR = 1e-3  # of a frame: as good as the picture itself


def frame_count(frames: int, fps: float, wanted: float) -> int:
    """How many pictures a shot of `frames` at `fps` has at the `wanted` rate; at least one."""
    return max(1, round(frames * wanted / fps))


def at_rate(frames: Sequence[NDArray[np.uint8]], fps: float, wanted: float) -> Iterator[NDArray[np.uint8]]:
    """Yield a shot's frames (H, W, 3) at the `wanted` rate. The last one stays until the shot ends.

    A shot that has this rate already is passed on as it is, and OpenCV is not needed.
    """
    if fps == wanted:
        yield from frames
        return
    pair, between = -1, None
    for number in range(frame_count(len(frames), fps, wanted)):
        time = min(number * fps / wanted, len(frames) - 1.0)
        index = int(time + _NEAR)
        part = time - index
        if part < _NEAR:
            yield frames[index]
            continue
        if pair != index:
            pair, between = index, _Between(frames[index], frames[index + 1])
        assert between is not None
        yield between.at(part)


class _Between:
    """Two consecutive frames with the flow between them in both directions."""

    def __init__(self, first: NDArray[np.uint8], second: NDArray[np.uint8]) -> None:
        import cv2

        self._first, self._second = (np.ascontiguousarray(frame) for frame in (first, second))
        grey = [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in (self._first, self._second)]
        flow = cv2.DISOpticalFlow_create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
        self._forward_HW2 = flow.calc(grey[0], grey[1], None)
        self._back_HW2 = flow.calc(grey[1], grey[0], None)
        height, width = grey[0].shape
        self._place_HW2 = np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1).astype(np.float32)

    def at(self, part: float) -> NDArray[np.uint8]:
        """The picture at this part of the way from the first to the second, 0..1."""
        rest = 1 - part
        to_first = part * (part * self._back_HW2 - rest * self._forward_HW2)
        to_second = rest * (rest * self._forward_HW2 - part * self._back_HW2)
        first, second = self._moved(self._first, to_first), self._moved(self._second, to_second)
        nearer = first if part <= 0.5 else second
        ghost = np.clip(np.abs(first - second).max(-1, keepdims=True) / _GHOST - 0.5, 0, 1)
        mixed = rest * first + part * second
        return (mixed + ghost * (nearer - mixed) + 0.5).astype(np.uint8)

    def _moved(self, frame: NDArray[np.uint8], by_HW2: NDArray[np.float32]) -> NDArray[np.float32]:
        import cv2

        place = self._place_HW2 + by_HW2
        return cv2.remap(frame, place, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE).astype(np.float32)
