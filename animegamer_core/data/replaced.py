"""Films that took the place of others of their name: what the tables say of their clips tells of other pictures."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from ..files import write_text
from .captions.answers import ANSWERS, captions_log
from .dataset import DatasetFolder, read_info
from .films.cutting import clips_of
from .films.filmnotes import FilmNote
from .tables import ADVERBS, SET_ASIDE, read_lines


def replaced_films(out: Path, notes: Mapping[str, FilmNote]) -> frozenset[str]:
    """The films whose file had another size when the tables were made."""
    before = DatasetFolder(out, (), (), read_info(out, [])).film_bytes  # no need of the turns
    return frozenset(name for name, note in notes.items() if before.get(name, note.bytes) != note.bytes)


def forget(out: Path, films: Collection[str]) -> None:
    """Remove what was said of the clips of these films outside of the tables that are made anew: replies that were
    kept, clips that were set aside, adverbs that were chosen."""
    if not films:
        return
    with captions_log(out):  # nobody else adds to it
        for name in (ANSWERS, SET_ASIDE, ADVERBS):
            _without_clips(out / name, tuple(map(clips_of, films)))


def _without_clips(path: Path, folders: tuple[str, ...]) -> None:
    rows = ((number, row) for number, row in read_lines(path)[0] if isinstance(row, dict))
    if gone := {number for number, row in rows if str(row.get("clip")).startswith(folders)}:
        lines = enumerate(path.read_bytes().splitlines(keepends=True), start=1)
        write_text(path, b"".join(line for number, line in lines if number not in gone).decode("utf-8"))
