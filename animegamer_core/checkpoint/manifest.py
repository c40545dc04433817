"""Read world.json, the manifest of a world folder, with checks. Importing this imports no torch."""

from __future__ import annotations

import math
import typing
from collections.abc import Mapping
from pathlib import Path

from ..files import is_plain_name
from ..json_files import to_type
from ..life import Life
from ..spec import LARGEST, ModelSpec, get_profile
from ..state import MotionTable
from .folders import part_of
from .parts import PARTS
from .storage import CheckpointError, FileNote, read_json, typed

FORMAT = 1  # raised when an older program could misread the folder
MANIFEST = "world.json"


def read_manifest(path: Path) -> tuple[dict[str, typing.Any], dict[str, FileNote]]:
    """(a World's fields without its storage, path -> checksum of its files); CheckpointError names what is wrong."""
    values = read_json(path)
    if values.get("format") != FORMAT:
        raise CheckpointError(
            f"{path}: format is {values.get('format')!r}, this program reads {FORMAT}; "
            "update the program or convert again"
        )
    try:
        files = read_notes(typed(values, "files", dict))
        fields = {
            "spec": ModelSpec.from_dict(typed(values, "spec", dict)),
            "profile": get_profile(typed(values, "profile", str)),
            "motion_table": read_motion_table(typed(values, "motion_table", dict)),
            "provenance": dict(typed(values, "provenance", dict, {})),
            "licence": typed(values, "licence", str, ""),
            "trained_window": _read_window(values),
            "life": to_type(values.get("life", {}), Life, "field life"),
        }
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: {error}") from error
    return fields, files


def read_motion_table(values: Mapping[str, typing.Any]) -> MotionTable:
    """A motion table from json; ValueError if it does not hold five values and, where measured, four edges."""
    name = typed(values, "name", str, where="motion_table.name")
    numbers = _numbers(typed(values, "values", list, where="motion_table.values"), 5, "motion_table.values")
    edges = values.get("edges")
    return MotionTable(name, numbers, None if edges is None else _numbers(edges, 4, "motion_table.edges"))


def _numbers(values: typing.Any, count: int, where: str) -> tuple[float, ...]:
    plain = isinstance(values, list) and all(type(value) in (int, float) and math.isfinite(value) for value in values)
    if not plain or len(values) != count:
        raise ValueError(f"{where} is {values!r}; expected {count} values")
    return tuple(float(value) for value in values)


def _read_window(values: Mapping[str, typing.Any]) -> int | None:
    """The past turns that the engine was trained with; None if not stated."""
    window = typed(values, "window", int, None)
    if window is not None and not 0 <= window <= LARGEST:
        raise ValueError(f"field window is {window}; expected the number of past turns")
    return window


def read_notes(values: Mapping[str, typing.Any]) -> dict[str, FileNote]:
    """Files with their checksums, as the manifest lists them; ValueError for a path outside the folders of parts."""
    notes = {}
    for path in values:
        name, where = path.rpartition("/")[2], f"files[{path!r}]"
        if not part_of(path) or not is_plain_name(name):
            folders = ", ".join(part.folder for part in PARTS.values())
            raise ValueError(f"{where} is not in the folder of a part by a plain name; expected {folders}")
        note = typed(values, path, dict, where=where)
        sha256 = typed(note, "sha256", str, where=f"{where}.sha256")
        notes[path] = FileNote(sha256, typed(note, "bytes", int, where=f"{where}.bytes"))
    return notes
