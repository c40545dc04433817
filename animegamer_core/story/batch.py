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
    from PIL import Image

    from ..media.video import Frames

TAKE_STRIDE = 1009  # between the seeds of two takes, as in the Play tab: a story's turn n is drawn with seed + n - 1
MOST_TAKES = 64
GAME_SUFFIX = ".txt"
_CELL_HEIGHT = 192  # pixels that a take needs for its label
_LARGEST_FILE = 1 << 20  # bytes of a file of games
_PICTURE_TURNS = 24  # rows of the grid's picture, as of a contact sheet
_PICTURE_PIXELS = 80_000_000  # of the grid's picture; Pillow refuses to open twice as many
_MIDDLE = 8  # frame of a shot that the picture shows


@dataclass(frozen=True)
class Game:
    """A script: its name, which is part of its story's name, and its instructions."""

    name: str
    instructions: tuple[str, ...]


@dataclass(frozen=True)
class Take:
    """A played take: its seed, its branch, and its shots' files by turn."""

    seed: int
    branch: str
    shots: tuple[Path, ...]


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
    files = [file for path in paths for file in ([path] if not path.is_dir() else _files_in(path))]
    if not files:
        raise ValueError(f"{', '.join(map(str, paths))}: no {GAME_SUFFIX} file; add one with instructions")
    games = tuple(game for file in files for game in read_games(_text_of(file), file.stem, str(file)))
    counts = Counter(game.name.casefold() for game in games)  # some disks take names in other case for the same folder
    twice = next((game.name for game in games if counts[game.name.casefold()] > 1), None)
    if twice is not None:
        raise ValueError(f"two games are called {twice!r}; rename one of the files")
    return games


def take_seeds(count: int, seed: int = 0) -> tuple[int, ...]:
    """The seeds of this many takes, starting with the given one. ValueError for none, or more than MOST_TAKES."""
    if not 1 <= count <= MOST_TAKES:
        raise ValueError(f"takes is {count}; expected 1 to {MOST_TAKES}")
    return tuple((seed + TAKE_STRIDE * number) % SEEDS for number in range(count))


def play_takes(story: Story, game: Game, seeds: Sequence[int], play: Callable[[int], None]) -> list[Path]:
    """Play a take of the game with each seed, make the first one's branch the current one, and write their grid.

    play: plays the game's instructions in the story with a seed. Returns the files of the grid.
    """
    takes = []
    for seed in seeds:
        play(seed)
        takes.append(_take_of(story, seed, len(game.instructions)))
    story.use(takes[0].branch)
    story.end_branch(len(story.entries))
    return write_grid(story, takes)


def _take_of(story: Story, seed: int, turns: int) -> Take:
    """The take that was just played: the first turns of the story's branch."""
    shots = tuple(story.shots.path(entry.shot) for entry in story.entries[:turns] if entry.shot is not None)
    return Take(seed, story.branch, shots)


def write_grid(story: Story, takes: Sequence[Take]) -> list[Path]:
    """Write takes side by side, each with its seed: `films/takes.mp4`, and as a picture `films/takes.png`, a row per
    turn.

    ValueError: takes of different lengths or sizes.
    """
    from ..media.film_writer import write_film
    from ..media.video import read_clip

    if len({len(take.shots) for take in takes}) != 1 or not takes[0].shots:
        raise ValueError(
            f"story {story.name!r}: its takes have {[len(take.shots) for take in takes]} shots; play all of them to "
            "the end"
        )
    first = read_clip(takes[0].shots[0])
    scale = -(-_CELL_HEIGHT // first.frames.shape[1])
    folder, count = story.folder / FILMS, len(first.frames) * len(takes[0].shots)
    title = f"{story.name}: {len(takes)} takes"
    files = write_film(folder / "takes.mp4", _grid_frames(takes, scale), first.fps, count, title)
    save_picture(_picture(takes, scale), folder / "takes.png")
    return [*files, folder / "takes.png"]


def _grid_frames(takes: Sequence[Take], scale: int) -> Iterator[Frames]:
    """Yield the frames of all takes in a grid that is about as many takes wide as high, a shot at a time in memory."""
    import numpy as np

    from ..media.video import read_clip

    columns = math.ceil(math.sqrt(len(takes)))
    for paths in zip(*(take.shots for take in takes), strict=True):
        clips = [read_clip(path).frames for path in paths]
        if len({clip.shape for clip in clips}) > 1:
            raise ValueError(f"{paths[0]}: takes have different sizes; a grid needs one size")
        for frames in zip(*clips, strict=True):
            cells = [_labelled(frame, take.seed, scale) for frame, take in zip(frames, takes, strict=True)]
            cells += [np.zeros_like(cells[0])] * (-len(cells) % columns)
            rows = [np.concatenate(cells[at : at + columns], 1) for at in range(0, len(cells), columns)]
            yield np.concatenate(rows)


def _picture(takes: Sequence[Take], scale: float) -> Image.Image:
    """A row per turn, a column per take: the middle frames, scaled down if there are very many."""
    import numpy as np
    from PIL import Image

    from ..media.video import read_clip

    rows = []
    turns = list(zip(*(take.shots for take in takes), strict=True))[-_PICTURE_TURNS:]
    for paths in turns:
        frames = (read_clip(path).frames for path in paths)
        middle = [clip[min(_MIDDLE, len(clip) - 1)] for clip in frames]
        height, width = middle[0].shape[:2]
        scale = min(scale, math.sqrt(_PICTURE_PIXELS / (len(turns) * len(takes) * height * width)))
        cells = [_labelled(frame, take.seed, scale) for frame, take in zip(middle, takes, strict=True)]
        rows.append(np.concatenate(cells, 1))
    return Image.fromarray(np.concatenate(rows))


def _labelled(frame: Frames, seed: int, scale: float) -> Frames:
    """A frame of another size with its seed in a corner."""
    import numpy as np
    from PIL import Image, ImageDraw

    from ..media.text import Pen

    height, width = (int(side * scale) for side in frame.shape[:2])
    picture = Image.fromarray(frame).resize((width, height), Image.Resampling.LANCZOS)
    letter = max(12, height // 16)
    pen = Pen(ImageDraw.Draw(picture))
    pen.text((letter / 2, letter), f"seed {seed}", letter, "#ffffff", outline=max(1, letter // 9))
    return np.asarray(picture)


def _files_in(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob(f"*{GAME_SUFFIX}")) if path.is_file()]


def _text_of(path: Path) -> str:
    if path.stat().st_size > _LARGEST_FILE:
        raise ValueError(f"{path}: larger than {_LARGEST_FILE} bytes; split it into smaller files of games")
    return game_text(path)


def game_text(path: Path) -> str:
    """The text of a UTF-8 file of instructions; ValueError if it is something else."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text; save the instructions as UTF-8, one per line") from error
