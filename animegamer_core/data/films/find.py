"""Finds films among files and folders."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ..dataset import CLIPS, TURNS
from .film import FILM_SUFFIXES
from .film_file import FilmError


def find_films(paths: Sequence[Path], out: Path | None = None) -> list[Path]:
    """The films among these files and, at any depth, in these folders; sorted, without duplicates.

    A file in `paths` counts as a film whatever its suffix. In folders, only files with FILM_SUFFIXES count; hidden
    files and the clips of datasets (finished ones, and the one in `out`) are skipped, unless a clips folder is itself
    in `paths`. FilmError for an unreadable path; ValueError if there is no film at all, or none in one of the folders.
    """
    found: set[Path] = set()
    empty: list[Path] = []
    own = None if out is None else out.resolve()

    @cache
    def holds_clips(folder: Path) -> bool:
        return folder.name == CLIPS and (folder.parent.resolve() == own or (folder.parent / TURNS).is_file())

    for path in map(Path, paths):
        try:
            is_folder = stat.S_ISDIR(path.stat().st_mode)
        except OSError as error:
            raise FilmError(f"{path}: cannot be read ({error.strerror}); name a film or a folder of films") from error
        if not is_folder:
            found.add(path)
            continue
        films = set()
        for file in path.rglob("*"):
            named = file.suffix.lower() in FILM_SUFFIXES and not file.name.startswith(".")
            inner = (folder for folder in file.parents if path in folder.parents)
            if named and file.is_file() and not any(map(holds_clips, inner)):
                films.add(file)
        found |= films
        empty += [] if films else [path]
    if empty and found:
        raise ValueError(f"no film found in {empty[0]}; films end in {' '.join(FILM_SUFFIXES)}; drop this folder")
    if not found:
        places = ", ".join(map(str, paths)) or "nothing"
        raise ValueError(f"no film found in {places}; films end in {' '.join(FILM_SUFFIXES)}")
    return sorted(found)
