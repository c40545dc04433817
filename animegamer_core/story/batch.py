"""Many games at once: scripts from files, each played in several takes, and the takes side by side in a grid.

A take is the same game with different noise, so it is a branch of the game's story with the same states and other
shots. Nothing is computed twice: after an interruption, the same batch continues where it stopped.
"""

from __future__ import annotations

import math
import re
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..files import save_picture
from ..game.state import read_instructions
from ..runtime.models import SEEDS
from .film import FILMS
from .story import Story

if typing.TYPE_CHECKING:
    from ..media.video import Frames

TAKE_STRIDE = 1009  # between the seeds of two takes, as in the Play tab: a story's turn n is drawn with seed + n - 1
MOST_TAKES = 64
GAME_SUFFIX = ".txt"
_CELL_HEIGHT = 192  # pixels that a take needs for its label
_PICTURE_TURNS = 24  # rows of the grid's picture, as of a contact sheet
_PICTURE_PIXELS = 80_000_000  # of the grid's picture; Pillow refuses to open twice as many


@dataclass(frozen=True)
class Game:
    """A script: its name, which is part of its story's name, and its instructions."""

    name: str
    instructions: tuple[str, ...]


def read_games(text: str, name: str, place: str = "") -> tuple[Game, ...]:
    """The games of a text: one instruction per line, blank lines between games, `#` comments.

    A single game gets the name; several are called `name 1`, `name 2` and so on. place: the text's origin, for the
    ValueError if it has no game.
    """
    blocks = (read_instructions(block) for block in re.split(r"\n[ \t\r]*\n", text))
    games = [instructions for instructions in blocks if instructions]
    if not games:
        raise ValueError(f"{place or name}: no instructions; write one per line, and a blank line between games")
    if len(games) == 1:
        return (Game(name, games[0]),)
    return tuple(Game(f"{name} {number}", game) for number, game in enumerate(games, start=1))


def read_game_files(paths: Sequence[Path]) -> tuple[Game, ...]:
    """The games of text files, and of the text files in folders, each named after its file.

    ValueError: there is none, or two have one name.
    """
    files = [file for path in paths for file in (_files_in(path) if path.is_dir() else [path])]
    if not files:
        raise ValueError(f"{', '.join(map(str, paths))}: no {GAME_SUFFIX} file; add one with instructions")
    games = tuple(game for file in files for game in read_games(game_text(file), file.stem, str(file)))
    counts = Counter(game.name.casefold() for game in games)  # some disks take names in other case for the same folder
    twice = next((game.name for game in games if counts[game.name.casefold()] > 1), None)
    if twice is not None:
        raise ValueError(f"two games are called {twice!r}; rename one of the files")
    return games


def _files_in(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob(f"*{GAME_SUFFIX}")) if path.is_file()]


def game_text(path: Path) -> str:
    """The text of a UTF-8 file of instructions; ValueError if it is something else."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text; save the instructions as UTF-8, one per line") from error


def take_seeds(count: int, seed: int = 0) -> tuple[int, ...]:
    """The seeds of this many takes, starting with the given one. ValueError for none, or more than MOST_TAKES."""
    if not 1 <= count <= MOST_TAKES:
        raise ValueError(f"takes is {count}; expected 1 to {MOST_TAKES}")
    return tuple((seed + TAKE_STRIDE * number) % SEEDS for number in range(count))


def play_takes(story: Story, game: Game, seeds: Sequence[int], play: Callable[[int], None]) -> list[Path]:
    """Play a take of the game with each seed, make the first one's branch the current one, and write their grid.

    play: plays the game's instructions in the story with a seed. Returns the files of the grid.
    """
    branches, takes = [], []
    for seed in seeds:
        play(seed)
        branches.append(story.branch)
        turns = story.entries[: len(game.instructions)]
        takes.append([story.shots.path(turn.shot) for turn in turns if turn.shot is not None])
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
    count, height, width = first.frames.shape[:3]
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

    files = write_film(folder / "takes.mp4", film(), first.fps, count * len(turns), f"{story.name}: {len(takes)} takes")
    last = turns[-_PICTURE_TURNS:]
    scale = min(larger, math.sqrt(_PICTURE_PIXELS / (len(last) * len(takes) * height * width)))
    middles = ([read_clip(path).frames[count // 2] for path in paths] for paths in last)
    rows = [np.concatenate(_labelled(frames, seeds, scale), 1) for frames in middles]
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
