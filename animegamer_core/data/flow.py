"""Backends of optical flow for the motion value, by name: OpenCV's DIS, torchvision's RAFT, and MemFlow.

Backends differ by factors, so a dataset stores which one measured it (`facts`). Nothing is downloaded: users give files
of weights. MemFlow, the paper's choice, runs in an environment of its own (ptlflow) and exchanges files with us. F
frames, H height, W width, B pairs of frames.
"""

from __future__ import annotations

import json
import math
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..checkpoint.storage import CheckpointError, note_of
from .motion import DEFAULT_THRESHOLD, MEASURE_HEIGHT, dis_flow

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

BACKENDS = ("dis", "raft", "memflow")
WORKER = Path(__file__).with_name("memflow_worker.py")
TAIL = 600  # last characters of a crashed program's output that are shown
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
    python: Path | None = None
    """memflow: python of an environment that has ptlflow."""
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
    def left_out(self) -> dict[str, float]:
        """What `motion_value` leaves out, as its arguments."""
        return {"threshold": self.threshold, "slow_fraction": self.slow_fraction}


class Flow(Protocol):
    """An open backend. facts: its name and version, for dataset.json."""

    facts: Mapping[str, Any]

    def __call__(self, frames: Sequence[NDArray[np.uint8]]) -> Iterator[NDArray[np.floating]]:
        """Yield the flow (H, W, 2) in pixels between consecutive RGB frames (H, W, 3)."""


@contextmanager
def open_flow(settings: FlowSettings) -> Iterator[Flow]:
    """An open backend for `motion_value`; FlowError if it cannot be used."""
    if settings.backend not in BACKENDS:
        raise FlowError(f"unknown flow backend {settings.backend!r}; choose one of {', '.join(BACKENDS)}")
    if settings.backend == "dis":
        yield DisFlow()
    elif settings.backend == "raft":
        yield RaftFlow(_weights(settings), settings.device)
    else:
        with MemFlow(_python(settings), _weights(settings), settings.device) as flow:
            yield flow


def motion_facts(flow: Flow, threshold: float, slow_fraction: float = 0.0) -> dict[str, Any]:
    """How motion was measured, for dataset.json. A slow fraction of 0 is not named, as in files of before."""
    fraction = {"slow_fraction": slow_fraction} if slow_fraction else {}
    return {**flow.facts, "threshold": threshold, **fraction, "height": MEASURE_HEIGHT}


def _weights(settings: FlowSettings) -> Path:
    if settings.weights is None:
        raise FlowError(f"the flow backend {settings.backend} needs a file of weights; give one, or choose dis")
    if not settings.weights.is_file():
        raise FlowError(f"{settings.weights}: no such file; give the weights of {settings.backend}, or choose dis")
    return settings.weights


def _python(settings: FlowSettings) -> Path:
    if settings.python is None:
        raise FlowError(
            "the flow backend memflow runs in its own environment; give the python of an environment with ptlflow"
        )
    return settings.python


def _weights_facts(weights: Path) -> dict[str, str]:
    """Name and checksum of a weights file, without its folder, which is private."""
    return {"weights": weights.name, "sha256": note_of(weights).sha256}


class DisFlow:
    """OpenCV's DIS, which needs no weights."""

    facts: Mapping[str, Any] = {"backend": "dis", "preset": "ultrafast"}

    def __call__(self, frames: Sequence[NDArray[np.uint8]]) -> Iterator[NDArray[np.floating]]:
        return dis_flow(frames)


class RaftFlow:
    """torchvision's RAFT, large or small according to the weights."""

    def __init__(self, weights: Path, device: str) -> None:
        """Load the weights, a .pth or .safetensors file in torchvision's names; FlowError for any other."""
        state = _state(weights)
        name = "raft_large" if any(key.startswith("mask_predictor.") for key in state) else "raft_small"
        self._model = _raft(name, state, weights).eval().requires_grad_(False).to(_device(device))
        self._device = device
        self.facts = {"backend": "raft", "model": name, **_weights_facts(weights)}

    def __call__(self, frames: Sequence[NDArray[np.uint8]]) -> Iterator[NDArray[np.floating]]:
        import torch

        height, width = frames[0].shape[:2]
        for first in range(0, len(frames) - 1, _PAIRS):
            part = np.stack(frames[first : first + _PAIRS + 1])
            images_B3HW = _padded(torch.from_numpy(part).to(self._device).permute(0, 3, 1, 2).float() / 127.5 - 1)
            with torch.inference_mode():
                flow_B2HW = self._model(images_B3HW[:-1], images_B3HW[1:])[-1][..., :height, :width]
            yield from flow_B2HW.permute(0, 2, 3, 1).cpu().numpy()


def _state(path: Path) -> dict[str, Tensor]:
    """The tensors of a weights file; FlowError for any other file."""
    from ..checkpoint.weight_files import read_state

    try:
        return read_state(path)
    except (CheckpointError, OSError) as error:
        raise FlowError(f"the file cannot be read as weights of RAFT: {error}") from error


def _raft(name: str, state: dict[str, Tensor], path: Path) -> nn.Module:
    try:
        from torchvision.models import optical_flow
    except ImportError as error:
        raise FlowError(
            f"the flow backend raft needs torchvision ({error}); install the one that fits your torch, or choose dis"
        ) from error
    model = getattr(optical_flow, name)(weights=None)
    try:
        model.load_state_dict(state, strict=True)
    except RuntimeError as error:
        raise FlowError(
            f"{path}: not the weights of torchvision's {name} ({str(error).splitlines()[-1].strip()})"
        ) from error
    return model


def _device(name: str) -> str:
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise FlowError(f"the device {name!r} cannot be used ({str(error).splitlines()[0]})") from error
    return name


def _padded(images_B3HW: Tensor) -> Tensor:
    """The images, their last row and column repeated until RAFT takes their size."""
    from torch.nn.functional import pad

    height, width = images_B3HW.shape[-2:]
    rows, columns = (max(_LEAST, -(-size // _MULTIPLE) * _MULTIPLE) - size for size in (height, width))
    return pad(images_B3HW, (0, columns, 0, rows), mode="replicate")


class MemFlow:
    """MemFlow by ptlflow, in another Python environment: one process that loads it once and answers clip by clip."""

    def __init__(self, python: Path, weights: Path, device: str) -> None:
        """Nothing runs before the `with` block."""
        self._command = [str(python), "-I", str(WORKER), str(weights.resolve()), device]  # -I: no module of ours
        self._python = python
        self.facts: Mapping[str, Any] = {"backend": "memflow", "model": "memflow", **_weights_facts(weights)}

    def __enter__(self) -> MemFlow:
        self._folder = tempfile.TemporaryDirectory(prefix="memflow-")
        self._log = Path(self._folder.name, "log.txt").open("w+", encoding="utf-8", errors="replace")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._log}
        try:
            self._process = subprocess.Popen(self._command, text=True, encoding="utf-8", **pipes)
        except OSError as error:
            self._log.close()
            self._folder.cleanup()
            raise FlowError(
                f"{self._python}: cannot be run ({error.strerror}); give the python of an environment with ptlflow"
            ) from error
        try:
            self.facts = {**self.facts, "ptlflow": self._answer()["ptlflow"]}
        except FlowError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # a crashed worker did not read its input
            self._process.stdin.close()
        self._process.terminate()
        self._process.wait()
        self._process.stdout.close()
        self._log.close()
        self._folder.cleanup()

    def __call__(self, frames: Sequence[NDArray[np.uint8]]) -> Iterator[NDArray[np.floating]]:
        given, got = (Path(self._folder.name, name) for name in ("frames.npy", "flows.npy"))
        np.save(given, np.stack(frames))
        with suppress(OSError):  # it has ended; its output says why
            self._process.stdin.write(json.dumps({"frames": str(given), "flows": str(got)}) + "\n")
            self._process.stdin.flush()
        self._answer()
        flows_FHW2 = np.load(got)
        expected = (len(frames) - 1, *frames[0].shape[:2], 2)
        if flows_FHW2.shape != expected:
            raise FlowError(f"{self._python}: MemFlow returned flows of shape {flows_FHW2.shape}; expected {expected}")
        yield from flows_FHW2

    def _answer(self) -> dict[str, Any]:
        """The worker's next line; FlowError if it ended."""
        line = self._process.stdout.readline()
        answer = json.loads(line) if line.endswith("\n") else {}
        if "missing" in answer:
            raise FlowError(
                f"{self._python}: this environment has no {answer['missing']}; install it there with "
                f"`{self._python} -m pip install ptlflow`"
            )
        if not answer:
            code = self._process.wait()
            self._log.seek(0)
            output = " ".join(self._log.read().split())[-TAIL:] or "no output"
            raise FlowError(f"{self._python}: MemFlow ended with exit code {code}: {output}")
        return answer
