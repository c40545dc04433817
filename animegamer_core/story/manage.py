"""Rename, duplicate and delete stories. Imports no torch.

Deleted ones lie in the folder `.trash` beside the stories, and can be restored. A story that is being played is
refused.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path

from ..files import check_folder_name, is_part
from .index import INDEX, LOCK, check_there, exclusive_access

TRASH = ".trash"
_TICKET = re.compile(r"[0-9]{1,20} (?P<name>[^/\\]+)")


def rename_story(root: Path, name: str, new: str) -> None:
    """Give a story another name. ValueError: there is no such story, the new name is taken, or it is being played."""
    check_there(root, name)
    _check_free(root, new)
    _move(root / name, root / new)


def duplicate_story(root: Path, name: str, new: str) -> None:
    """Copy a story with all its branches and films under another name; ValueError as in `rename_story`."""
    check_there(root, name)
    _check_free(root, new)
    place = root / TRASH / f"{time.time_ns()} {new}"  # a copy that a crash leaves here is no story
    with exclusive_access(root / name, _refusal(name)):
        shutil.copytree(root / name, place, ignore=_not_copied)
    os.rename(place, root / new)


def trash_story(root: Path, name: str) -> str:
    """Move a story to the trash; returns its ticket there. ValueError: no such story, or it is being played."""
    check_there(root, name)
    ticket = f"{time.time_ns()} {name}"
    (root / TRASH).mkdir(exist_ok=True)
    _move(root / name, root / TRASH / ticket)
    return ticket


def restore_story(root: Path, ticket: str) -> str:
    """Take a story out of the trash; returns its name. ValueError: an unknown ticket, or the name is taken by now."""
    match = _TICKET.fullmatch(ticket)
    if match is None or not (root / TRASH / ticket / INDEX).is_file():
        raise ValueError("this story is no longer in the trash; look into the folder .trash beside the stories")
    name = match["name"]
    _check_free(root, name)
    _move(root / TRASH / ticket, root / name)
    return name


def _check_free(root: Path, name: str) -> None:
    if (root / check_folder_name(name)).exists():
        raise ValueError(f"there is a story or folder {name!r} already; choose another name")


def _not_copied(_: str, names: list[str]) -> set[str]:
    """The names in a folder of a story that a copy leaves out: its lock, and unfinished files."""
    return {name for name in names if name == LOCK or is_part(name)}


def _move(folder: Path, target: Path) -> None:
    """Rename a story's folder while nobody plays it. Windows renames no folder with an open file, such as the lock."""
    with exclusive_access(folder, _refusal(folder.name)):
        if os.name != "nt":
            os.rename(folder, target)
    if os.name == "nt":
        os.rename(folder, target)


def _refusal(name: str) -> str:
    return f"story {name!r} is being played; wait until that ends, or stop it"
