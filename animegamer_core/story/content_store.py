"""Content-addressed files: an address is the SHA-256 of everything that a result depends on, so nothing is computed
twice.

The record is written after its file, so a file with a record is complete. Imports no torch.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from ..files import replacing, write_text
from ..game.state import GameState
from ..json_files import read_json, to_type
from ..weights.storage import note_of
from .turn import Key, address_of

if typing.TYPE_CHECKING:
    from torch import Tensor


class _File(typing.TypedDict):
    key: dict[str, typing.Any]
    bytes: int
    sha256: str


class Record(_File, total=False):
    """What is known of a stored file; states have the last three fields."""

    motion: typing.Annotated[int, msgspec.Meta(ge=0, le=5)]
    change: dict[str, typing.Annotated[int, msgspec.Meta(ge=-99, le=99)]]
    raw_choices: tuple[int | None, ...]


@dataclass(frozen=True)
class ContentStore:
    """A folder of content-addressed files, each with a record (JSON)."""

    folder: Path
    key_type: type[Key]
    suffix: str

    def record(self, address: str) -> Record | None:
        """The record of `address`; None if it is missing or damaged, or its file is missing or has another size."""
        try:
            record = read_json(self.folder / f"{address}.json", Record)
            if address_of(to_type(record["key"], self.key_type, address)) != address:
                return None
            return record if self._path(address).stat().st_size == record["bytes"] else None
        except (OSError, ValueError):
            return None

    def find(self, address: str) -> Record | None:
        """As `record`, but also None if the file's content has changed."""
        record = self.record(address)
        return record if record is not None and note_of(self.path(address)).sha256 == record["sha256"] else None

    def path(self, address: str) -> Path:
        """The file of an address; ValueError if it is missing or damaged."""
        if self.record(address) is None:
            raise ValueError(f"{self.folder / address}: missing or damaged; play this turn again to restore it")
        return self._path(address)

    def _path(self, address: str) -> Path:
        return self.folder / f"{address}{self.suffix}"

    def put(self, key: Key, values: Mapping[str, typing.Any], write: Callable[[Path], None]) -> str:
        """Store the file that `write` makes at a path, then its record; returns the address."""
        address = address_of(key)
        path = self._path(address)
        with replacing(path) as part:
            write(part)
        record = {"key": asdict(key), **values, **asdict(note_of(path))}
        write_text(self.folder / f"{address}.json", json.dumps(record) + "\n")
        return address


def state_of(record: Record) -> GameState:
    """The state of a prediction's record, without its representation."""
    return GameState(None, record.get("motion", 0), record.get("change", {}), record.get("raw_choices", ()))


def write_representation(representation: Tensor | None, path: Path) -> None:
    """Write an (N, D) representation to a file; None gives a file without tensors."""
    from safetensors.torch import save_file

    save_file({} if representation is None else {"representation": representation.contiguous()}, path)


def read_representation(path: Path) -> Tensor:
    """The (N, D) representation in a file, on the CPU."""
    from safetensors.torch import load_file

    return load_file(path)["representation"].clone()  # a view would keep the file open on Windows
