"""Backends of optical flow for the motion value, by name: OpenCV's DIS, and MemFlow.

Backends differ by factors, so a dataset stores which one measured it (`facts`). Nothing is downloaded: users give files
of weights. F frames, H height, W width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..messages import brief
from ..weights.storage import note_of
from .motion import DEFAULT_THRESHOLD, MEASURE_HEIGHT, dis_flow

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
    """OpenCV's DIS, which needs no weights."""

    facts: Mapping[str, Any] = {"backend": "dis", "preset": "ultrafast"}

    def __call__(self, frames: Sequence[NDArray[np.uint8]]) -> Iterator[NDArray[np.floating]]:
        return dis_flow(frames)


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
                f"{weights} cannot be used as ptlflow's weights of MemFlow on {settings.device} ({brief(error)})"
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
    "memflow": MemFlow,
}
