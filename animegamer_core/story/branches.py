"""The branches of a story: files with one JSON object per turn, appended as the game continues. Imports no torch.

On disk they are `branches/<name>.jsonl`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ..files import append_line, make_folder, write_text
from ..json_files import JsonError, parse_json

GONE = ": it was removed from the output folder, or never started; start it again"  # for a story without any branch
FIRST_BRANCH = "main"
LARGEST_BRANCH = 1 << 28  # bytes; 10,000 turns take about 4 MB
BRANCH_NAME = re.compile(rf"{FIRST_BRANCH}|branch-[0-9]{{1,6}}")
Address = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}\\Z")]


@dataclass(frozen=True)
class BranchEntry:
    """One turn of a branch: the addresses of its state and shot (None: not drawn), and its seed.

    proposed_by: the director that proposed the turn; empty if a player wrote it.
    """

    state: Address
    shot: Address | None
    seed: int
    proposed_by: str = ""

    def matches(self, other: BranchEntry) -> bool:
        """Whether both can be the same turn: the same state, and the same shot unless one has none."""
        drawn = (self.shot, self.seed) == (other.shot, other.seed)
        return self.state == other.state and (drawn or None in (self.shot, other.shot))


class Branch:
    """A branch's file and its entries, without a torn last entry.

    Every entry ends in a newline, and every write but appending is atomic, so a crash can tear only the last entry.
    ValueError names any other damaged entry, since appending after it would lose the turns that follow it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: list[BranchEntry] = []
        self._size = 0
        if not path.is_file() and path.exists():  # reading from a pipe would wait for ever
            raise ValueError(f"{path} is not a file, so it holds no turns of a story; remove it")
        try:
            texts = _texts_of(path)
        except FileNotFoundError:  # a new branch
            texts = []
        except OSError as error:
            raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
        last = max((number for number, text in enumerate(texts, start=1) if text.strip()), default=0)
        for number, text in enumerate(texts[:last], start=1):  # without blank lines that an editor added at the end
            if not text.endswith(b"\n"):  # torn
                break
            try:
                entry = parse_json(text, BranchEntry, f"{path}:{number}")
            except JsonError as error:
                raise ValueError(
                    f"{error}; this is not a turn of a story: restore this line from a backup, or delete it and all "
                    f"lines after it to continue after turn {number - 1}"
                ) from error
            self._add(entry, text)

    def starts_with(self, entries: Sequence[BranchEntry]) -> bool:
        """Whether the branch starts with these turns."""
        own = self.entries[: len(entries)]
        return len(own) == len(entries) and all(entry.matches(other) for entry, other in zip(own, entries, strict=True))

    def append(self, entry: BranchEntry, words: Mapping[str, Any]) -> None:
        """Add a turn. words: more fields, for people who read the file. ValueError if the file lost turns."""
        text = _text(entry, words)
        make_folder(self.path.parent)
        size = self.path.stat().st_size if self.path.exists() else 0
        if self._size > size:
            raise ValueError(f"{self.path} was removed or truncated while its story was open; open the story again")
        if self._size < size:  # a torn entry
            os.truncate(self.path, self._size)
        append_line(self.path, text.decode("utf-8"))
        self._add(entry, text)

    def rewrite(self, index: int, entry: BranchEntry, words: Mapping[str, Any]) -> None:
        """Replace the entry at `index` only."""
        texts = self._texts()
        texts[index] = _text(entry, words)
        self._replace(texts)
        self.entries[index] = entry

    def copy(self, path: Path, count: int) -> None:
        """Write a new branch with the first `count` entries of this one."""
        write_text(path, b"".join(self._texts()[:count]).decode("utf-8"))

    def copy_shots(self, other: Branch, count: int) -> None:
        """Take the shots of `other` for undrawn turns with the same state, among the first `count`.

        Who proposed a turn stays this branch's own.
        """
        texts = self._texts()
        pairs = list(enumerate(zip(self.entries, other.entries)))[:count]  # noqa: B905 up to the shorter branch's end
        undrawn = [index for index, (own, its) in pairs if own.shot is None and its.shot and own.state == its.state]
        if not undrawn:
            return
        drawn = {}
        for index in undrawn:
            its = other.entries[index]
            drawn[index] = replace(self.entries[index], shot=its.shot, seed=its.seed)
            texts[index] = _text(drawn[index], json.loads(texts[index]))
        self._replace(texts)
        for index, entry in drawn.items():
            self.entries[index] = entry

    def _texts(self) -> list[bytes]:
        return _texts_of(self.path)[: len(self.entries)] if self.entries else []

    def _replace(self, texts: list[bytes]) -> None:
        write_text(self.path, b"".join(texts).decode("utf-8"))
        self._size = sum(map(len, texts))

    def _add(self, entry: BranchEntry, text: bytes) -> None:
        self.entries.append(entry)
        self._size += len(text)


def branch_names(folder: Path) -> list[str]:
    """The names of the branches in a folder, oldest first."""
    names = (path.stem for path in folder.glob("*.jsonl") if BRANCH_NAME.fullmatch(path.stem))
    return sorted(names, key=lambda name: (name != FIRST_BRANCH, len(name), name))


def _texts_of(path: Path) -> list[bytes]:
    with path.open("rb") as file:  # binary files split at \n only, so only the last line can lack one
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_BRANCH:
            raise ValueError(f"{path} has {size} bytes; a branch takes at most {LARGEST_BRANCH}, so this is not one")
        return file.readlines()


def _text(entry: BranchEntry, words: Mapping[str, Any]) -> bytes:
    values = {**words, **asdict(entry)}
    if not entry.proposed_by:
        del values["proposed_by"]
    return (json.dumps(values, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")
