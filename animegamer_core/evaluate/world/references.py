"""What shots are compared with: pictures of the game's main character, and the true shots of a Toybox game."""

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
from ...toybox.drawing.draw import draw_shot
from ...toybox.references import reference_pictures
from ...toybox.world import CHARACTERS, Scene, characters, motion_text

Picture = NDArray[np.uint8]  # (H, W, 3)
MOST = 16  # most pictures per character that are used
SHOWN = 5  # most names in a remark


@dataclass(frozen=True)
class CharacterReferences:
    """Reference pictures of main characters.

    pictures: by name, (H, W, 3) uint8 RGB. facts: where they come from, as plain JSON values. remarks: for a report.
    """

    pictures: Mapping[str, tuple[Picture, ...]]
    facts: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def references_of(games: Sequence[BenchmarkGame], folder: Path | None = None) -> CharacterReferences:
    """Reference pictures of the games' main characters: from a folder, or drawn if all characters are the Toybox's.

    The folder holds NAME.png (or .jpg, .webp, .bmp), or NAME/ with such pictures; case does not matter, nor how accents
    are stored. Only the first MOST pictures of a character are used, by file name. ValueError if the folder is missing.
    """
    mains = tuple(dict.fromkeys(game.character for game in games))
    found: dict[str, tuple[Picture, ...]] = {}
    remarks = []
    if folder is not None:
        for name in mains:
            found[name] = character_pictures(folder, name)
            if (count := len(_pictures_of(folder, name))) > MOST:
                remarks.append(f"{name} has {count} pictures; only the first {MOST} are used")
    elif _is_toybox(games):
        found = {name: tuple(reference_pictures(name)) for name in mains}
    pictures = {name: own for name, own in found.items() if own}
    facts = {"from": "folder" if folder is not None else "drawn" if pictures else "none"}
    facts |= {"pictures": {name: _digest(own) for name, own in pictures.items()}}
    if missing := [name for name in mains if name not in pictures]:
        names = ", ".join(missing[:SHOWN]) + (f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else "")
        where = f"{folder} has none" if folder is not None else "on the command line, give some with --characters DIR"
        remarks.insert(0, f"no picture of {names}, so their games do not count for CLIP-I and DreamSim; {where}")
    return CharacterReferences(pictures, facts, tuple(remarks))


def character_pictures(folder: Path, name: str) -> tuple[Picture, ...]:
    """At most MOST pictures of a character in the user's folder; ValueError if there is no such folder."""
    return tuple(np.array(open_picture(path)) for path in _pictures_of(folder, name)[:MOST])


def _is_toybox(games: Sequence[BenchmarkGame]) -> bool:
    """Whether every character of the games is one of the Toybox's."""
    return all(name in CHARACTERS for game in games for turn in game.turns for name in turn.characters)


def true_shots(game: BenchmarkGame) -> tuple[NDArray[np.uint8], ...] | None:
    """The true shots (F, H, W, 3) of a game's turns; None if the game is not one of the Toybox benchmark."""
    truth = true_game(game.name)
    if truth is None or len(truth.scenes) < len(game.turns) or not all(map(_describes, game.turns, truth.scenes)):
        return None
    return tuple(draw_shot(scene) for scene in truth.scenes[: len(game.turns)])


def _describes(turn: BenchmarkTurn, scene: Scene) -> bool:
    """Whether a line describes a true scene; other benchmarks may use the same game names."""
    expected = (characters(scene), motion_text(scene), f"{scene.time} {scene.place}")
    return (turn.characters, turn.motion, turn.background) == expected


def _pictures_of(folder: Path, name: str) -> list[Path]:
    """A character's picture files in the user's folder, sorted by name."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; give --characters a folder with NAME.png or NAME/ for each name")
    paths: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.is_dir() and _normalised(path.name) == _normalised(name):
            paths += sorted(filter(is_picture, path.iterdir()))
        elif is_picture(path) and _normalised(path.stem) == _normalised(name):
            paths.append(path)
    return paths


def _normalised(name: str) -> str:
    """A name in the form in which names are compared; macOS stores accents as separate characters."""
    return unicodedata.normalize("NFC", name).casefold()


def _digest(pictures: Sequence[Picture]) -> str:
    digest = hashlib.sha256()
    for picture in pictures:
        digest.update(repr(picture.shape).encode() + np.ascontiguousarray(picture).tobytes())
    return f"{len(pictures)} of sha256 {digest.hexdigest()[:16]}"
