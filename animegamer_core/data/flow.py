"""Backends of optical flow for the motion value, by name: OpenCV's DIS, torchvision's RAFT, and MemFlow.

Backends differ by factors, so a dataset stores which one measured it (`facts`). Nothing is downloaded: users give files
of weights. F frames, H height, W width, B pairs of frames.
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
from ..weights.storage import CheckpointError, note_of
from .motion import DEFAULT_THRESHOLD, MEASURE_HEIGHT, dis_flow

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

_PAIRS = 4  # that RAFT compares at a time: each takes about 200 MB at 480 x 720
_MULTIPLE, _LEAST = 8, 128  # RAFT takes sizes that are multiples of 8, from 128 on


class FlowError(ValueError):
    """A backend that cannot be used; the message says what is missing and what to do."""


@dataclass(frozen=True, kw_only=True)
class FlowSettings:
    """How motion is measured."""

    backend: str = "dis"
    weights: Path | None = None
    """raft, memflow: file of weights."""
    device: str = "cpu"
    """raft, memflow: cpu or cuda."""
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


def _weights(settings: FlowSettings) -> Path:
    if settings.weights is None:
        raise FlowError(f"the flow backend {settings.backend} needs a file of weights; give one, or choose dis")
    if not settings.weights.is_file():
        raise FlowError(f"{settings.weights}: no such file; give the weights of {settings.backend}, or choose dis")
    return settings.weights


def _facts(backend: str, weights: Path, **more: str) -> dict[str, str]:
    """The file's name and checksum, without its folder, which is private."""
    return {"backend": backend, **more, "weights": weights.name, "sha256": note_of(weights).sha256}


def _ready(model: nn.Module, device: str) -> nn.Module:
    try:
        return model.eval().requires_grad_(False).to(device)
    except (RuntimeError, AssertionError) as error:
        raise FlowError(f"the device {device!r} cannot be used ({str(error).splitlines()[0]})") from error


class DisFlow:
    """OpenCV's DIS, which needs no weights."""

    facts: Mapping[str, Any] = {"backend": "dis", "preset": "ultrafast"}

    def __call__(self, frames: Sequence[NDArray[np.uint8]]) -> Iterator[NDArray[np.floating]]:
        return dis_flow(frames)


class RaftFlow:
    """torchvision's RAFT, large or small according to the weights."""

    def __init__(self, settings: FlowSettings) -> None:
        """Load the weights, a .pth or .safetensors file in torchvision's names; FlowError for any other."""
        from ..weights.weight_files import read_state

        weights = _weights(settings)
        try:
            state = read_state(weights)
            from torchvision.models import optical_flow

            name = "raft_large" if any(key.startswith("mask_predictor.") for key in state) else "raft_small"
            model = getattr(optical_flow, name)(weights=None)
            model.load_state_dict(state, strict=True)
        except ImportError as error:
            raise FlowError(
                f"the flow backend raft needs torchvision ({error}); install the one that fits your torch, or choose "
                "dis"
            ) from error
        except (CheckpointError, OSError, RuntimeError) as error:
            raise FlowError(f"{weights}: these are not torchvision's weights of RAFT ({brief(error)})") from error
        self._model, self._device = _ready(model, settings.device), settings.device
        self.facts = _facts("raft", weights, model=name)

    def __call__(self, frames: Sequence[NDArray[np.uint8]]) -> Iterator[NDArray[np.floating]]:
        import torch

        height, width = frames[0].shape[:2]
        for first in range(0, len(frames) - 1, _PAIRS):
            part = np.stack(frames[first : first + _PAIRS + 1])
            images_B3HW = _padded(torch.from_numpy(part).to(self._device).permute(0, 3, 1, 2).float() / 127.5 - 1)
            with torch.inference_mode():
                flow_B2HW = self._model(images_B3HW[:-1], images_B3HW[1:])[-1][..., :height, :width]
            yield from flow_B2HW.permute(0, 2, 3, 1).cpu().numpy()


def _padded(images_B3HW: Tensor) -> Tensor:
    """The images, their last row and column repeated until RAFT takes their size."""
    from torch.nn.functional import pad

    height, width = images_B3HW.shape[-2:]
    rows, columns = (max(_LEAST, -(-size // _MULTIPLE) * _MULTIPLE) - size for size in (height, width))
    return pad(images_B3HW, (0, columns, 0, rows), mode="replicate")


class MemFlow:
    """MemFlow, the paper's choice, by ptlflow."""

    def __init__(self, settings: FlowSettings) -> None:
        """Load ptlflow's weights of MemFlow; FlowError for any other file, and without ptlflow."""
        weights = _weights(settings)
        try:
            import ptlflow

            model = ptlflow.get_model("memflow", str(weights))  # reads tensors only, and never runs code
        except ImportError as error:
            raise FlowError(
                f"the flow backend memflow needs ptlflow ({error}); run `pip install ptlflow`, or choose dis"
            ) from error
        except (OSError, EOFError, LookupError, RuntimeError, UnpicklingError, ValueError) as error:
            raise FlowError(f"{weights}: these are not ptlflow's weights of MemFlow ({brief(error)})") from error
        self._model, self._device = _ready(model, settings.device), settings.device
        self.facts = _facts("memflow", weights, ptlflow=str(getattr(ptlflow, "__version__", "unknown")))

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
    "raft": RaftFlow,
    "memflow": MemFlow,
}
