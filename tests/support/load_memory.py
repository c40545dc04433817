"""A process of its own that loads the engine of a world in several ways and prints the memory that each took, as json.

    python tests/support/load_memory.py WORLD

Counted is anonymous memory (RssAnon), the highest of samples a millisecond apart, less what was there before. Pages of
a mapped file are left out: the system takes them back whenever it needs room, and reads them again.
"""

import ctypes
import gc
import json
import sys
import threading
import time

import accelerate  # noqa: F401  imported now, so that it is no part of what loading takes
import torch

from animegamer_core.model.engine import GameEngine  # noqa: F401
from animegamer_core.weights import open_world


def anonymous():
    """Bytes of anonymous memory in use."""
    with open("/proc/self/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("RssAnon"))
    return int(line.split()[1]) << 10


class Watch:
    """peak: the most bytes that were added while it watched."""

    def __enter__(self):
        gc.collect()
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        self.before = self.highest = anonymous()
        self._going = True
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self):
        while self._going:
            self.highest = max(self.highest, anonymous())
            time.sleep(0.001)

    def __exit__(self, *_):
        self._going = False
        self._thread.join()
        self.highest = max(self.highest, anonymous())

    @property
    def peak(self):
        return self.highest - self.before


def main():
    torch.set_num_threads(1)
    world = open_world(sys.argv[1])
    world.load_engine("meta")  # what a first load imports and keeps
    measured = {}
    ways = {"wider": ("cpu", torch.float32), "stored": ("cpu", torch.bfloat16), "elsewhere": ("meta", torch.bfloat16)}
    ways["other"] = ("cpu", torch.float16)
    for name, (device, dtype) in ways.items():
        with Watch() as watch:
            begun = time.perf_counter()
            engine = world.load_engine(device, dtype)
            seconds = time.perf_counter() - begun
        weights = sum(parameter.nbytes for parameter in engine.parameters())
        largest = max(parameter.nbytes for parameter in engine.parameters())
        measured[name] = {"peak": watch.peak, "weights": weights, "largest": largest, "seconds": seconds}
        del engine
    sys.stdout.write(json.dumps(measured))


if __name__ == "__main__":
    main()
