"""A world with stage files on top: what a stage trained is played as it is, without making a world folder of it.

Imports no torch, since a world's name is asked for long before its weights.
"""

from __future__ import annotations

import argparse
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..checkpoint import World, open_world
from ..checkpoint.storage import note_of
from .stages import check_there

PLAYED = {"engine", "decoder"}  # parts that turns are made with
StageFiles = tuple[tuple[str, float], ...]  # (path, strength), in the order in which they are applied


@dataclass(frozen=True)
class StagedWorld(World):
    """A world whose models are given the changes of stage files when they are loaded; on disk nothing changes."""

    stage_files: StageFiles = ()

    @property
    def fingerprint(self) -> str:
        """As the world's own, and also of the files, if what they train is played, and of their strengths; ValueError
        where one is gone.
        """
        files = [f"{_digest(path)} {strength!r}" for path, strength in self.stage_files if trained_parts(path) & PLAYED]
        if not files:
            return super().fingerprint
        return hashlib.sha256("\n".join([super().fingerprint, *files]).encode()).hexdigest()

    def _changed(self, kind: str, model: Any) -> Any:
        """The model with its share of each file; ValueError for one that cannot be read or is of another spec."""
        from .adapters import apply_stage_file

        for path, strength in self.stage_files:
            apply_stage_file(Path(path), {kind: model}, strength=strength, whole=False)
        return model


def with_stage_files(world: World, files: StageFiles) -> World:
    """The world with these files on top, behind those that it has. Those of strength 0 are left out.

    ValueError for a file that is not there or is no world's, and for a strength that is no number.
    """
    if not all(math.isfinite(strength) for _, strength in files):
        raise ValueError("the strength of a stage file is no number; 1 is as trained, 0 leaves it out")
    used = tuple((str(path), strength) for path, strength in files if strength)
    for path, _ in used:
        trained_parts(path)
    own = {field.name: getattr(world, field.name) for field in fields(World)}
    earlier = world.stage_files if isinstance(world, StagedWorld) else ()
    return StagedWorld(**own, stage_files=(*earlier, *used)) if used else world


def trained_parts(path: str) -> frozenset[str]:
    """Of `encoder`, `decoder`, `engine`, what a stage file changes; ValueError as for `with_stage_files`."""
    return _parts_of(path, *_age(path))


def add_stage_files(parser: argparse.ArgumentParser) -> None:
    """Declare --stage-file, which may be given several times."""
    parser.add_argument(
        "--stage-file",
        action="append",
        default=[],
        metavar="FILE[=X]",
        help="what a stage of training left, on top of the world, by a strength of X (default 1); may be repeated",
    )


def open_staged(name: str | Path, given: Sequence[str], playing: bool = False) -> World:
    """The named world with the files of --stage-file on top; ValueError for one that is not there, or a strength that
    is no number. playing: turns are made and nothing else, so a file that trains the encoder alone is refused too.
    """
    files = tuple(_read(text) for text in given)
    for path, _ in files if playing else ():
        if not trained_parts(path) & PLAYED:
            raise ValueError(
                f"stage file {path} trains the encoder alone, and turns are made by engine and decoder; leave it out, "
                "or give the file of a stage that trains one of these"
            )
    return with_stage_files(open_world(name), files)


def _read(text: str) -> tuple[str, float]:
    path, sign, strength = text.rpartition("=")
    if not sign or Path(text).is_file():
        return text, 1.0
    try:
        return path, float(strength)
    except ValueError as error:
        raise ValueError(
            f"--stage-file {text}: expected FILE or FILE=STRENGTH, such as joint.safetensors=0.5"
        ) from error


def _digest(path: str) -> str:
    return _digest_of(path, *_age(path))


def _age(path: str) -> tuple[int, int]:
    """What changes with a file, for what is remembered of it."""
    check_there(path)
    stat = Path(path).stat()
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=64)
def _digest_of(path: str, _changed: int, _size: int) -> str:
    return note_of(Path(path)).sha256


@lru_cache(maxsize=64)
def _parts_of(path: str, _changed: int, _size: int) -> frozenset[str]:
    from .adapters import trained_by

    return trained_by(Path(path))
