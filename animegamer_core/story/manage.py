"""Rename, duplicate and delete stories. Imports no torch.

Deleted ones are in the folder `.trash` next to the stories, and can be restored. This fails for a story that is being
played or exported.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

from ..files import PART, is_part, is_plain_name, make_folder, room_for
from .index import INDEX, LOCK, TRASH, check_story_name, check_there, exclusive_access

_TICKET = re.compile(r"(?P<time>[0-9]{1,20}) (?P<name>[^/\\]+)")


def rename_story(root: Path, name: str, new: str) -> None:
    """Rename a story. ValueError: there is no such story, the new name is taken, or it is being played."""
    check_there(root, name)
    _check_free(root, new)
    _move(root / name, root / new)


def duplicate_story(root: Path, name: str, new: str) -> None:
    """Copy a story with all its branches and films under another name; ValueError as in `rename_story`.

    After an error the copy is removed; OSError on a full disk.
    """
    check_there(root, name)
    _check_free(root, new)
    make_folder(root / TRASH)
    temporary = tempfile.TemporaryDirectory(prefix=PART, dir=root / TRASH, ignore_cleanup_errors=True)
    with room_for(root / new, "duplicate the story again"), temporary as folder:
        with exclusive_access(root / name, _refusal(name)):
            check_there(root, name)  # it may have been moved before it was locked
            _copy_folder(root / name, Path(folder, new), {})
        _rename(Path(folder, new), root / new)


def trash_story(root: Path, name: str) -> str:
    """Move a story to the trash; returns its ticket there. ValueError: no such story, or it is being played."""
    check_there(root, name)
    now = time.time_ns()
    place = root / TRASH / str(now)  # a folder, since a name next to the time could be too long for a file system
    make_folder(place)
    try:
        _move(root / name, place / name)
    finally:
        _remove_if_empty(place)
    return f"{now} {name}"


def restore_story(root: Path, ticket: str) -> str:
    """Restore a story from the trash; returns its name. ValueError: an unknown ticket, or the name is now taken."""
    match = _TICKET.fullmatch(ticket)
    known = match is not None and is_plain_name(match["name"])
    place = root / TRASH / match["time"] / match["name"] if match is not None and known else None
    if match is None or place is None or not os.path.isfile(place / INDEX):
        raise ValueError("this story is no longer in the trash; look in the folder .trash next to the stories")
    name = match["name"]
    _check_free(root, name, "rename that one, then restore this one")
    _move(place, root / name)
    _remove_if_empty(place.parent)
    return name


def _check_free(root: Path, name: str, remedy: str = "choose another name") -> None:
    with contextlib.suppress(OSError):
        (root / check_story_name(name)).rmdir()  # an empty folder is nobody's, and in the way
    if (root / name).exists():
        raise ValueError(_taken(name, remedy))


def _taken(name: str, remedy: str = "choose another name") -> str:
    return f"there is a story or folder {name!r} already; {remedy}"


def _copy_folder(folder: Path, target: Path, copies: dict[tuple[int, int], Path]) -> None:
    """Copy a story's folder without its lock and unfinished files. copies: of files with hard links, by disk and inode.

    ValueError for links, which could name anything of any size, and for special files.
    shutil.copytree would make two files of a shot and its link `turn-00n`, continue after an error, and lose its
    number.
    """
    target.mkdir()
    for path in folder.iterdir():
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            what = "a link" if path.is_symlink() else "not a file"
            raise ValueError(f"{path} is {what}, so it is not copied; remove it, or put what it names in its place")
        if path.is_dir():
            _copy_folder(path, target / path.name, copies)
        elif path.name != LOCK and not is_part(path.name):
            _copy_file(path, target / path.name, copies)


def _copy_file(path: Path, target: Path, copies: dict[tuple[int, int], Path]) -> None:
    facts = path.stat()
    first = copies.setdefault((facts.st_dev, facts.st_ino), target) if facts.st_nlink > 1 else target
    if first != target:
        with contextlib.suppress(OSError):  # a disk without hard links
            return os.link(first, target)
    shutil.copy2(path, target)


def _move(folder: Path, target: Path) -> None:
    """Rename a story's folder unless it is being played. Windows cannot rename one with an open file (the lock)."""
    with exclusive_access(folder, _refusal(folder.name)):
        if not (folder / INDEX).is_file():
            raise ValueError(f"story {folder.name!r} was moved or deleted meanwhile; look at the list again")
        if os.name != "nt":
            _rename(folder, target)
    if os.name == "nt":
        _rename(folder, target)


def _rename(folder: Path, target: Path) -> None:
    try:
        os.rename(folder, target)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):  # the name was taken after it was checked
            raise ValueError(_taken(target.name)) from error
        raise


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _refusal(name: str) -> str:
    return f"story {name!r} is being played or exported; wait until that ends, or stop it"
