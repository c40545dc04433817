"""A process of its own that loads the engine of a world in several ways and prints the memory that each took, as json.

    python tests/support/load_memory.py WORLD

Counted is anonymous memory (RssAnon), the highest of samples a millisecond apart, less what was there before. Pages of
a mapped file are left out: the system takes them back whenever it needs room, and reads them again.
"""

import contextlib
import ctypes
import gc
import json
import sys
import threading

import accelerate  # noqa: F401  imported now, so that it is no part of what loading takes
import torch

from animegamer_core.model.engine import GameEngine  # noqa: F401
from animegamer_core.weights import open_world

WAYS = {"wider": ("cpu", torch.float32), "stored": ("cpu", torch.bfloat16), "elsewhere": ("meta", torch.bfloat16)}


def anonymous():
    """Bytes of anonymous memory in use."""
    with open("/proc/self/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("RssAnon"))
    return int(line.split()[1]) << 10


@contextlib.contextmanager
def watched():
    """Yields a list, in which at the end are the bytes in use before and at every moment of the block."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    seen, over = [anonymous()], threading.Event()

    def look():
        while not over.wait(0.001):
            seen.append(anonymous())

    thread = threading.Thread(target=look)
    thread.start()
    yield seen
    over.set()
    thread.join()
    seen.append(anonymous())


def main():
    torch.set_num_threads(1)
    world = open_world(sys.argv[1])
    world.load_engine("meta")  # what a first load imports and keeps
    measured = {}
    for name, way in WAYS.items():
        with watched() as seen:
            engine = world.load_engine(*way)
        sizes = [parameter.nbytes for parameter in engine.parameters()]
        measured[name] = {"peak": max(seen) - seen[0], "weights": sum(sizes), "largest": max(sizes)}
        del engine
    sys.stdout.write(json.dumps(measured))


if __name__ == "__main__":
    main()
