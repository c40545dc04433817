"""What a dataset folder holds of each film while it is built: its survey, and its finished scenes.

    films/<film>.json     what the first reading told, and with which settings the film's clips are cut
    films/<film>.jsonl    one line a finished scene: its clips, and what was left out
    clips/<film>/         the clips

A film is cut by one program at a time; films beside one another may be cut by several machines.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...files import PART, append_line, write_text
from ..dataset import CLIPS
from ..tables import DatasetError, read_lines
from .cutting import Cut, Span, from_line, to_line
from .survey import Survey

FILMS = "films"
SCENES, SCENE_SETTINGS = "scenes", "scene_settings"  # how scenes are found: of the settings, and of a film alone
LONGEST_NAME = 60
# No file of Windows may be called so, and what begins with PART counts as a leftover of a crash.
RESERVED = re.compile(rf"(con|prn|aux|nul|com\d|lpt\d)|{PART}.*", re.IGNORECASE)


@dataclass(frozen=True)
class FilmNote:
    """A film that was surveyed. file, bytes: its file's name and size. settings: those that its clips are cut with."""

    file: str
    bytes: int
    settings: Mapping[str, Any]
    survey: Survey

    def provenance(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """What dataset.json says of the film: with how its scenes were found, where that is not as in `settings`."""
        return {
            "file": _plain(self.file),
            "bytes": self.bytes,
            **self.survey.facts,
            "seconds_read": self.survey.seconds,
            "scenes": len(self.survey.scenes),
            "broken": self.survey.broken and _plain(self.survey.broken),
            **({SCENE_SETTINGS: self.settings.get(SCENES)} if self.found_otherwise(settings) else {}),
        }

    def found_otherwise(self, settings: Mapping[str, Any]) -> bool:
        """Whether its scenes were found with other settings than these."""
        return self.settings.get(SCENES) != settings[SCENES]


def film_name(path: Path) -> str:
    """The name of a film's folder and files: the same for the same file name, safe on every system, and readable."""
    name = re.sub(r"[^\w-]+", "-", path.stem).strip("-")
    if len(name) > LONGEST_NAME:  # episodes may differ in their last letters alone
        name = f"{name[: LONGEST_NAME - 9]}-{zlib.crc32(path.stem.encode('utf-8', 'surrogateescape')):08x}"
    return f"film-{name}".rstrip("-") if not name or RESERVED.fullmatch(name) else name


def named_films(films: Sequence[Path]) -> dict[str, Path]:
    """The films by their names; ValueError for two of one name, be it in capitals, which some disks do not tell."""
    named: dict[str, Path] = {}
    taken: dict[str, Path] = {}
    for film in films:
        name = film_name(film)
        other = taken.setdefault(name.casefold(), film)
        if other != film:
            raise ValueError(f"{other} and {film} would both be called {name!r} in the dataset; rename one of them")
        named[name] = film
    return named


def read_notes(out: Path) -> dict[str, FilmNote]:
    """The films of a folder that were surveyed, by name; ValueError for a note that is damaged."""
    paths = sorted((out / FILMS).glob("*.json"), key=lambda path: path.stem)
    return {path.stem: _read(path) for path in paths if not path.name.startswith(PART)}


def _read(path: Path) -> FilmNote:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return FilmNote(values["file"], values["bytes"], values["settings"], Survey.from_dict(values["survey"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not a film's note ({error}); delete it, and the film is cut anew") from error


def begin(out: Path, name: str, film: Path, settings: Mapping[str, Any], survey: Survey) -> None:
    """Note a film's survey. Scenes that an earlier note of this name finished count no more: theirs may be others."""
    _finished_path(out, name).unlink(missing_ok=True)
    values = {"file": _plain(film.name), "bytes": film.stat().st_size, "settings": settings, "survey": survey.to_dict()}
    write_text(out / FILMS / f"{name}.json", json.dumps(values) + "\n")


def _plain(told: str) -> str:
    """A file's name, or a sentence with a path in it, as text: some systems' names are not UTF-8."""
    return os.fsencode(told).decode("utf-8", "replace")


def check_same(
    out: Path, notes: Mapping[str, FilmNote], named: Mapping[str, Path], settings: Mapping[str, Any]
) -> None:
    """ValueError if a film of the folder was cut with other settings, or one of those named was another film.

    Other settings of how scenes are found are no obstacle: clips can still be compared, and a later version's differ.
    """
    for name, note in notes.items():
        path = out / FILMS / f"{name}.json"
        if name in named and note.bytes != named[name].stat().st_size:
            raise ValueError(
                f"{named[name]} is not the film {note.file!r} that was cut as {name!r}; rename it, or, "
                f"if it is to take that film's place, delete {path}; what is told of the old film's clips then goes"
            )
        differing = _differing(note.settings, {**settings, SCENES: note.settings.get(SCENES)})
        if differing:
            raise ValueError(
                f"the clips of {note.file} in {out} were cut with other settings ({differing}"
                "); give the same ones, or build in another folder"
            )


def cut_otherwise(notes: Mapping[str, FilmNote], settings: Mapping[str, Any], out: Path) -> dict[str, str]:
    """Film -> sentence of each whose scenes were found with other settings than these, and stay as they are."""
    return {
        name: f"{_plain(note.file)}: its scenes were found with other settings, as by an earlier version, and stay; "
        f"to find them anew delete {out / FILMS / name}.json and name the film again; "
        "what was said of clips that then begin elsewhere goes"
        for name, note in notes.items()
        if note.found_otherwise(settings)
    }


def _differing(before: Mapping[str, Any], now: Mapping[str, Any], within: str = "") -> str:
    """What differs between two settings, in words."""
    told = []
    for name in sorted({*before, *now}):
        one, other = before.get(name), now.get(name)
        if isinstance(one, dict) and isinstance(other, dict) and one != other:
            told.append(_differing(one, other, f"{within}{name}."))
        elif one != other:
            told.append(f"{within}{name} {one}, now {other}")
    return ", ".join(told)


def noted_scenes(out: Path, name: str) -> dict[int, list[Cut]]:
    """The scenes of a film that were finished, by number in order; a line that a kill cut off is passed over.

    DatasetError names a whole line that tells no scene.
    """
    path = _finished_path(out, name)
    scenes = {}
    for line, row in read_lines(path)[0]:
        try:
            number, cuts = from_line(row)
        except (ValueError, KeyError, TypeError) as error:
            told = f"not a finished scene ({error}); delete the line, and the scene is cut anew"
            raise DatasetError(f"{path}:{line}: {told}") from error
        scenes[number] = cuts
    return dict(sorted(scenes.items()))


def finished_scenes(out: Path, name: str) -> frozenset[int]:
    """The numbers of the finished scenes whose clips are all still there."""
    return frozenset(
        number
        for number, cuts in noted_scenes(out, name).items()
        if all((out / cut.clip).is_file() for cut in cuts if cut.dropped is None)
    )


def note_scenes(out: Path, span: Span, cuts: Sequence[Sequence[Cut]]) -> None:
    """Add a span's scenes to the finished ones of its film."""
    append_line(_finished_path(out, span.name), _lines(dict(enumerate(cuts, span.first))))


def settle(out: Path, name: str) -> None:
    """Once all scenes of a film are finished: order their lines, and remove what a kill left of clips."""
    path = _finished_path(out, name)
    lines = _lines(noted_scenes(out, name))
    if path.is_file() and path.read_bytes() != lines.encode():
        write_text(path, lines)
    for leftover in (out / CLIPS / name).glob(f"{PART}*"):
        leftover.unlink(missing_ok=True)


def _finished_path(out: Path, name: str) -> Path:
    return out / FILMS / f"{name}.jsonl"


def _lines(scenes: Mapping[int, Sequence[Cut]]) -> str:
    return "".join(json.dumps(to_line(number, cuts)) + "\n" for number, cuts in scenes.items())
