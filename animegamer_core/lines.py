"""The lines of a story: one json object a turn, appended as the game goes on. Nothing here imports torch."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .files import write_text

GONE = ": it was removed from the output folder, or never begun; begin it anew"  # of a story without any line
FIRST_LINE = "main"
LINE_NAME = re.compile(rf"{FIRST_LINE}|line-[0-9]{{1,6}}")
_ADDRESS = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class LineEntry:
    """One turn of a line: the addresses of its state and shot (None: not drawn), and its seed."""

    state: str
    shot: str | None
    seed: int

    def meets(self, other: LineEntry) -> bool:
        """Whether both can be the same turn of one line: the same state, and no two different shots of it."""
        return self.state == other.state and (self == other or None in (self.shot, other.shot))


class Line:
    """A line's file and its entries, without a last one that a crash tore off.

    Entries end in a newline, and all but appending replaces the file at once: a crash leaves no other damage.
    ValueError names whatever else is no entry, since to write after it would be to lose the turns that follow it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: list[LineEntry] = []
        self._whole_bytes = 0
        texts = _texts_of(path) if path.exists() else []
        last = max((number for number, text in enumerate(texts, start=1) if text.strip()), default=0)
        for number, text in enumerate(texts[:last], start=1):  # an editor's blank lines at the end are left out
            if not text.endswith(b"\n"):  # torn
                break
            entry = _entry_of(text)
            if entry is None:
                raise ValueError(
                    f"{path}:{number}: not a turn of a story (state, shot and seed); put this line right from a copy, "
                    f"or take it and those after it out of the file, to go on after turn {number - 1}"
                )
            self._keep(entry, text)

    def goes(self, way: Sequence[LineEntry]) -> bool:
        """Whether it goes all of this way, and perhaps on."""
        own = self.entries[: len(way)]
        return len(own) == len(way) and all(entry.meets(other) for entry, other in zip(own, way, strict=True))

    def append(self, entry: LineEntry, words: Mapping[str, Any]) -> None:
        """Add a turn; `words` are for people who read the file. ValueError if what was read of it is gone."""
        text = _text(entry, words)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._whole_bytes > (self.path.stat().st_size if self.path.exists() else 0):
            raise ValueError(f"{self.path} was removed or cut short while its story was open; open it again")
        with self.path.open("r+b" if self.path.exists() else "wb") as file:
            file.truncate(self._whole_bytes)
            file.seek(self._whole_bytes)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        self._keep(entry, text)

    def rewrite(self, index: int, entry: LineEntry, words: Mapping[str, Any]) -> None:
        """Replace the entry at `index`, and keep those after it."""
        texts = self._texts()
        texts[index] = _text(entry, words)
        self._replace(texts)
        self.entries[index] = entry

    def copy(self, path: Path, count: int) -> None:
        """Write a new line of the first `count` entries of this one."""
        write_text(path, b"".join(self._texts()[:count]).decode("utf-8"))

    def fill(self, other: Line, count: int) -> None:
        """Take the shots of `other` for turns among the first `count` that both hold and this one without a shot."""
        texts, others = self._texts(), other._texts()
        pairs = list(enumerate(zip(self.entries, other.entries)))[:count]  # noqa: B905 the shorter line decides
        open_ones = [index for index, (own, its) in pairs if own.shot is None and its.shot and own.state == its.state]
        if not open_ones:
            return
        for index in open_ones:
            texts[index] = others[index]
        self._replace(texts)
        for index in open_ones:
            self.entries[index] = other.entries[index]

    def _texts(self) -> list[bytes]:
        return _texts_of(self.path)[: len(self.entries)] if self.entries else []

    def _replace(self, texts: list[bytes]) -> None:
        write_text(self.path, b"".join(texts).decode("utf-8"))
        self._whole_bytes = sum(map(len, texts))

    def _keep(self, entry: LineEntry, text: bytes) -> None:
        self.entries.append(entry)
        self._whole_bytes += len(text)


def line_names(folder: Path) -> list[str]:
    """The names of the lines in a folder, oldest first."""
    names = (path.stem for path in folder.glob("*.jsonl") if LINE_NAME.fullmatch(path.stem))
    return sorted(names, key=lambda name: (name != FIRST_LINE, len(name), name))


def _texts_of(path: Path) -> list[bytes]:
    with path.open("rb") as file:  # which parts lines at \n alone, so that only the last one can be without
        return file.readlines()


def _text(entry: LineEntry, words: Mapping[str, Any]) -> bytes:
    values = {**words, **asdict(entry)}
    return (json.dumps(values, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")


def _entry_of(text: bytes) -> LineEntry | None:
    try:
        values = json.loads(text)
        entry = LineEntry(values["state"], values["shot"], values["seed"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    hashes = [entry.state] if entry.shot is None else [entry.state, entry.shot]
    sound = all(isinstance(item, str) and _ADDRESS.fullmatch(item) for item in hashes)
    return entry if sound and isinstance(entry.seed, int) else None
