"""The folder that a world's parts are stored in, and its manifest world.json.

Importing this imports no torch.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..files import is_plain_name
from ..game.life import Life
from ..game.state import MotionTable
from ..json_files import to_type
from ..spec import LARGEST, ModelSpec, get_profile
from .parts import ADAPTER, PARTS, TOKENIZER, LoraUpdates, read_lora
from .storage import (
    CheckpointError,
    FileNote,
    SafetensorsSource,
    TensorSource,
    find_safetensors,
    note_of,
    read_json,
    typed,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from ..game.life import Stat
    from ..model.prompt import GameTokenizer


Notes = Mapping[str, FileNote]  # path below the folder, with slashes -> its checksum and size


@dataclass(frozen=True)
class OwnFolder:
    """A folder that `save_world` made. `files` is what its manifest lists, with checksums."""

    folder: Path
    files: Notes = field(default_factory=dict)

    def notes(self, part: str) -> Notes:
        """The files of a part in the manifest."""
        return {path: note for path, note in self.files.items() if part_of(path) == part}

    def note(self, path: str) -> FileNote:
        """The checksum of the whole file."""
        return note_of(self.folder / path)

    def remedy(self, part: str) -> str:
        """The part's folder, and that `convert` and `new` make it."""
        where = str(self.folder / PARTS[part].folder)
        if self.notes(part):
            where = (
                f"{where}, where files are missing or cut off; restore them, or train this part of a small world again"
            )
        return f"in {where}; `convert` or `new` makes it from {PARTS[part].source}"

    def source(self, part: str) -> TensorSource:
        """The part's safetensors."""
        folder = self.folder / PARTS[part].folder
        path = find_safetensors(folder)
        if path is None:
            raise CheckpointError(f"{folder}: no safetensors weights; convert again from {PARTS[part].source}")
        return SafetensorsSource(path)

    def lora(self, part: str) -> LoraUpdates:
        """The LoRA in the part's folder, if the manifest lists it."""
        folder = PARTS[part].folder
        return read_lora(self.folder / folder) if f"{folder}/{ADAPTER}" in self.files else {}

    def tokenizer(self, stats: Sequence[Stat]) -> GameTokenizer:
        """Reads engine/tokenizer.json."""
        from ..model.prompt import GameTokenizer

        return GameTokenizer.from_file(self._checked("engine"), stats)

    def text_tokenizer(self) -> Tokenizer | None:
        """Reads encoder/text_tower/tokenizer.json."""
        from ..model.prompt import read_tokenizer

        path = self._checked("text_tower")
        return read_tokenizer(path) if path.is_file() else None

    def _checked(self, part: str) -> Path:
        """A part's tokenizer, whose checksum must be the manifest's: a changed word would change all prompts."""
        name = f"{PARTS[part].folder}/{TOKENIZER}"
        path, known = self.folder / name, self.files.get(name)
        if known is not None and path.is_file() and self.note(name) != known:
            raise CheckpointError(
                f"{path}: this is not the tokenizer that the world was saved with ({path.stat().st_size} bytes, "
                f"expected {known.bytes}, with sha256 {known.sha256[:12]}...); convert or download it again"
            )
        return path


def part_of(path: str) -> str:
    """The part whose folder a file of our own is in."""
    folder = path.rpartition("/")[0]
    return next((name for name, part in PARTS.items() if part.folder == folder), "")


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
