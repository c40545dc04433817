"""A shot while it is drawn: the frames that it seems to become, shown as a moving clip."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import typing
from collections.abc import Callable

if typing.TYPE_CHECKING:
    from torch import Tensor

    from ..media.video import Frames
    from ..model.decoder import ShotDecoder

FRACTION = 0.05  # of the sampling time that previews may take, on slow machines and on fast ones
FIRST = 0.2  # of the steps; earlier ones show little but noise


class MovingPreview:
    """Shows the frames of the newest preview in a loop, from a thread of its own, inside of a `with` block.

    show: gets one (H, W, 3) uint8 frame.
    """

    def __init__(self, show: Callable[[Frames], object], fps: float) -> None:
        self._show, self._pause, self._frames = show, 1 / fps, ()
        self._lock, self._ended, self._thread = threading.Lock(), threading.Event(), threading.Thread(target=self._move)

    def __enter__(self) -> MovingPreview:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def step(self, decoder: ShotDecoder, done: int, steps: int, clean_BTCHW: Tensor) -> None:
        """Preview a shot after one of its steps (`on_step` of the sampler), if previews have not taken long so far."""
        now = time.monotonic()
        if done == 1:
            self._begun, self._spent = now, 0.0
        if done < steps and done >= steps * FIRST and self._spent <= (now - self._begun) * FRACTION:
            from ..media.video import to_uint8

            with _uncompiled():
                self.play(to_uint8(decoder.preview(clean_BTCHW)))
            self._spent += time.monotonic() - now

    def play(self, frames: Frames | tuple[()] = ()) -> None:
        """Show these frames from now on; none: nothing more, until the next preview."""
        with self._lock:
            self._frames, self._next = frames, 1
            if len(frames):
                self._show(frames[0])

    def _move(self) -> None:
        while not self._ended.wait(self._pause):
            with self._lock:
                if len(self._frames) > 1:
                    self._show(self._frames[self._next % len(self._frames)])
                    self._next += 1


def _uncompiled() -> contextlib.AbstractContextManager[None]:
    """Run compiled modules uncompiled: compiling for the size of a preview does not pay."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled yet, and importing it takes seconds
        return contextlib.nullcontext()
    import torch

    return torch.compiler.set_stance("force_eager")
