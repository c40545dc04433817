"""What shots are compared with: pictures of a game's main character, and the true shots where a game has them."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...data.benchmark import BenchmarkGame, BenchmarkTurn
from ...data.captions.pictures import is_picture, open_picture
from ...toybox.benchmark import true_game
from ...toybox.draw import draw_shot
from ...toybox.games import Game
from ...toybox.references import reference_pictures
from ...toybox.world import CHARACTERS, Scene, characters, motion_text

Picture = NDArray[np.uint8]  # (H, W, 3)
MOST = 16  # pictures of a character that count


@dataclass(frozen=True)
class Cast:
    """pictures: (H, W, 3) uint8 RGB of each main character by name. facts: where they come from, as plain values."""

    pictures: Mapping[str, tuple[Picture, ...]]
    facts: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def cast_of(games: Sequence[BenchmarkGame], folder: Path | None = None) -> Cast:
    """Reference pictures of the games' main characters, from a folder or, of a Toybox benchmark, drawn.

    The folder holds NAME.png (or .jpg, .webp, .bmp) or NAME/ with such pictures, whatever the case of letters and the
    way that accents are stored; names are only compared with what lies there. Of many the first MOST count, in the
    order of their names. A benchmark is the Toybox's where all that it names are its characters.
    """
    mains = tuple(dict.fromkeys(game.character for game in games))
    paths = {} if folder is None else {name: _pictures_of(folder, name) for name in mains}
    if folder is not None:
        found = {name: tuple(np.array(open_picture(path)) for path in paths[name][:MOST]) for name in mains}
    elif is_toybox(games):
        found = {name: tuple(reference_pictures(name)) for name in mains}
    else:
        found = {}
    pictures = {name: shown for name, shown in found.items() if shown}
    missing = [name for name in mains if name not in pictures]
    facts = {"from": "folder" if folder is not None else "drawn" if pictures else "none"}
    facts |= {"pictures": {name: _digest(shown) for name, shown in pictures.items()}}
    remarks = [_missing(missing, folder)] if missing else []
    remarks += [
        f"{name} has {len(paths[name])} pictures; the first {MOST} count" for name in paths if len(paths[name]) > MOST
    ]
    return Cast(pictures, facts, tuple(remarks))


def is_toybox(games: Sequence[BenchmarkGame]) -> bool:
    """Whether every character of the games is one of the Toybox's."""
    return all(name in CHARACTERS for game in games for turn in game.turns for name in turn.characters)


def true_shots(game: BenchmarkGame) -> tuple[NDArray[np.uint8], ...] | None:
    """The (F, H, W, 3) true shots of a Toybox game's turns; None where the game, by name and lines, is not one."""
    truth = true_game(game.name)
    if truth is None or not _fits(truth, game):
        return None
    return tuple(draw_shot(scene) for scene in truth.scenes[: len(game.turns)])


def _fits(truth: Game, game: BenchmarkGame) -> bool:
    """Whether the lines tell the true game's scenes; a file of other games may use the same names."""
    return len(truth.scenes) >= len(game.turns) and all(map(_tells, game.turns, truth.scenes))


def _tells(turn: BenchmarkTurn, scene: Scene) -> bool:
    told = (turn.characters, turn.motion, turn.background)
    return told == (characters(scene), motion_text(scene), f"{scene.time} {scene.place}")


def _pictures_of(folder: Path, name: str) -> list[Path]:
    """The pictures of a character in the user's folder, in the order of their names; none where there are none."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; give --characters a folder with NAME.png or NAME/ for each name")
    paths: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.is_dir() and _compared(path.name) == _compared(name):
            paths += sorted(filter(is_picture, path.iterdir()))
        elif is_picture(path) and _compared(path.stem) == _compared(name):
            paths.append(path)
    return paths


def _compared(name: str) -> str:
    """A name as it is compared: macOS hands out file names whose accents are letters of their own."""
    return unicodedata.normalize("NFC", name).casefold()


def _digest(pictures: Sequence[Picture]) -> str:
    whole = hashlib.sha256()
    for picture in pictures:
        whole.update(repr(picture.shape).encode() + np.ascontiguousarray(picture).tobytes())
    return f"{len(pictures)} of sha256 {whole.hexdigest()[:16]}"


def _missing(names: Sequence[str], folder: Path | None) -> str:
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    where = f"{folder} has none" if folder is not None else "--characters DIR gives some"
    return f"no picture of {shown} to compare with, so games of theirs count for no CLIP-I and DreamSim; {where}"
