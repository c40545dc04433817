"""Finding films among files and folders."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ..dataset import CLIPS, TURNS
from .film import FILM_SUFFIXES
from .filmfile import FilmError


def find_films(paths: Sequence[Path], out: Path | None = None) -> list[Path]:
    """Return the films among files and, at any depth, in folders, sorted and each once.

    A file that is named is taken whatever its suffix; in a folder FILM_SUFFIXES decide, and hidden files are passed
    over, and so are the clips of datasets: of the one that is built (out), and of finished ones. A folder of clips that
    is named itself is taken. FilmError for a path that cannot be read; ValueError where no film is found.
    """
    found: set[Path] = set()
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
        for film in filter(_looks_like_film, path.rglob("*")):
            if not any(holds_clips(folder) for folder in film.parents if path in folder.parents):
                found.add(film)
    if not found:
        places = ", ".join(map(str, paths)) or "nothing"
        raise ValueError(f"no film found in {places}; films end in {' '.join(FILM_SUFFIXES)}")
    return sorted(found)


def _looks_like_film(file: Path) -> bool:
    return file.suffix.lower() in FILM_SUFFIXES and not file.name.startswith(".") and file.is_file()
