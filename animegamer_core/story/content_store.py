"""Content-addressed files: an address is the SHA-256 of everything that a result depends on, so nothing is computed
twice.

The record is written after its file, so a file with a record is complete. Imports no torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import typing
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec

from ..files import replacing, write_text
from ..game.life import PUBLISHED_RULES, Values
from ..game.state import GameSession, GameState
from ..json_files import read_json, to_type
from ..messages import shortened

if typing.TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class StateKey:
    """Everything that a prediction depends on. world: its fingerprint. parent: the address of the state before, for
    turn 1 of the opening; None if there is no opening. recalled: the numbers of the turns that it read instead of the
    oldest of the window.
    """

    world: str
    parent: str | None
    instruction: str
    window: int
    profile: str
    precision: str
    recalled: tuple[int, ...] = ()


@dataclass(frozen=True)
class ShotKey:
    """Everything that a shot depends on. state: the address of its state. motion: the motion condition, px per frame.

    latent: the SHA-256 of the latent that it started from; empty if from noise, as in play. denoise: how much of that
    latent was drawn again.
    """

    world: str
    state: str
    seed: int
    motion: float
    steps: int
    guidance: str
    precision: str
    latent: str = ""
    denoise: float = 1.0


@dataclass(frozen=True)
class OpeningKey:
    """How a game starts. text: the picture's motion text. picture: the SHA-256 of its representation; None without one.
    stats: their values.
    """

    world: str
    text: str
    picture: str | None
    stats: Values


LARGEST_RECORD = 1 << 20  # bytes
_AGAIN = "play this turn again to restore it"
_BLOCK = 1 << 20  # bytes that are read at a time
Key = StateKey | ShotKey | OpeningKey


def address_of(key: Key) -> str:
    """64 hex digits: the SHA-256 of a key as canonical JSON."""
    text = json.dumps(asdict(key), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def opening_address(fingerprint: str, session: GameSession) -> str | None:
    """The address of a session's opening, the parent of turn 1; None if it has no picture and the usual stats."""
    picture = session.picture
    if picture is not None and picture.state.representation is None and picture.address is not None:
        return picture.address
    if picture is None and session.start == (session.rules or PUBLISHED_RULES).start:
        return None
    return address_of(opening_key(fingerprint, session))


def with_opening_address(fingerprint: str, session: GameSession) -> GameSession:
    """The session with the opening's address on its picture, to know it once the representation is dropped."""
    if session.picture is None:
        return session
    picture = replace(session.picture, address=opening_address(fingerprint, session))
    return replace(session, turns=(picture, *session.turns[1:]))


def opening_key(fingerprint: str, session: GameSession) -> OpeningKey:
    """The key of a session's opening. The representation of its picture, if any, must be in memory."""
    picture, digest = session.picture, None
    if picture is not None and picture.state.representation is not None:
        values = picture.state.representation.float().contiguous().numpy()
        digest = hashlib.sha256(values.tobytes()).hexdigest()
    text = "" if picture is None else picture.instruction
    return OpeningKey(fingerprint, text, digest, session.start)


class _File(typing.TypedDict):
    key: dict[str, typing.Any]
    suffix: str
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
    suffixes: tuple[str, ...]

    def record(self, address: str) -> Record | None:
        """The record of `address`; None if it is missing or damaged, or its file is missing or has another size."""
        try:
            record = read_json(self.folder / f"{address}.json", Record, LARGEST_RECORD)
            if address_of(to_type(record["key"], self.key_type, address)) != address:
                return None
            path = self.folder / f"{address}{record['suffix']}"
            whole = record["suffix"] in self.suffixes and path.is_file() and path.stat().st_size == record["bytes"]
            return record if whole else None
        except (OSError, ValueError):
            return None

    def find(self, address: str) -> Record | None:
        """As `record`, but also None if the file's content has changed."""
        record = self.record(address)
        return record if record is not None and _digest(self.path(address)) == record["sha256"] else None

    def path(self, address: str) -> Path:
        """The file of an address; ValueError if it is missing or damaged."""
        record = self.record(address)
        if record is None:
            raise ValueError(f"{self.folder / address}: missing or damaged; {_AGAIN}")
        return self.folder / f"{address}{record['suffix']}"

    def put(self, key: Key, suffix: str, values: Mapping[str, typing.Any], write: Callable[[Path], None]) -> str:
        """Store the file that `write` makes at a path, then its record; returns the address."""
        address = address_of(key)
        path = self.folder / f"{address}{suffix}"
        with replacing(path) as part:
            write(part)
        content = {"suffix": suffix, "bytes": path.stat().st_size, "sha256": _digest(path)}
        write_text(self.folder / f"{address}.json", json.dumps({"key": asdict(key), **values, **content}) + "\n")
        return address


def link_or_copy(source: Path, target: Path) -> None:
    """Make `target` a hard link of `source`, or a copy if the disk has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:  # a damaged file may be larger than memory
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest()


def state_of(record: Record) -> GameState:
    """The state of a prediction's record, without its representation."""
    return GameState(None, record.get("motion", 0), record.get("change", {}), record.get("raw_choices", ()))


def write_representation(representation: Tensor | None, path: Path) -> None:
    """Write an (N, D) representation to a file; None gives a file without tensors."""
    from safetensors.torch import save_file

    save_file({} if representation is None else {"representation": representation.contiguous()}, path)


def read_representation(path: Path) -> Tensor:
    """The (N, D) representation in a file, on the CPU; ValueError if the file holds something else.

    Its checksum lies beside it, so a file that was changed by hand may have the right one.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found = load_file(path)["representation"].clone()  # a view would keep the file open on Windows
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"{path}: is not a saved state ({shortened(error)}); {_AGAIN}") from error
    if found.ndim != 2 or not found.is_floating_point() or not found.isfinite().all():
        raise ValueError(f"{path}: has values that are not a state; {_AGAIN}")
    return found
