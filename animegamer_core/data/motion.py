"""The measured motion of a clip: optical flow as one number, and numbers as five levels.

The paper's "Motion Scope" (supplement, section 1) is the mean absolute flow of a clip, after a threshold of r=0.2 has
filtered out the background. The paper does not say of what 0.2 is. As pixels per frame it keeps nearly the whole
picture where anything moves; as a fraction of what the quick pixels do it leaves out what is slow next to them, and
agrees better with an eye (docs/dataset.md). Datasets of films use both, with a larger fraction.

Backends compute the flow: OpenCV's DIS, with or without the camera's motion, and MemFlow from a file of weights that a
user gives. They differ by factors, so a dataset stores which one measured it (`facts`). F frames, H height, W width,
C channels, 2 pixels across and down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..game.state import level_of
from ..messages import shortened
from ..weights.storage import note_of

MEASURE_HEIGHT = 480  # flow is in pixels per frame at this height, whatever the clip's own
DEFAULT_THRESHOLD = 0.2  # px per frame
QUICK = 95  # percentile of the magnitudes; the largest of all may be one misread pixel
SLOW_FRACTION = 0.5  # of the quick pixels' magnitude; for datasets cut from films, the Toybox's own has none
LEVELS = 5
GRID, WITH_CAMERA = 16, 1.0  # px: between points that show the camera's motion; by which they may differ from it

FlowBackend = Callable[[Sequence["NDArray[np.uint8]"]], Iterator["NDArray[np.floating]"]]


def motion_value(
    frames_FHWC: NDArray[np.uint8],
    *,
    backend: FlowBackend | None = None,
    threshold: float = DEFAULT_THRESHOLD,
    slow_fraction: float = 0.0,
) -> float:
    """A clip's mean motion in pixels per frame at 480 px height, over consecutive frames.

    frames_FHWC is uint8 RGB (F, H, W, 3) with F >= 2, at 8 frames per second. Clips higher than 480 px are reduced
    (area); lower ones are measured as they are, and their flow is scaled: enlarging them first takes five times as long
    and gives values that differ by 7 % (30 drawn clips of 192 px, correlation 0.999). Magnitudes below `threshold`
    (px), or below `slow_fraction` of the magnitude that one pixel in 20 of the pair exceeds, are left out; a pair of
    frames without others counts 0. backend: of `open_flow`, by default DIS; ValueError if its flow is not finite.
    Source: supplement, section 1, "Motion Scope".
    """
    frames = [_reduced(frame) for frame in frames_FHWC]
    scale = MEASURE_HEIGHT / frames[0].shape[0]
    flows = (backend or DisFlow())(frames)
    return float(np.mean([_pair_value(scale * flow, threshold, slow_fraction) for flow in flows]))


def _reduced(frame_HWC: NDArray[np.uint8]) -> NDArray[np.uint8]:
    import cv2

    height, width = frame_HWC.shape[:2]
    if height <= MEASURE_HEIGHT:
        return frame_HWC
    size = (max(1, round(width * MEASURE_HEIGHT / height)), MEASURE_HEIGHT)
    return cv2.resize(frame_HWC, size, interpolation=cv2.INTER_AREA)


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
    low, second, third, high = edges = np.quantile(np.asarray(values, dtype=float), (0.2, 0.4, 0.6, 0.8)).tolist()
    if not low < second < third < high:
        raise ValueError(f"the quintile edges {edges} do not increase; drop still clips or add moving ones")
    return low, second, third, high


def median_by_level(values: Sequence[float], edges: Sequence[float]) -> tuple[float, ...]:
    """The median motion value of each level, a world's own motion table; ValueError if a level has no value."""
    by_level = [[value for value in values if level_of(value, edges) == level] for level in range(1, LEVELS + 1)]
    empty = [level for level, members in enumerate(by_level, start=1) if not members]
    if empty:
        raise ValueError(f"no motion value falls in level {empty}; take the edges from the same clips")
    return tuple(float(np.median(members)) for members in by_level)


class FlowError(ValueError):
    """A backend that cannot be used; the message says what is missing and what to do."""


@dataclass(frozen=True, kw_only=True)
class FlowSettings:
    """How motion is measured."""

    backend: str = "dis"
    weights: Path | None = None
    """memflow: file of weights."""
    device: str = "cpu"
    """memflow: cpu or cuda."""
    threshold: float = DEFAULT_THRESHOLD
    """px per frame at 480 px height; slower pixels count as still."""
    slow_fraction: float = 0.0
    """Fraction of the fast pixels' speed; slower pixels count as background."""

    def __post_init__(self) -> None:
        if not 0 <= self.threshold < math.inf:
            raise FlowError(f"threshold is {self.threshold}; expected px per frame, 0 or more")
        if not 0 <= self.slow_fraction < 1:
            raise FlowError(f"the slow fraction is {self.slow_fraction}; expected 0 or more and less than 1")

    @property
    def left_out(self) -> dict[str, Any]:
        """What `motion_value` leaves out, as its arguments."""
        return {"threshold": self.threshold, "slow_fraction": self.slow_fraction}


class Flow(Protocol):
    """An open backend. facts: its name and version, for dataset.json."""

    @property
    def facts(self) -> Mapping[str, Any]: ...

    def __call__(self, frames: Sequence[NDArray[np.uint8]]) -> Iterator[NDArray[np.floating]]:
        """Yield the flow (H, W, 2) in pixels between consecutive RGB frames (H, W, 3)."""


def open_flow(settings: FlowSettings) -> Flow:
    """A backend for `motion_value`; FlowError if it cannot be used."""
    if settings.backend not in BACKENDS:
        raise FlowError(f"unknown flow backend {settings.backend!r}; choose one of {', '.join(BACKENDS)}")
    return BACKENDS[settings.backend](settings)


def motion_facts(flow: Flow, threshold: float, slow_fraction: float = 0.0) -> dict[str, Any]:
    """How motion was measured, for dataset.json."""
    return {**flow.facts, "threshold": threshold, "slow_fraction": slow_fraction, "height": MEASURE_HEIGHT}


class DisFlow:
    """OpenCV's DIS, which needs no weights. On our clips ULTRAFAST ranks like FAST and MEDIUM in a fraction of their
    time."""

    facts: Mapping[str, Any] = {"backend": "dis", "preset": "ultrafast"}

    def __call__(self, frames: Sequence[NDArray[np.uint8]]) -> Iterator[NDArray[np.floating]]:
        import cv2

        flow = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_ULTRAFAST)
        greys = [cv2.cvtColor(np.ascontiguousarray(frame), cv2.COLOR_RGB2GRAY) for frame in frames]
        return (flow.calc(before, after, None) for before, after in pairwise(greys))


class SteadyFlow:
    """DIS as if the camera stood still: its own motion is the homography that most of the picture follows.

    It is measured again after the pictures are aligned, since DIS loses what a shake moves by many pixels.
    """

    facts: Mapping[str, Any] = {**DisFlow.facts, "backend": "steady"}

    def __call__(self, frames: Sequence[NDArray[np.uint8]]) -> Iterator[NDArray[np.floating]]:
        import cv2

        size = frames[0].shape[1::-1]
        at_HW2 = np.stack(np.meshgrid(*map(np.arange, size)), axis=-1).astype(np.float32)
        some = np.s_[GRID // 2 :: GRID, GRID // 2 :: GRID]
        for before, after in pairwise(frames):
            (flow_HW2,) = DisFlow()((before, after))
            points, moved = at_HW2[some].reshape(-1, 2), (at_HW2 + flow_HW2)[some].reshape(-1, 2)
            camera, _ = cv2.findHomography(points, moved, cv2.RANSAC, WITH_CAMERA)
            if camera is not None:
                flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
                aligned = cv2.warpPerspective(after, camera, size, flags=flags, borderMode=cv2.BORDER_REPLICATE)
                (flow_HW2,) = DisFlow()((before, aligned))
                seen_HW2 = cv2.perspectiveTransform(at_HW2, camera)
                flow_HW2[((seen_HW2 < 0) | (seen_HW2 >= size)).any(axis=-1)] = 0  # these left the picture
            yield flow_HW2


class MemFlow:
    """MemFlow, the paper's choice, by ptlflow."""

    def __init__(self, settings: FlowSettings) -> None:
        """Load ptlflow's weights of MemFlow; FlowError for any other file, and without ptlflow."""
        weights = settings.weights
        if weights is None or not weights.is_file():
            raise FlowError(f"the flow backend memflow needs a file of weights, not {weights}; give one, or choose dis")
        try:
            import ptlflow

            model = ptlflow.get_model("memflow", str(weights))  # reads tensors only, and never runs code
            self._model = model.eval().requires_grad_(False).to(settings.device)
        except ImportError as error:
            raise FlowError(
                f"the flow backend memflow needs ptlflow ({error}); run `pip install ptlflow`, or choose dis"
            ) from error
        except (AssertionError, OSError, EOFError, LookupError, RuntimeError, UnpicklingError, ValueError) as error:
            raise FlowError(
                f"{weights} cannot be used as ptlflow's weights of MemFlow on {settings.device} ({shortened(error)})"
            ) from error
        self._device = settings.device
        version = str(getattr(ptlflow, "__version__", "unknown"))
        # the file's name and checksum, without its folder, which is private
        file = {"weights": weights.name, "sha256": note_of(weights).sha256}
        self.facts = {"backend": "memflow", "ptlflow": version, **file}

    def __call__(self, frames: Sequence[NDArray[np.uint8]]) -> Iterator[NDArray[np.floating]]:
        import torch

        last = len(frames) - 2
        for first in range(last + 1):  # in order, since MemFlow keeps a memory
            pair_FHWC = torch.from_numpy(np.stack(frames[first : first + 2])).to(self._device)
            # (1, 2, C, H, W), blue first as ptlflow reads files
            images = pair_FHWC.permute(0, 3, 1, 2).flip(1)[None].float() / 255
            meta = {"is_seq_start": first == 0, "is_seq_end": first == last}
            with torch.inference_mode():
                flow_2HW = self._model({"images": images, "meta": meta})["flows"][0, 0]
            yield flow_2HW.permute(1, 2, 0).float().cpu().numpy()


# Adding a backend is a row here, and a class like those above.
BACKENDS: dict[str, Callable[[FlowSettings], Flow]] = {
    "dis": lambda settings: DisFlow(),
    "steady": lambda settings: SteadyFlow(),
    "memflow": MemFlow,
}
