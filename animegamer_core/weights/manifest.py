"""Read a world's manifest, world.json. Importing this imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ..files import is_plain_name
from ..game.life import Life
from ..game.state import MotionTable
from ..json_files import to_type
from ..spec import LARGEST, ModelSpec, get_profile
from .parts import PARTS
from .storage import CheckpointError, FileNote, read_json

Notes = Mapping[str, FileNote]  # path below the folder, with slashes -> its checksum and size


def part_of(path: str) -> str:
    """The part whose folder a file of our own is in."""
    folder = path.rpartition("/")[0]
    return next((name for name, part in PARTS.items() if part.folder == folder), "")


FORMAT = 1  # raised when an older program could misread the folder
MANIFEST = "world.json"
TENSORS, LORA, TOKENIZER = "model", "lora", "tokenizer"  # how the names of a part's files begin


class _Manifest(msgspec.Struct):
    """What world.json holds beside its format."""

    spec: ModelSpec
    profile: str
    motion_table: MotionTable
    files: dict[str, Any]
    provenance: dict[str, str] = {}
    licence: str = ""
    window: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)] | None = None
    life: Life = Life()


def read_manifest(path: Path) -> tuple[dict[str, Any], dict[str, FileNote]]:
    """(a World's fields without its storage, path -> checksum of its files); CheckpointError names what is wrong."""
    stated = read_json(path).get("format")
    if stated != FORMAT:
        raise CheckpointError(
            f"{path}: format is {stated!r}, this program reads {FORMAT}; update the program or convert again"
        )
    found = read_json(path, _Manifest)
    try:
        fields = {
            "spec": found.spec,
            "profile": get_profile(found.profile),
            "motion_table": found.motion_table,
            "provenance": found.provenance,
            "licence": found.licence,
            "trained_window": found.window,
            "life": found.life,
        }
        return fields, read_notes(found.files)
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error


def read_notes(values: Mapping[str, Any]) -> dict[str, FileNote]:
    """Files with their checksums, as the manifest lists them; ValueError for a path outside the folders of parts."""
    for path in values:
        if not part_of(path) or not is_plain_name(path.rpartition("/")[2]):
            folders = ", ".join(part.folder for part in PARTS.values())
            raise ValueError(f"files[{path!r}] is not in the folder of a part by a plain name; expected {folders}")
    return to_type(values, dict[str, FileNote], "files")
