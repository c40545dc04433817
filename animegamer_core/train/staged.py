"""A world with trained files on top: what a stage trained is played as it is, without making a world folder of it.

Such a file also states how it has to be played: how its engine is read, and what its decoder was told of motion.
Imports no torch, since a world's name is asked for long before its weights.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..checkpoint import World, open_world
from ..checkpoint.manifest import read_motion_table
from ..checkpoint.storage import note_of
from ..spec import Reading
from ..state import MotionTable
from .stages import STAGES, check_there

PLAYED = {"engine", "decoder"}  # parts that turns are made with
StageFiles = tuple[tuple[str, float], ...]  # (path, strength), in the order in which they are applied


@dataclass(frozen=True)
class TrainedFile:
    """What a stage file states. parts: of `encoder`, `decoder`, `engine`, what it changes.

    reading: how turns were read while it was trained; None for stages that read none. motion_table: what the decoder
    was told of motion; None for stages that tell it nothing. provenance: how that motion was measured. Files of
    earlier versions state none of these.
    """

    path: str
    stage: str
    parts: frozenset[str]
    reading: Reading | None = None
    motion_table: MotionTable | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)

    @property
    def facts(self) -> Any:
        """What its stage is; None for a stage that this program does not know."""
        return STAGES.get(self.stage)


@dataclass(frozen=True)
class StagedWorld(World):
    """A world whose models are given the changes of stage files when they are loaded; on disk nothing changes.

    plain: the world without them.
    """

    stage_files: StageFiles = ()
    plain: World | None = None

    @property
    def base(self) -> World:
        """The world without these files."""
        assert self.plain is not None
        return self.plain

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


def with_stage_files(world: World, files: StageFiles, profile: str | None = None) -> World:
    """The world with these files on top, behind those that it has. Those of strength 0 are left out.

    It is read and told of motion as the files state. profile: reads it by another one, with a warning. ValueError for
    a file that is not there or is no world's, for a strength that is no number, and for files that contradict one
    another or the world.
    """
    if not all(math.isfinite(strength) for _, strength in files):
        raise ValueError("the strength of a stage file is no number; 1 is as trained, 0 leaves it out")
    plain, earlier = (world.plain, world.stage_files) if isinstance(world, StagedWorld) else (world, ())
    used = (*earlier, *((str(path), strength) for path, strength in files if strength))
    if used:
        world = _staged(plain, used, checked=profile is None)
    return world.with_profile(profile) if profile else world


def _staged(plain: World, files: StageFiles, checked: bool) -> StagedWorld:
    trained = [trained_file(path) for path, _ in files]
    world = plain
    for file in trained:
        world = as_stated(world, file)
    reading = reading_of(plain, trained, checked)
    own = {field.name: getattr(world, field.name) for field in fields(World)}
    own["warnings"] += tuple(_unstated(trained, reading, world.motion_table))
    return StagedWorld(**own, stage_files=files, plain=plain)


def as_stated(world: World, file: TrainedFile) -> World:
    """The world as it is played with what a stage trained: its reading if that was the engine, its motion table."""
    if file.reading is not None and "engine" in file.parts:
        world = replace(world, profile=file.reading.profile, trained_window=file.reading.window)
    if file.motion_table is not None:
        provenance = {**world.provenance, **file.provenance}
        world = replace(world, motion_table=file.motion_table, provenance=provenance)
    return world


def reading_of(world: World, files: Sequence[TrainedFile], checked: bool = True) -> Reading:
    """How turns are read with these files on a world: as the last file that trained the engine states, else as the
    world does. checked: ValueError where a file was trained with another reading than the one that comes out.
    """
    trainers = [file for file in files if "engine" in file.parts and file.reading is not None]
    reading = trainers[-1].reading if trainers else world.reading
    owner = f"stage file {trainers[-1].path}" if trainers else f"world {world.spec.name!r}"
    for first, second in pairwise(trainers) if checked else ():
        if not first.reading.agrees(second.reading):
            raise ValueError(
                f"stage file {first.path} trained the engine to be read by {_named(first.reading)}, and {second.path} "
                f"by {_named(second.reading)}; leave one of them out, or choose a profile (--profile; in ComfyUI the "
                "widget) to play both by it"
            )
    for file in files if checked else ():
        if file.reading is not None and "engine" not in file.parts and not file.reading.agrees(reading):
            raise ValueError(
                f"stage file {file.path} was trained on predictions read by {_named(file.reading)}, and {owner} is "
                f"read by {_named(reading)}; leave the file out, add the file of stage predict that it was trained "
                "with, or choose a profile (--profile; in ComfyUI the widget) to play both by it"
            )
    return reading


def _named(reading: Reading) -> str:
    return f"profile {reading.profile.name}"


def _unstated(files: Sequence[TrainedFile], reading: Reading, table: MotionTable) -> Iterator[str]:
    """A sentence for each thing that a file of an earlier version does not state and that was assumed."""
    for file in files:
        if file.facts is not None and file.facts.games and file.reading is None:
            yield (
                f"{file.path} does not state how it is read, as files of earlier versions do not; it is read by "
                f"{_named(reading)}, so train stage {file.stage} again if that is wrong"
            )
        if file.facts is not None and file.facts.conditions_on_motion and file.motion_table is None:
            yield (
                f"{file.path} does not state its motion table, as files of earlier versions and of datasets without "
                f"motion levels do not; shots are drawn with the values of table {table.name!r}"
            )


def trained_parts(path: str) -> frozenset[str]:
    """Of `encoder`, `decoder`, `engine`, what a stage file changes; ValueError as for `with_stage_files`."""
    return trained_file(path).parts


def trained_file(path: str | Path) -> TrainedFile:
    """What a stage file states; ValueError for one that is not there, is no world's, or states what cannot be."""
    return _trained(str(path), *_age(str(path)))


def add_stage_files(parser: argparse.ArgumentParser) -> None:
    """Declare --stage-file, which may be given several times."""
    parser.add_argument(
        "--stage-file",
        action="append",
        default=[],
        metavar="FILE[=X]",
        help="what a stage of training left, on top of the world, by a strength of X (default 1); may be repeated",
    )


def open_staged(name: str | Path, given: Sequence[str], playing: bool = False, profile: str | None = None) -> World:
    """The named world with the files of --stage-file on top, read by another profile if one is given; ValueError for a
    file that is not there, a strength that is no number, and files that contradict one another. playing: turns are made
    and nothing else, so a file that trains the encoder alone is refused too.
    """
    files = tuple(_read(text) for text in given)
    for path, _ in files if playing else ():
        if not trained_parts(path) & PLAYED:
            raise ValueError(
                f"stage file {path} trains the encoder alone, and turns are made by engine and decoder; leave it out, "
                "or give the file of a stage that trains one of these"
            )
    return with_stage_files(open_world(name), files, profile)


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
def _trained(path: str, _changed: int, _size: int) -> TrainedFile:
    from .adapters import stated_in, trained_by

    parts, notes = trained_by(Path(path)), stated_in(Path(path))
    file = TrainedFile(path, notes.get("stage", ""), parts)
    try:
        if "reading" in notes:
            file = replace(file, reading=Reading.from_dict(_object(notes["reading"])))
        if "motion" in notes:
            motion = _object(notes["motion"])
            measured = {name: str(value) for name, value in _object(motion.get("provenance")).items()}
            file = replace(file, motion_table=read_motion_table(_object(motion.get("table"))), provenance=measured)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: what it states of its training cannot be read ({error}); train it again") from error
    return file


def _object(value: Any) -> dict[str, Any]:
    """An object, or the json text of one."""
    found = json.loads(value) if isinstance(value, str) else value
    if not isinstance(found, dict):
        raise ValueError(f"{str(value)[:40]!r} is no object")
    return found
