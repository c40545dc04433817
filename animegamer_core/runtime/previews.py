"""A shot while it is drawn: the frames that it seems to become, shown as a moving clip."""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
import typing
from collections.abc import Callable

import torch

from ..media.video import Frames, to_uint8

if typing.TYPE_CHECKING:
    from ..model.decoder import ShotDecoder

FRACTION = 0.05  # of the sampling time that previews may take, on slow machines and on fast ones


class MovingPreview:
    """Shows the frames of the newest preview in a loop, from a thread of its own, inside of a `with` block.

    show: gets one (H, W, 3) uint8 frame.
    """

    def __init__(self, show: Callable[[Frames], object], fps: float) -> None:
        self._show, self._pause, self._later = show, 1 / fps, iter(())
        self._lock, self._ended, self._thread = threading.Lock(), threading.Event(), threading.Thread(target=self._move)

    def __enter__(self) -> MovingPreview:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def step(self, decoder: ShotDecoder, done: int, steps: int, clean_BTCHW: torch.Tensor) -> None:
        """Preview a shot after one of its steps (`on_step` of the sampler), if previews have not taken long so far."""
        if done == 1:
            self._begun, self._spent = time.monotonic(), 0.0
        if done < steps and self._spent <= (time.monotonic() - self._begun) * FRACTION:
            clean_BTCHW.flatten()[0].item()  # waits for the step, whose time is not the preview's
            now, compiled = time.monotonic(), "torch._dynamo" in sys.modules  # which takes seconds to import
            with torch.compiler.set_stance("force_eager") if compiled else contextlib.nullcontext():
                self.play(to_uint8(decoder.preview(clean_BTCHW)))  # compiling for its size does not pay
            self._spent += time.monotonic() - now

    def play(self, frames: Frames | None = None) -> None:
        """Show these frames from now on; none: nothing more, until the next preview."""
        with self._lock:
            if frames is not None:
                self._show(frames[0])
            still = frames is None or len(frames) == 1
            self._later = iter(()) if still else itertools.cycle([*frames[1:], frames[0]])

    def _move(self) -> None:
        while not self._ended.wait(self._pause):
            with self._lock:
                for frame in itertools.islice(self._later, 1):
                    self._show(frame)
