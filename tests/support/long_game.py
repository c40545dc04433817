"""Long games, and the memory that they use."""

import ctypes
import gc
import sys

import psutil

from animegamer_core.toybox.games import sample_game
from animegamer_core.toybox.sentences import instruction

MB = 1 << 20


def long_game(turns):
    """Instructions of a Toybox game of any length."""
    scenes = (scene for seed in range(turns) for scene in sample_game(seed).scenes)
    return [instruction(scene, 1 + number % 5) for number, scene in zip(range(turns), scenes, strict=False)]


def resident():
    """Bytes in use, without those that the allocator keeps for later."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return psutil.Process().memory_info().rss
