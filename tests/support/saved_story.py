"""A story of two turns in the Toybox, and of one turn drawn with another seed; played once a process."""

import contextlib
import io
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

from animegamer_core.__main__ import main

GAME = (
    "Character: Miko; Motion: gently wave hello; Background: day beach.",
    "Character: Miko; Motion: quickly run; Background: day beach.",
)


def copy_story(folder):
    """Put the story at `folder`, whose name becomes its name."""
    return Path(shutil.copytree(_played(), folder, dirs_exist_ok=True))


@lru_cache(1)
def _played():
    folder = Path(tempfile.mkdtemp(prefix="saved-story-"))
    for number, seed in ((1, 7), (2, 8)):
        (folder / "game.txt").write_text("\n".join(GAME[:number]), encoding="utf-8")
        with contextlib.redirect_stdout(io.StringIO()):
            words = ("play", folder / "game.txt", "--out", folder, "--seed", seed, "--steps", 1, "--device", "cpu")
            assert main(list(map(str, words))) == 0
    for path in folder.glob("game/story*.mp4"), folder.glob("game/*.png"):
        for file in path:
            file.unlink()
    return folder / "game"
