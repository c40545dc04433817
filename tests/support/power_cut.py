"""What a disk may hold after a power cut, for a piece of work in this process.

`recorded` keeps the folder's tree at every call that flushes, renames, links or removes. `Disk.cut` builds what may be
left at one of these moments: a folder's names are those of its last flush or of any moment since, each folder for
itself; a file's content is that of its last flush or of any moment since, and what is new in it may be partly zeros,
page by page.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

PAGE = 4096
CALLS = ("replace", "rename", "link", "unlink", "remove", "mkdir", "rmdir", "truncate")
Inode = int
Names = dict[str, Inode]


@dataclass
class Disk:
    """The recorded versions of a tree: inode -> (moment, its names or content), whenever they changed.

    flushed: inode -> moments of its flushes. notes: what `note` was given, with its moment. moments: their number.
    """

    root: Path
    folders: dict[Inode, list[tuple[int, Names]]] = field(default_factory=dict)
    files: dict[Inode, list[tuple[int, bytes]]] = field(default_factory=dict)
    flushed: dict[Inode, list[int]] = field(default_factory=dict)
    notes: list[tuple[int, object]] = field(default_factory=list)
    moments: int = 0
    _held: dict[Inode, int] = field(default_factory=dict)

    def note(self, what: object) -> None:
        """Remember what the work has reported as finished."""
        self.notes.append((self.moments, what))

    def noted(self, moment: int) -> list[object]:
        """What was reported before a moment."""
        return [what for when, what in self.notes if when <= moment]

    def look(self) -> None:
        """Record the tree as it is now."""
        self.moments += 1
        self._look(self.root)

    def flush(self, descriptor: int) -> None:
        """Record that an open file or folder was flushed."""
        self.look()
        self.flushed.setdefault(os.fstat(descriptor).st_ino, []).append(self.moments)

    def cut(self, moment: int, seed: int, out: Path) -> None:
        """Write to `out` what may be left at a moment. seed 0: only what was flushed."""
        self._restore(self.root.stat().st_ino, moment, random.Random(seed) if seed else None, out)

    def close(self) -> None:
        """Let go of the files, which were held open so that no inode's number was used twice."""
        for descriptor in self._held.values():
            os.close(descriptor)

    def _look(self, path: Path) -> Inode:
        is_folder = path.is_dir()
        if not is_folder and not path.is_file():
            raise FileNotFoundError(path)
        inode = path.stat().st_ino
        if inode not in self._held:
            self._held[inode] = os.open(path, os.O_RDONLY)
        if is_folder:
            self._add(self.folders, inode, {name: self._look(path / name) for name in sorted(os.listdir(path))})
        else:
            self._add(self.files, inode, path.read_bytes())
        return inode

    def _add(self, versions: dict, inode: Inode, value: object) -> None:
        known = versions.setdefault(inode, [])
        if not known or known[-1][1] != value:
            known.append((self.moments, value))

    def _possible(self, versions: dict, inode: Inode, moment: int) -> list:
        """The versions that may be left, the flushed one first; without a flush there may be nothing."""
        flush = max((when for when in self.flushed.get(inode, ()) if when <= moment), default=0)
        past = [(when, value) for when, value in versions.get(inode, ()) if when <= moment]
        safe = [value for when, value in past if when <= flush][-1:]
        return [*safe, *(value for when, value in past if when > flush)] if safe else [None, *(v for _, v in past)]

    def _restore(self, inode: Inode, moment: int, rng: random.Random | None, out: Path) -> None:
        if inode in self.folders:
            names = _one_of(self._possible(self.folders, inode, moment), rng) or {}
            out.mkdir(exist_ok=True)
            for name, below in names.items():
                self._restore(below, moment, rng, out / name)
            return
        found = self._possible(self.files, inode, moment)
        chosen = _one_of(found, rng) or b""
        out.write_bytes(chosen if rng is None else _torn(found[0] or b"", chosen, rng))


def _one_of(versions: list, rng: random.Random | None) -> object:
    return versions[0] if rng is None else rng.choice(versions)


def _torn(flushed: bytes, new: bytes, rng: random.Random) -> bytes:
    """New content of which, half of the time, some pages are still those of the flushed content."""
    if rng.random() < 0.5:
        return new
    torn = bytearray(new)
    for start in range(0, len(new), PAGE):
        old = flushed[start : start + PAGE].ljust(len(new[start : start + PAGE]), b"\0")[: len(new) - start]
        if rng.random() < 0.5:
            torn[start : start + len(old)] = old
    return bytes(torn)


@contextmanager
def recorded(root: Path) -> Iterator[Disk]:
    """Record what happens below `root`, which is taken as flushed at the beginning, while the block runs."""
    disk = Disk(root.resolve())
    disk.look()
    for inode in (*disk.folders, *disk.files):
        disk.flushed[inode] = [disk.moments]

    def flushing(descriptor: int) -> None:
        disk.flush(descriptor)

    with ExitStack() as patches:
        patches.callback(disk.close)
        patches.enter_context(patch("os.fsync", flushing))
        for name in CALLS:
            patches.enter_context(patch(f"os.{name}", _watched(getattr(os, name), disk)))
        yield disk
        disk.look()


def _watched(call, disk: Disk):
    def watched(*args, **options):
        disk.look()
        result = call(*args, **options)
        disk.look()
        return result

    return watched


def sample(disk: Disk, count: int) -> list[tuple[int, int]]:
    """So many pairs of a moment and a seed for `Disk.cut`, over all of the work."""
    return [(1 + number * disk.moments // count, number % 4 and number) for number in range(count)]
