"""Content-addressed files: an address is the SHA-256 of what decides a result, so none is computed twice.

Content is written first and its record last; so whatever has a record is whole. Nothing here imports torch.
"""

from __future__ import annotations

import hashlib
import json
import typing
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from .files import replacing, write_text
from .state import CharacterState, GameSession


@dataclass(frozen=True)
class StateKey:
    """What decides a prediction. world: its fingerprint; parent: the address of the state before or, for turn 1, of the
    opening, None where the game begins from nothing."""

    world: str
    parent: str | None
    instruction: str
    window: int
    profile: str
    precision: str


@dataclass(frozen=True)
class ShotKey:
    """What decides a shot. state: the address of its state; motion: the value that the decoder is told, px a frame."""

    world: str
    state: str
    seed: int
    motion: float
    steps: int
    guidance: str
    precision: str


@dataclass(frozen=True)
class OpeningKey:
    """How a game begins: the motion text of a picture, the SHA-256 of its representation (None: no picture), gauges."""

    world: str
    text: str
    picture: str | None
    stamina: int
    social: int
    entertainment: int


Key = StateKey | ShotKey | OpeningKey


def address_of(key: Key) -> str:
    """64 hex digits: the SHA-256 of a key as canonical json."""
    text = json.dumps(asdict(key), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def opening_address(fingerprint: str, session: GameSession) -> str | None:
    """The address of how a session begins, the parent of turn 1; None if it begins from nothing."""
    picture = session.picture
    if picture is not None and picture.state.representation is None and picture.address is not None:
        return picture.address
    if picture is None and session.opening == CharacterState():
        return None
    return address_of(opening_key(fingerprint, session))


def with_opening_address(fingerprint: str, session: GameSession) -> GameSession:
    """The session with the address on its opening picture, which tells it no more once its representation is let go."""
    if session.picture is None:
        return session
    picture = replace(session.picture, address=opening_address(fingerprint, session))
    return replace(session, turns=(picture, *session.turns[1:]))


def opening_key(fingerprint: str, session: GameSession) -> OpeningKey:
    """What decides how a session begins; its picture, if it has one, still holds its representation."""
    picture, digest = session.picture, None
    if picture is not None and picture.state.representation is not None:
        values = picture.state.representation.float().contiguous().numpy()
        digest = hashlib.sha256(values.tobytes()).hexdigest()
    text = "" if picture is None else picture.instruction
    return OpeningKey(fingerprint, text, digest, **asdict(session.opening))


@dataclass(frozen=True)
class Shelf:
    """A folder of content-addressed things, each a record (json) and the file that it describes."""

    folder: Path
    key_type: type[Key]
    suffixes: tuple[str, ...]

    def record(self, address: str) -> dict[str, typing.Any] | None:
        """The record of `address`, or None if it is absent, torn or foreign; its file is there with the right size."""
        try:
            record = json.loads((self.folder / f"{address}.json").read_text(encoding="utf-8"))
            if address_of(self.key_type(**record["key"])) != address:
                return None
            path = self._path(address, record["suffix"])
            return record if path.stat().st_size == record["bytes"] else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def find(self, address: str) -> dict[str, typing.Any] | None:
        """As `record`, and the file's content is what was written."""
        record = self.record(address)
        whole = record is not None and _digest(self._path(address, record["suffix"])) == record.get("sha256")
        return record if whole else None

    def path(self, address: str) -> Path:
        """Where the file of a known address lies."""
        record = self.record(address)
        if record is None:
            raise ValueError(f"{self.folder / address}: missing or damaged; play this turn again to make it anew")
        return self._path(address, record["suffix"])

    def put(
        self,
        key: Key,
        suffix: str,
        values: Mapping[str, typing.Any],
        write: Callable[[Path], None],
    ) -> str:
        """Store what `write` puts at a path, then the record that makes it known; returns the address."""
        address = address_of(key)
        path = self._path(address, suffix)
        with replacing(path) as part:
            write(part)
        facts = {"suffix": suffix, "bytes": path.stat().st_size, "sha256": _digest(path)}
        write_text(self.folder / f"{address}.json", json.dumps({"key": asdict(key), **values, **facts}) + "\n")
        return address

    def _path(self, address: str, suffix: str) -> Path:
        if suffix not in self.suffixes:
            raise ValueError(f"{self.folder / address}: {suffix!r} is none of {', '.join(self.suffixes)}")
        return self.folder / f"{address}{suffix}"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
