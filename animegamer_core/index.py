"""Stories in their folders: which names are allowed, which stories there are, and the index of each. Without torch."""

from __future__ import annotations

import difflib
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .files import PART, locked, write_text
from .lines import LINE_NAME

FORMAT = 1  # raised when an older program could misread a story
INDEX = "story.json"
LOCK = "story.lock"
_PORTS = (f"{port}{n}" for port in ("COM", "LPT") for n in "123456789\u00b9\u00b2\u00b3")
_DEVICES = {"CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", *_PORTS}
_NAME = re.compile(r'[^\x00-\x1f\ud800-\udfff<>:"/\\|?*]{1,80}')
_NAME_BYTES = 255  # of a folder's name on most disks; a letter takes up to 4


def check_story_name(name: str, what: str = "story") -> str:
    """`name`, if it can be a folder's name on every system and stays inside its parent; ValueError otherwise.

    what: the kind of thing that is named so, for the error.
    """
    stem = name.split(".")[0].strip().upper()
    fits = _NAME.fullmatch(name) and len(name.encode()) <= _NAME_BYTES
    if not fits or name != name.strip() or name.endswith(".") or stem in _DEVICES:
        raise ValueError(
            f"{what} name {name!r} cannot be a folder's name; use up to 80 letters, digits, - and _, with "
            "spaces between them, and none of the words that Windows keeps for devices"
        )
    return name


def story_names(root: Path | str) -> list[str]:
    """The stories below `root`, the one that was played last first; folders that hold none are passed over."""
    indexes = [path for path in Path(root).glob(f"*/{INDEX}") if _is_story(path)]
    return [path.parent.name for path in sorted(indexes, key=_played_at, reverse=True)]


def read_index(path: Path) -> dict[str, Any]:
    """The index of a story: `world` with its name and fingerprint, and `line`; ValueError if it is none."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        wanted = {"format": int, "world": dict, "line": str}
        whole = all(isinstance(values[name], kind) for name, kind in wanted.items())
        whole = whole and all(isinstance(values["world"][name], str) for name in ("name", "fingerprint"))
        whole = whole and LINE_NAME.fullmatch(values["line"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: not the index of a story; choose another name for the story") from error
    if not whole:
        raise ValueError(f"{path}: not the index of a story; choose another name for the story")
    if values["format"] != FORMAT:
        raise ValueError(f"{path}: story format {values['format']}, this program reads {FORMAT}; update the program")
    return values


def write_index(path: Path, world_name: str, fingerprint: str, line: str) -> None:
    """Write the index of a story."""
    values = {"format": FORMAT, "world": {"name": world_name, "fingerprint": fingerprint}, "line": line}
    write_text(path, json.dumps(values, indent=1) + "\n")


def check_new(folder: Path) -> None:
    """ValueError if a folder without an index holds files that are not what a story's beginning leaves there."""
    ours = (LOCK, INDEX)
    if folder.is_dir() and any(path.name not in ours and not path.name.startswith(PART) for path in folder.iterdir()):
        raise ValueError(f"{folder} holds other files and no {INDEX}; choose another name for the story")


def check_there(root: Path, name: str) -> None:
    """ValueError, with the names that are there, if no story of this name is below `root`."""
    if (root / check_story_name(name) / INDEX).exists():
        return
    names = story_names(root)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    shown = ", ".join(map(repr, near or names[:10]))
    those = f"did you mean {shown}?" if near else f"there are {shown}" if names else "none was begun there yet"
    raise ValueError(f"no story {name!r} in {root}; {those}")


@contextmanager
def alone(folder: Path, refusal: str) -> Iterator[None]:
    """Hold the lock of a story's folder; ValueError with `refusal` while anybody else does. Leftovers are swept first.

    The folder of a story that was not begun goes when the lock does: before it is given back, since another may take it
    at once; on Windows after that, where a file that is open cannot be removed.
    """
    held, late = False, os.name == "nt"
    try:
        with locked(folder / LOCK, refusal):
            held = True
            _sweep(folder)
            try:
                yield
            finally:
                if not late:
                    _remove_unbegun(folder)
    finally:
        if held and late:
            _remove_unbegun(folder)


def _sweep(folder: Path) -> None:
    """Take away what crashed processes left unfinished more than an hour ago; who holds the lock writes nothing now."""
    for part in folder.glob(f"**/{PART}*"):
        if part.is_file() and time.time() - part.stat().st_mtime > 3600:
            part.unlink(missing_ok=True)


def _remove_unbegun(folder: Path) -> None:
    if (folder / INDEX).exists():
        return
    try:
        (folder / LOCK).unlink(missing_ok=True)
        folder.rmdir()
    except OSError:
        return


def _is_story(index: Path) -> bool:
    try:
        check_story_name(index.parent.name)
        read_index(index)
    except (OSError, ValueError):
        return False
    return True


def _played_at(index: Path) -> int:
    return max(path.stat().st_mtime_ns for path in (index, *index.parent.glob("lines/*.jsonl")))
