"""A dataset folder: clips of films, and what happens in each. People can read and correct it.

    clips/          the shots, mp4
    turns.jsonl     one line a clip, in the order of the film
    games.jsonl     {game, clips}: sequences of clips; `"held_out": true` keeps a game from training
    dataset.json    provenance, settings (motion: backend, threshold, the levels' edges and values)

F frames, H height, W width, C channels.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..files import write_text
from ..game.life import STATS, Stat
from ..game.state import MotionTable
from ..json_files import JsonError, read_json, read_rows, to_type
from ..media.video import read_clip
from ..messages import quoted
from ..weights.storage import note_of
from .motion import level_edges, level_of, median_by_level
from .records import ClipRecord, DatasetError, GameRecord, Problem, first_problems, jsonl_text

FORMAT = 1
TURNS, GAMES, INFO, CLIPS = "turns.jsonl", "games.jsonl", "dataset.json", "clips"


class MotionFacts(msgspec.Struct, frozen=True):
    """How motion was measured (settings.motion), with the levels' edges and values once they are set."""

    backend: str | None = None
    threshold: float | None = None
    slow_fraction: float = 0.0
    edges: tuple[float, float, float, float] | None = None
    values: tuple[float, float, float, float, float] | None = None


_Positive = Annotated[int, msgspec.Meta(gt=0)]


class _Settings(msgspec.Struct, frozen=True):
    width: _Positive | None = None
    height: _Positive | None = None
    frames: _Positive | None = None
    fps: Annotated[float, msgspec.Meta(gt=0)] | None = None
    clips: _Settings | None = None  # of a dataset of films: the four above
    motion: MotionFacts = MotionFacts()
    stats: tuple[Stat, ...] = STATS


class _Provenance(msgspec.Struct, frozen=True):
    films: dict[str, dict[str, Any]] = {}


class _Info(msgspec.Struct):
    """What is read of dataset.json."""

    format: Annotated[int, msgspec.Meta(ge=FORMAT, le=FORMAT)] = FORMAT
    provenance: _Provenance = _Provenance()
    settings: _Settings = _Settings()


@dataclass(frozen=True)
class DatasetFolder:
    """A dataset that was read and validated."""

    path: Path
    turns: tuple[ClipRecord, ...]
    games: tuple[GameRecord, ...]
    info: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, path: str | Path, clips: bool = True) -> DatasetFolder:
        """Read a folder; DatasetError lists what is wrong, with file and line.

        clips: whether the clips' files must exist; training from a complete cache does not need them.
        """
        folder, problems = read_dataset(path, clips)
        if problems:
            raise DatasetError("\n".join([f"{path} cannot be used:", *first_problems(problems)]))
        return folder

    @property
    def training_clips(self) -> tuple[int, ...]:
        """The clips of no held-out game."""
        held_out = set(self.held_out_clips)
        return tuple(index for index in range(len(self.turns)) if index not in held_out)

    @property
    def held_out_clips(self) -> tuple[int, ...]:
        """The clips of held-out games."""
        return tuple(sorted({index for game in self.games if game.held_out for index in game.clips}))

    @cached_property
    def _info(self) -> _Info:
        return to_type(self.info, _Info, INFO)

    @property
    def motion(self) -> MotionFacts:
        """How motion was measured."""
        return self._info.settings.motion

    @property
    def stats(self) -> tuple[Stat, ...]:
        """The stats that its clips state the changes of; those of the published game unless it names its own."""
        return self._info.settings.stats

    @property
    def clip_shape(self) -> dict[str, Any]:
        """The size (width, height), frames and fps of every clip, as far as the settings state them."""
        shape = self._info.settings.clips or self._info.settings
        size = (shape.width, shape.height) if shape.width and shape.height else None
        stated = {"size": size, "frames": shape.frames, "fps": shape.fps}
        return {name: value for name, value in stated.items() if value is not None}

    @property
    def film_bytes(self) -> dict[str, int]:
        """The sizes of the film files that clips were cut from, by film, as far as they are known."""
        films = self._info.provenance.films
        return {name: film["bytes"] for name, film in films.items() if "bytes" in film}

    @property
    def motion_table(self) -> MotionTable:
        """The dataset's own measured motion table; DatasetError if the levels are not set."""
        if self.motion.edges is None or self.motion.values is None:
            missing = "has no settings.motion.edges (four rising numbers) and values (five)"
            raise DatasetError(f"{self.path / INFO} {missing}; finish the dataset first")
        return MotionTable(self.path.name, self.motion.values, self.motion.edges)

    @property
    def motion_provenance(self) -> dict[str, str]:
        """How motion was measured, for a world's provenance, so that evaluations measure it the same way."""
        motion = self.motion
        stated = {"backend": motion.backend, "threshold": motion.threshold}
        measured = {name: value for name, value in stated.items() if value is not None}
        if measured:  # also a fraction of 0, for a LoRA file on top of a world that has another
            measured["slow_fraction"] = motion.slow_fraction
        return {f"motion {name}": str(value) for name, value in measured.items()}

    def frames(self, index: int) -> NDArray[np.uint8]:
        """(F, H, W, C) uint8 of one clip."""
        return read_clip(self.path / self.turns[index].clip).frames

    def first_frame(self, index: int) -> NDArray[np.uint8]:
        """(H, W, C) uint8 of one clip."""
        return read_clip(self.path / self.turns[index].clip, most=1).frames[0]

    def digest(self, captions: bool) -> str:
        """A checksum of what caches depend on: the clips, their films, and their captions if asked.

        It reads no clip's file, since caches are used where clips are missing.
        """
        parts: list[Any] = [(turn.film, turn.start, turn.end, turn.clip) for turn in self.turns]
        parts += [turn.to_json() for turn in self.turns] if captions else []
        parts += sorted(self.film_bytes.items())  # another edition of a film has the same names and times
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    @cached_property
    def content(self) -> str:
        """A checksum of what the clips' files hold; '' where one is missing."""
        paths = [self.path / turn.clip for turn in self.turns]
        if not all(path.is_file() for path in paths):
            return ""
        return hashlib.sha256("".join(note_of(path).sha256 for path in paths).encode()).hexdigest()[:16]


def read_dataset(path: str | Path, clips: bool = True) -> tuple[DatasetFolder, list[Problem]]:
    """What can be read of a folder, and its problems. clips: check that their files exist."""
    folder = Path(path)
    if not (folder / TURNS).is_file():
        return DatasetFolder(folder, (), ()), [Problem(TURNS, 0, f"is missing in {folder}; is this a dataset folder?")]
    problems: list[Problem] = []
    try:
        info = read_info(folder)
    except JsonError as error:
        info = {}
        problems.append(Problem(INFO, 0, str(error).removeprefix(f"{folder / INFO}: ")))
    read = DatasetFolder(folder, (), (), info)
    turns = _read_turns(read, problems, clips)
    games = _read_games(folder, {turn.clip: index for index, turn in enumerate(turns)}, problems)
    return dataclasses.replace(read, turns=tuple(turns), games=tuple(games)), problems


def _read_turns(folder: DatasetFolder, problems: list[Problem], clips: bool) -> list[ClipRecord]:
    turns: dict[str, ClipRecord] = {}
    for number, turn, problem in read_rows(folder.path / TURNS, ClipRecord):
        if turn is not None:
            try:
                turn.check(folder.stats)
                if turn.clip in turns:
                    problem = f"clip {turn.clip} is also in an earlier line; delete one"
                elif clips and not (folder.path / turn.clip).is_file():
                    problem = f"clip {turn.clip} is missing; restore the file or delete the line"
            except ValueError as error:
                problem = str(error)
            turns.setdefault(turn.clip, turn)
        if problem is not None:
            problems.append(Problem(TURNS, number, problem))
    return list(turns.values())


class GameLine(msgspec.Struct, forbid_unknown_fields=True):
    """One line of games.jsonl."""

    game: Annotated[str, msgspec.Meta(pattern=r"\S")]
    clips: Annotated[list[str], msgspec.Meta(min_length=1)]
    held_out: bool = False


def _read_games(folder: Path, index_of: Mapping[str, int], problems: list[Problem]) -> list[GameRecord]:
    games: dict[str, GameRecord] = {}
    for number, line, problem in read_rows(folder / GAMES, GameLine):
        unknown = [clip for clip in line.clips if clip not in index_of] if line is not None else []
        if unknown:
            problem = f"clip {quoted(unknown[0])} has no line in {TURNS}"
        elif line is not None and line.game in games:
            problem = f"game {quoted(line.game)} is also in an earlier line; rename one"
        if problem is not None:
            problems.append(Problem(GAMES, number, problem))
        else:
            games[line.game] = GameRecord(line.game, tuple(index_of[clip] for clip in line.clips), line.held_out)
    return list(games.values())


def read_info(folder: Path) -> dict[str, Any]:
    """The content of dataset.json, {} without one; JsonError if it cannot be used."""
    if not (folder / INFO).is_file():
        return {}
    info = read_json(folder / INFO, dict[str, Any])
    to_type(info, _Info, str(folder / INFO))
    return info


def with_levels(turns: Sequence[ClipRecord]) -> tuple[list[ClipRecord], dict[str, tuple[float, ...]]]:
    """The clips with the levels of their motion values, and the levels' edges and median values.

    A level is a quintile of the clips' own values. ValueError if the values do not make five levels.
    """
    values = [turn.motion_value for turn in turns if turn.motion_value is not None]
    edges = level_edges(values)
    return [with_level(turn, edges) for turn in turns], {"edges": edges, "values": median_by_level(values, edges)}


def with_level(turn: ClipRecord, edges: Sequence[float]) -> ClipRecord:
    """The clip with the level of its motion value; unchanged if it was not measured."""
    if turn.motion_value is None:
        return turn
    return msgspec.structs.replace(turn, motion_level=level_of(turn.motion_value, edges))


def write_tables(
    path: Path,
    turns: Sequence[ClipRecord],
    games: Iterable[tuple[str, Sequence[str], bool]],
    provenance: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> DatasetFolder:
    """Write turns.jsonl, games.jsonl and dataset.json, and read them back. games: (name, clip paths, held out)."""
    lines = [{"game": name, "clips": list(clips), "held_out": held} for name, clips, held in games]
    info = {"format": FORMAT, "provenance": dict(provenance), "settings": dict(settings)}
    write_text(path / TURNS, jsonl_text(turns))
    write_text(path / GAMES, jsonl_text(lines))
    write_text(path / INFO, json.dumps(info, indent=1, ensure_ascii=False))
    return DatasetFolder.open(path)
