"""A dataset folder: one film or many as clips, and what happens in each. A person can read and correct it.

    clips/          the shots, mp4 (or .safetensors with one uint8 tensor `frames` where PyAV is missing)
    turns.jsonl     one line a clip, in the order of the film
    games.jsonl     {game, clips}: sequences of clips that make games; `"held_out": true` keeps a game from training
    dataset.json    provenance, settings (motion backend, threshold, level edges and values), statistics

F frames, H height, W width, C channels.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import append_line, replacing, write_text
from ..state import MotionTable
from ..video import read_clip, write_clip
from .motion import are_edges, are_values, level_edges, level_of, median_by_level
from .records import ClipRecord, GameRecord, is_text, only_keys
from .tables import DatasetError, Lines, Problem, first_of, read_lines, to_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FORMAT = 1
TURNS, GAMES, INFO, CLIPS = "turns.jsonl", "games.jsonl", "dataset.json", "clips"


@dataclass(frozen=True)
class DatasetFolder:
    """A dataset that was read and checked."""

    path: Path
    turns: tuple[ClipRecord, ...]
    games: tuple[GameRecord, ...]
    info: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, path: str | Path, clips: bool = True) -> DatasetFolder:
        """Read a folder; DatasetError lists what is wrong, each with its file and line.

        clips: whether their files have to be there, which nothing needs once all that is read of them is cached.
        """
        folder, problems = read_dataset(path, clips)
        if problems:
            raise DatasetError("\n".join([f"{path} cannot be used:", *first_of(problems)]))
        return folder

    @property
    def training_clips(self) -> tuple[int, ...]:
        """The clips that no held-out game shows."""
        kept_back = set(self.held_out_clips)
        return tuple(index for index in range(len(self.turns)) if index not in kept_back)

    @property
    def held_out_clips(self) -> tuple[int, ...]:
        """The clips of held-out games."""
        return tuple(sorted({index for game in self.games if game.held_out for index in game.clips}))

    @property
    def settings(self) -> Mapping[str, Any]:
        """How the dataset was made; nothing where a person left no object there."""
        return _object(self.info, "settings")

    @property
    def motion(self) -> Mapping[str, Any]:
        """How motion was measured, with the levels' edges and values; nothing where a person left no object there."""
        return _object(self.settings, "motion")

    @property
    def film_bytes(self) -> dict[str, int]:
        """How large the film files were that clips were cut from, by film, as far as a build noted it."""
        films = _object(_object(self.info, "provenance"), "films")
        sizes = {name: _object(films, name).get("bytes") for name in films}
        return {name: size for name, size in sizes.items() if isinstance(size, int)}

    @property
    def has_motion_table(self) -> bool:
        """Whether its motion levels were set."""
        return are_edges(self.motion.get("edges")) and are_values(self.motion.get("values"))

    @property
    def motion_table(self) -> MotionTable:
        """The dataset's own measured motion table; DatasetError where the levels were never set."""
        if not self.has_motion_table:
            told = "has no settings.motion.edges, four rising numbers, and values, five"
            raise DatasetError(f"{self.path / INFO} {told}; finish the dataset first")
        return MotionTable(self.path.name, tuple(self.motion["values"]), tuple(self.motion["edges"]))

    @property
    def motion_provenance(self) -> dict[str, str]:
        """How motion was measured, as a world's provenance has it, so that evaluations measure it the same way."""
        return {f"motion {name}": str(self.motion[name]) for name in ("backend", "threshold") if name in self.motion}

    def frames(self, index: int) -> NDArray[np.uint8]:
        """(F, H, W, C) uint8 of one clip."""
        return read_clip(self.path / self.turns[index].clip).frames

    def digest(self, captions: bool) -> str:
        """A name for what caches depend on: which clips there are, of which films, and their captions if asked.

        No clip's file is looked at, since caches are read where clips are not.
        """
        parts: list[Any] = [(turn.film, turn.start, turn.end, turn.clip) for turn in self.turns]
        parts += [turn.to_json() for turn in self.turns] if captions else []
        parts += sorted(self.film_bytes.items())  # another edition of a film has the same names and times
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _object(told: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = told.get(name)
    return value if isinstance(value, dict) else {}


def read_dataset(path: str | Path, clips: bool = True) -> tuple[DatasetFolder, list[Problem]]:
    """What can be read of a folder, and each thing that is wrong with it. clips: look for their files."""
    folder = Path(path)
    if not (folder / TURNS).is_file():
        return DatasetFolder(folder, (), ()), [Problem(TURNS, 0, f"is missing in {folder}; is this a dataset folder?")]
    problems: list[Problem] = []
    turns = _read_turns(folder, problems, clips)
    games = _read_games(folder, {turn.clip: index for index, turn in enumerate(turns)}, problems)
    return DatasetFolder(folder, tuple(turns), tuple(games), read_info(folder, problems)), problems


def _lines(path: Path, problems: list[Problem]) -> Lines:
    """(line number, value) of each line that is json; the others become problems."""
    lines, broken = read_lines(path)
    problems.extend(Problem(path.name, number, text) for number, text in broken)
    return lines


def _read_turns(folder: Path, problems: list[Problem], clips: bool) -> list[ClipRecord]:
    turns: list[ClipRecord] = []
    seen: dict[str, int] = {}
    for number, values in _lines(folder / TURNS, problems):
        try:
            turn = ClipRecord.from_dict(values)
        except ValueError as error:
            problems.append(Problem(TURNS, number, str(error)))
            continue
        if turn.clip in seen:
            told = f"clip {turn.clip} stands in line {seen[turn.clip]} too; delete one"
            problems.append(Problem(TURNS, number, told))
        elif clips and not (folder / turn.clip).is_file():
            told = f"clip {turn.clip} is missing; restore the file or delete the line"
            problems.append(Problem(TURNS, number, told))
        seen[turn.clip] = number
        turns.append(turn)
    return turns


def _read_games(folder: Path, index_of: Mapping[str, int], problems: list[Problem]) -> list[GameRecord]:
    games, names = [], set()
    for number, values in _lines(folder / GAMES, problems):
        try:
            only_keys(values, ("game", "clips", "held_out"), required=("game", "clips"))
            if not is_text(values["game"]):
                raise ValueError(f"game is {values['game']!r}; expected a name")
            clips = values["clips"]
            if not isinstance(clips, list) or not clips:
                raise ValueError(f"clips is {clips!r}; expected a list of clip paths")
            unknown = [clip for clip in clips if not isinstance(clip, str) or clip not in index_of]
            if unknown:
                raise ValueError(f"clip {unknown[0]!r} has no line in {TURNS}")
            if not isinstance(values.get("held_out", False), bool):
                raise ValueError(f"held_out is {values['held_out']!r}; expected true or false")
            if values["game"] in names:
                raise ValueError(f"game {values['game']!r} stands in an earlier line too; rename one")
        except ValueError as error:
            problems.append(Problem(GAMES, number, str(error)))
            continue
        names.add(values["game"])
        held_out = values.get("held_out", False)
        games.append(GameRecord(values["game"], tuple(index_of[clip] for clip in clips), held_out))
    return games


def read_info(folder: Path, problems: list[Problem]) -> Mapping[str, Any]:
    """What dataset.json tells; nothing, and a problem more, where it cannot be read."""
    if not (folder / INFO).is_file():
        return {}
    try:
        info = json.loads((folder / INFO).read_text(encoding="utf-8"))
    except ValueError as error:
        problems.append(Problem(INFO, 0, f"not json ({error})"))
        return {}
    if not isinstance(info, dict) or info.get("format", FORMAT) != FORMAT:
        told = f"expected an object of format {FORMAT}; a newer version of the program wrote it"
        problems.append(Problem(INFO, 0, told))
        return {}
    return info


class DatasetWriter:
    """Writes a dataset folder clip by clip. A writer opened on an unfinished folder goes on where it stopped."""

    def __init__(self, path: str | Path, fps: int = 8) -> None:
        self.path, self.fps = Path(path), fps
        (self.path / CLIPS).mkdir(parents=True, exist_ok=True)
        self._drop_cut_line()
        folder, problems = read_dataset(self.path) if (self.path / TURNS).exists() else (None, [])
        if problems:
            raise DatasetError("\n".join([f"{path} cannot be continued:", *first_of(problems)]))
        self.turns: list[ClipRecord] = list(folder.turns) if folder else []
        self._known = {turn.clip for turn in self.turns}

    def __contains__(self, clip: str) -> bool:
        """Whether a clip is written already, so that its work need not be done again."""
        return clip in self._known

    def add(self, record: ClipRecord, frames_FHWC: NDArray[np.uint8] | None = None) -> None:
        """Write a clip and its line; a clip that is there already is left as it is.

        frames None: another process wrote the clip's file before.
        """
        record = ClipRecord.from_dict(dataclasses.asdict(record))
        if record.clip in self:
            return
        if frames_FHWC is not None:
            write_clip(self.path / record.clip, frames_FHWC, self.fps)
        append_line(self.path / TURNS, record.to_json() + "\n", sync=False)
        self.turns.append(record)
        self._known.add(record.clip)

    def finish(
        self,
        games: Iterable[tuple[str, Sequence[str], bool]],
        provenance: Mapping[str, Any],
        settings: Mapping[str, Any],
        motion: Mapping[str, Any],
        caption: Callable[[ClipRecord], ClipRecord] | None = None,
    ) -> DatasetFolder:
        """Set every clip's motion level by the dataset's own quintiles and write games.jsonl and dataset.json.

        games: (name, clip paths, held out). motion: backend and threshold of the motion values. caption: completes
        a record once its level is known, since an adverb depends on it. Calling it again gives the same files.
        """
        self.turns, levels = levelled(self.turns)
        if caption is not None:
            self.turns = [caption(turn) for turn in self.turns]
        measured = {"fps": self.fps, **settings, "motion": {**motion, **levels}}
        return write_tables(self.path, self.turns, games, provenance, measured)

    def _drop_cut_line(self) -> None:
        """Remove a last line that a kill cut off; its clip is written again."""
        path = self.path / TURNS
        data = path.read_bytes() if path.exists() else b""
        if data and not data.endswith(b"\n"):
            with replacing(path) as part:
                part.write_bytes(data[: data.rfind(b"\n") + 1])


def levelled(turns: Sequence[ClipRecord]) -> tuple[list[ClipRecord], dict[str, tuple[float, ...]]]:
    """The clips with the levels of their motion values, and the levels' edges and median values.

    A level is the quintile of the clips' own values. ValueError where they cannot part five levels.
    """
    values = [turn.motion_value for turn in turns if turn.motion_value is not None]
    edges = level_edges(values)
    return [at_level(turn, edges) for turn in turns], {"edges": edges, "values": median_by_level(values, edges)}


def at_level(turn: ClipRecord, edges: Sequence[float]) -> ClipRecord:
    """The clip with the level that its motion value lies in; one that was not measured as it is."""
    if turn.motion_value is None:
        return turn
    return dataclasses.replace(turn, motion_level=level_of(turn.motion_value, edges))


def write_tables(
    path: Path,
    turns: Sequence[ClipRecord],
    games: Iterable[tuple[str, Sequence[str], bool]],
    provenance: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> DatasetFolder:
    """Write turns.jsonl, games.jsonl and dataset.json, and read them back. games: (name, clip paths, held out)."""
    lines = [{"game": name, "clips": list(clips), "held_out": held} for name, clips, held in games]
    info = {
        "format": FORMAT,
        "provenance": dict(provenance),
        "settings": dict(settings),
        "statistics": statistics(turns, len(lines)),
    }
    write_text(path / TURNS, turns_text(turns))
    write_text(path / GAMES, to_text(lines))
    write_text(path / INFO, info_text(info))
    return DatasetFolder.open(path)


def turns_text(turns: Iterable[ClipRecord]) -> str:
    """The lines of turns.jsonl."""
    return "".join(turn.to_json() + "\n" for turn in turns)


def info_text(info: Mapping[str, Any]) -> str:
    """The text of dataset.json."""
    return json.dumps(info, indent=1, ensure_ascii=False)


def statistics(turns: Sequence[ClipRecord], games: int) -> dict[str, Any]:
    """Counts that describe a dataset: clips, games, captions, characters, motion levels."""
    characters = Counter(name for turn in turns for name in turn.character or ())
    levels = Counter(turn.motion_level for turn in turns if turn.motion_level is not None)
    return {
        "clips": len(turns),
        "games": games,
        "captioned": sum(turn.captioned for turn in turns),
        "seconds": round(sum(turn.end - turn.start for turn in turns), 3),
        "characters": dict(sorted(characters.items())),
        "motion_levels": {str(level): levels[level] for level in sorted(levels)},
    }
