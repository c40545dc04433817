"""The store of turns drawn ahead: states and shots that a player may choose next, kept next to the stories.

    .ahead/<world>/turns/<address>.*    as in a story, under the same addresses
    .ahead/<world>/shots/<address>.*    <world>: the first 16 digits of its fingerprint

It is a cache: a turn that is played is moved into its story, the rest is deleted by age and size. Imports no torch.
"""

from __future__ import annotations

import re
import time
import typing
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .content_store import ContentStore, ShotKey, StateKey, put_state, read_representation, state_of
from .index import AHEAD

if typing.TYPE_CHECKING:
    from torch import Tensor

    from ..state import GameState

LARGEST_AHEAD = 256_000_000  # bytes of all worlds together
OLDEST_AHEAD = 24 * 3600  # seconds
_ADDRESS = re.compile(r"[0-9a-f]{64}")


class AheadStore:
    """The states and shots of one world that were drawn ahead."""

    def __init__(self, root: Path | str, fingerprint: str, say: Callable[[str], None] = lambda line: None) -> None:
        """root: the folder of the stories. say: gets a line about each damaged file, which is deleted."""
        self.root = Path(root)
        self.folder = self.root / AHEAD / fingerprint[:16]
        self.say = say
        self.states = ContentStore(self.folder / "turns", StateKey, (".safetensors",))
        self.shots = ContentStore(self.folder / "shots", ShotKey, (".mp4", ".safetensors"))

    def has_state(self, address: str) -> bool:
        """Whether the state of this address is here and intact."""
        return self._has(self.states, address)

    def has_shot(self, address: str) -> bool:
        """Whether the shot of this address is here and intact."""
        return self._has(self.shots, address)

    def find_state(self, address: str) -> GameState | None:
        """The state of an address, without its representation; None if it is not here."""
        return state_of(self.states.record(address)) if self.has_state(address) else None

    def read_representation(self, address: str) -> Tensor:
        """The (N, D) representation of a state, on the CPU; ValueError if it is not here."""
        return read_representation(self.states.path(address))

    def put_state(self, key: StateKey, state: GameState) -> str:
        """Store a prediction; returns its address."""
        return put_state(self.states, key, state)

    def prune(self) -> None:
        """Delete what is too old or over the size limit, for all worlds."""
        prune_ahead(self.root)

    def _has(self, store: ContentStore, address: str) -> bool:
        if store.find(address) is not None:
            return True
        if (store.folder / f"{address}.json").exists():  # the record is written last, so nothing should be missing
            self.say(f"{store.folder / address} was damaged and is drawn again")
            store.remove(address)
        return False


def prune_ahead(root: Path, largest: int = LARGEST_AHEAD, oldest: float = OLDEST_AHEAD) -> None:
    """Delete what was drawn ahead more than `oldest` seconds ago, and of the rest the oldest beyond `largest` bytes."""
    stored = sorted(_stored(root / AHEAD), reverse=True)
    total = 0
    for written, size, paths in stored:
        total += size
        if total > largest or time.time() - written > oldest:
            with suppress(OSError):  # on Windows, while another program reads it; a folder of another user
                for path in paths:
                    path.unlink(missing_ok=True)
    for folder in (root / AHEAD).glob("*"):
        if not any(path.is_file() for path in folder.rglob("*")):
            _remove_folders(folder)


def ahead_bytes(root: Path) -> int:
    """The total size of all turns drawn ahead."""
    return sum(size for _, size, _ in _stored(root / AHEAD))


def _stored(folder: Path) -> list[tuple[float, int, list[Path]]]:
    """(when it was written, bytes, files with the record first) of each address, and of each unfinished file."""
    found: dict[str, list[Path]] = {}
    for path in folder.glob("*/*/*"):
        if path.parent.is_symlink() or path.parents[1].is_symlink() or folder.is_symlink():
            continue  # these files lie elsewhere
        name = path.stem if _ADDRESS.fullmatch(path.stem) else path.name
        found.setdefault(f"{path.parent}/{name}", []).append(path)
    stored = []
    for paths in found.values():
        with suppress(FileNotFoundError):  # played or deleted in the meantime
            facts = [path.stat() for path in paths]
            paths.sort(key=lambda path: path.suffix != ".json")
            stored.append((max(fact.st_mtime for fact in facts), sum(fact.st_size for fact in facts), paths))
    return stored


def _remove_folders(folder: Path) -> None:
    """Remove empty folders, unless something is written into them at this moment."""
    with suppress(OSError):
        for inner in folder.iterdir():
            inner.rmdir()
        folder.rmdir()
        folder.parent.rmdir()
