"""Takes: one game played several times, and the takes side by side.

A take is the same game with different noise, so it is a branch of the game's story with the same states and other
shots. Nothing is computed twice: after an interruption, the same call continues where it stopped.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ..files import save_picture
from ..runtime.models import SEEDS
from .film import FILMS
from .story import Story

if typing.TYPE_CHECKING:
    from ..media.video import Frames

TAKE_STRIDE = 1009  # between the seeds of two takes, as in the Play tab: a story's turn n is drawn with seed + n - 1
MOST_TAKES = 64
_CELL_HEIGHT = 192  # pixels of a take in the picture, and at least in the film, for its label
_PICTURE_TURNS = 24  # rows of the picture, as of a contact sheet


def take_seeds(count: int, seed: int = 0) -> tuple[int, ...]:
    """The seeds of this many takes, starting with the given one. ValueError for none, or more than MOST_TAKES."""
    if not 1 <= count <= MOST_TAKES:
        raise ValueError(f"takes is {count}; expected 1 to {MOST_TAKES}")
    return tuple((seed + TAKE_STRIDE * number) % SEEDS for number in range(count))


def play_takes(story: Story, turns: int, seeds: Sequence[int], play: Callable[[int], None]) -> list[Path]:
    """Play a game of so many turns with each seed, make the first take's branch the current one, and show all takes.

    play: plays the game in the story with a seed. Returns `films/takes.mp4`, the takes side by side, each with its
    seed, and `films/takes.png`, a row per turn.
    """
    branches, takes = [], []
    for seed in seeds:
        play(seed)
        branches.append(story.branch)
        takes.append([story.shots.path(turn.shot) for turn in story.entries[:turns] if turn.shot is not None])
    story.use(branches[0])
    story.end_branch(len(story.entries))
    return _write_grid(story, seeds, takes)


def _write_grid(story: Story, seeds: Sequence[int], takes: Sequence[Sequence[Path]]) -> list[Path]:
    """Write takes side by side, each with its seed: `films/takes.mp4`, and as a picture `films/takes.png`, which has a
    row per turn. takes: the clips of each.
    """
    import numpy as np
    from PIL import Image

    from ..media.film_writer import write_film
    from ..media.video import read_clip

    first = read_clip(takes[0][0])
    count, height = first.frames.shape[:2]
    larger = -(-_CELL_HEIGHT // height)
    folder, turns = story.folder / FILMS, list(zip(*takes, strict=True))

    def film() -> Iterator[Frames]:
        """The takes in a grid that is about as many wide as high; one shot of each is in memory."""
        columns = math.ceil(math.sqrt(len(takes)))
        for paths in turns:
            for frames in zip(*(read_clip(path).frames for path in paths), strict=True):
                cells = _labelled(frames, seeds, larger)
                cells += [np.zeros_like(cells[0])] * (-len(cells) % columns)
                yield np.concatenate([np.concatenate(row, 1) for row in zip(*[iter(cells)] * columns, strict=True)])

    tags = {**story.file_tags, "title": f"{story.name}: {len(takes)} takes"}
    files = write_film(folder / "takes.mp4", film(), first.fps, count * len(turns), tags)
    last = turns[-_PICTURE_TURNS:]
    middles = ([read_clip(path).frames[count // 2] for path in paths] for paths in last)
    rows = [np.concatenate(_labelled(frames, seeds, _CELL_HEIGHT / height), 1) for frames in middles]
    save_picture(Image.fromarray(np.concatenate(rows)), folder / "takes.png")
    return [*files, folder / "takes.png"]


def _labelled(frames: Sequence[Frames], seeds: Sequence[int], scale: float) -> list[Frames]:
    """Frames of other sizes, each with its seed in a corner."""
    import numpy as np
    from PIL import Image, ImageDraw

    from ..media.text import Pen

    cells = []
    for frame, seed in zip(frames, seeds, strict=True):
        height, width = (int(side * scale) for side in frame.shape[:2])
        picture = Image.fromarray(frame).resize((width, height), Image.Resampling.LANCZOS)
        letter = max(12, height // 16)
        pen = Pen(ImageDraw.Draw(picture))
        pen.text((letter / 2, letter), f"seed {seed}", letter, "#ffffff", outline=max(1, letter // 9))
        cells.append(np.asarray(picture))
    return cells
