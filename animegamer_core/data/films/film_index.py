"""The index of the films in a dataset folder: the survey of each, and its finished scenes, so that a build continues.

    films/<film>.json     the survey, and the settings that the film's clips are cut with
    films/<film>.jsonl    one line per finished scene: its clips, and the segments that were dropped
    films/<film>/         the strip of pictures
    clips/<film>/         the clips

Only one program may cut a film at a time; several machines may cut different films.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

from ...files import UNFINISHED, append_line, is_plain_name, write_text
from ...json_files import JsonError, read_json, read_rows
from ..dataset import CLIPS, TURNS
from .cutting import Cut, Span, is_cut
from .film import FILM_SUFFIXES, FilmError
from .scenes import Scene
from .survey import Survey

FILMS = "films"
LONGEST_NAME = 60


@dataclass(frozen=True)
class FilmEntry:
    """A surveyed film. file, bytes: its file's name and size. settings: those that its clips are cut with."""

    file: str
    bytes: int
    settings: Mapping[str, Any]
    survey: Survey

    def provenance(self) -> dict[str, Any]:
        """The film's entry in dataset.json."""
        survey = self.survey
        read = {"seconds_read": survey.seconds, "scenes": len(survey.scenes), "broken": survey.broken}
        return {"file": self.file, "bytes": self.bytes, **survey.facts, **read}


def film_name(stem: str) -> str:
    """The name of a film's folder and files: readable, safe on every system, the same for the same stem of its file."""
    name = re.sub(r"[^\w-]+", "-", stem).strip("-")
    if len(name) > LONGEST_NAME:  # episodes may differ only in their last letters
        name = f"{name[: LONGEST_NAME - 9]}-{zlib.crc32(stem.encode('utf-8', 'surrogateescape')):08x}"
    return name if is_plain_name(name) and not name.lower().startswith(UNFINISHED) else f"film-{name}".rstrip("-")


def films_by_name(films: Sequence[Path], out: Path) -> dict[str, Path]:
    """The films by their names in a dataset folder. Films that are in it, by the name and size of their file, keep
    theirs; of others that would share a name, the later get a longer one: with the suffix, the folder or a number."""
    known, named, new = read_film_index(out), dict[str, Path](), list[Path]()
    for film in films:
        facts = _plain(film.name), film.stat().st_size
        same = (name for name, entry in known.items() if (entry.file, entry.bytes) == facts and name not in named)
        if name := next(same, ""):
            named[name] = film
        else:
            new.append(film)
    for film in new:
        others = {name for name, entry in known.items() if entry.file != _plain(film.name)} | named.keys()
        taken = {name.casefold() for name in others}  # some file systems ignore case
        is_twin = any(film.name == other.name for other in named.values())
        longer = f"{film.parent.name}-{film.stem}" if is_twin else film.name
        stems = itertools.chain([film.stem, longer], (f"{longer}-{number}" for number in itertools.count(2)))
        named[next(name for name in map(film_name, stems) if name.casefold() not in taken)] = film
    return named


def read_film_index(out: Path) -> dict[str, FilmEntry]:
    """The surveyed films of a folder, by name; ValueError for a damaged entry."""
    paths = sorted((out / FILMS).glob("*.json"), key=lambda path: path.stem)
    return {path.stem: _read(path) for path in paths if not path.name.startswith(UNFINISHED)}


def _read(path: Path) -> FilmEntry:
    try:
        return read_json(path, FilmEntry)
    except JsonError as error:
        raise ValueError(f"{error}; the file is damaged, so delete it to cut the film again") from error


def _write(out: Path, name: str, entry: FilmEntry) -> None:
    write_text(out / FILMS / f"{name}.json", json.dumps(dataclasses.asdict(entry)) + "\n")


def add_film(out: Path, name: str, film: Path, settings: Mapping[str, Any], survey: Survey) -> None:
    """Write a film's survey, and delete the finished scenes of an earlier survey, whose scenes may differ."""
    _finished_path(out, name).unlink(missing_ok=True)
    survey = dataclasses.replace(survey, broken=survey.broken and _plain(survey.broken))
    _write(out, name, FilmEntry(_plain(film.name), film.stat().st_size, settings, survey))


def strip_folder(out: Path, name: str) -> Path:
    """The folder of a film's strip of pictures."""
    return out / FILMS / name


def change_scenes(out: Path, name: str, entry: FilmEntry, scenes: Sequence[Scene]) -> None:
    """Replace a film's scenes; scenes that it already had stay finished, new ones must be cut. entry: the present one.

    If the program is killed meanwhile, some scenes are cut again, but a number never refers to a different scene.
    """
    path = _finished_path(out, name)
    before, finished = entry.survey.scenes, read_scenes(out, name)
    numbers = {scene: number for number, scene in enumerate(scenes)}
    moved = {numbers[before[number]]: cuts for number, cuts in finished.items() if before[number] in numbers}
    write_text(path, _lines({number: cuts for number, cuts in moved.items() if finished.get(number) is cuts}))
    _write(out, name, dataclasses.replace(entry, survey=dataclasses.replace(entry.survey, scenes=tuple(scenes))))
    write_text(path, _lines(dict(sorted(moved.items()))))


def scenes_to_cut(out: Path) -> dict[str, int]:
    """Film -> how many of its scenes are not cut yet, without films whose scenes are all cut."""
    return {
        name: left
        for name, film in read_film_index(out).items()
        if (left := len(film.survey.scenes) - len(finished_scenes(out, name)))
    }


def remove_unused_clips(out: Path, name: str) -> None:
    """Remove clips that were cut from scenes that a finished film no longer has."""
    used = {cut.clip for cuts in read_scenes(out, name).values() for cut in cuts}
    for path in (out / CLIPS / name).glob("*"):
        clip = path.relative_to(out).as_posix()
        if is_cut(clip, name) and clip not in used:
            path.unlink(missing_ok=True)


def _plain(text: str) -> str:
    """A file name, or a message that contains one, as valid UTF-8; on some systems names may hold other bytes."""
    return os.fsencode(text).decode("utf-8", "replace")


def check_same_settings(
    out: Path, films: Mapping[str, FilmEntry], named: Mapping[str, Path], settings: Mapping[str, Any]
) -> None:
    """ValueError if a film of the folder was cut with other settings, or a named film has another size than before."""
    for name, film in films.items():
        if name in named and film.bytes != named[name].stat().st_size:
            raise ValueError(
                f"{named[name]} is not the film {film.file!r} that was cut as {name!r}; rename it, "
                "or build in another folder"
            )
        for key in {**film.settings, **settings}:
            if (before := film.settings.get(key)) != (now := settings.get(key)):
                raise ValueError(
                    f"the clips of {film.file} in {out} were cut with other settings ({key} {before}, now {now}); give "
                    "the same ones, or build in another folder"
                )


class _FinishedScene(TypedDict):
    scene: int
    segments: list[Cut]


def read_scenes(out: Path, name: str) -> dict[int, list[Cut]]:
    """The finished scenes of a film by number, in order. Scenes whose line is damaged or incomplete are cut again."""
    rows = (row for _, row, _ in read_rows(_finished_path(out, name), _FinishedScene) if row is not None)
    segments = {row["scene"]: row["segments"] for row in rows}
    return {scene: segments[scene] for scene in sorted(segments)}


def finished_scenes(out: Path, name: str) -> frozenset[int]:
    """The numbers of the finished scenes whose clips are all still there."""
    return frozenset(
        number
        for number, cuts in read_scenes(out, name).items()
        if all((out / cut.clip).is_file() for cut in cuts if cut.dropped is None)
    )


def add_scenes(out: Path, span: Span, cuts: Sequence[Sequence[Cut]]) -> None:
    """Add a span's scenes to the finished scenes of its film."""
    append_line(_finished_path(out, span.name), _lines(dict(enumerate(cuts, span.first))))


def tidy_film(out: Path, name: str) -> None:
    """Sort the lines of a film whose scenes are all finished, and remove the partial files of a killed program."""
    path = _finished_path(out, name)
    lines = _lines(read_scenes(out, name))
    if path.is_file() and path.read_bytes() != lines.encode():
        write_text(path, lines)
    for leftover in (out / CLIPS / name).glob(f"{UNFINISHED}*"):
        leftover.unlink(missing_ok=True)


def _finished_path(out: Path, name: str) -> Path:
    return out / FILMS / f"{name}.jsonl"


def _lines(scenes: Mapping[int, Sequence[Cut]]) -> str:
    rows = ({"scene": number, "segments": list(map(dataclasses.asdict, cuts))} for number, cuts in scenes.items())
    return "".join(json.dumps(row) + "\n" for row in rows)


def find_films(paths: Sequence[Path], out: Path | None = None) -> list[Path]:
    """The films among these files and, at any depth, in these folders; sorted, without duplicates.

    A file in `paths` counts as a film whatever its suffix. In folders, only files with FILM_SUFFIXES count; hidden
    files and the clips of datasets (finished ones, and the one in `out`) are skipped, unless a clips folder is itself
    in `paths`. FilmError for an unreadable path; ValueError if there is no film at all.
    """
    found: set[Path] = set()
    own = None if out is None else out.resolve()

    @cache
    def holds_clips(folder: Path) -> bool:
        return folder.name == CLIPS and (folder.parent.resolve() == own or (folder.parent / TURNS).is_file())

    for path in map(Path, paths):
        if not path.exists():
            raise FilmError(f"{path}: No such file; name a film or a folder of films")
        if not path.is_dir():
            found.add(path)
            continue
        for file in path.rglob("*"):
            named = file.suffix.lower() in FILM_SUFFIXES and not file.name.startswith(".")
            inner = (folder for folder in file.parents if path in folder.parents)
            if named and file.is_file() and not any(map(holds_clips, inner)):
                found.add(file)
    if not found:
        places = ", ".join(map(str, paths)) or "nothing"
        raise ValueError(f"no film found in {places}; films end in {' '.join(FILM_SUFFIXES)}")
    return sorted(found)
