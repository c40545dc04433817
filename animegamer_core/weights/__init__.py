"""The only reader and writer of weight files: our world folders, and the published files they are converted from.

Importing this package imports no torch. `convert` is in `weights.convert`, which does.
"""

from .save import save_part, save_world
from .storage import CheckpointError
from .world import World, open_world

__all__ = ["CheckpointError", "World", "open_world", "save_part", "save_world"]
