"""The stories in a folder: their indexes and locks, and how they are renamed, copied and deleted. Imports no torch.

Locks are files in the folder `.locks` next to the stories, so a story's folder can be moved while its lock is held.
Deleted stories are in the folder `.trash` there, and can be restored. None of this works for a story that is being
played or exported.
"""

from __future__ import annotations

import difflib
import errno
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated

import msgspec

from ..files import UNFINISHED, check_folder_name, is_part, locked, make_folder, room_for, write_text
from ..game.life import Rules
from ..game.plain import Note
from ..game.recall import Memory
from ..json_files import JsonError, read_json

FORMAT = 1  # raised when an older program could misread a story
INDEX = "story.json"
LOCKS, TRASH = ".locks", ".trash"  # folders next to the stories
FIRST_BRANCH = "main"
_TICKET = re.compile(r"(?P<time>[0-9]{1,20}) (?P<name>[^/\\]+)")
_Address = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}\\Z")]
_BranchName = Annotated[str, msgspec.Meta(pattern=f"^(?:{FIRST_BRANCH}|branch-[0-9]{{1,6}})\\Z")]


class BranchEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One turn of a branch: the addresses of its state and shot (None: not drawn), and its seed.

    proposed_by: the director that proposed the turn; empty if a player wrote it. typed: what the player typed, if the
    instruction is how it was read; unknown, notes: as in that `Reading`.
    """

    state: _Address
    shot: _Address | None
    seed: int
    proposed_by: str = ""
    typed: str = ""
    unknown: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()

    def matches(self, other: BranchEntry) -> bool:
        """Whether both can be the same turn: the same state, and the same shot unless one has none."""
        return self.state == other.state and (self.shot == other.shot or None in (self.shot, other.shot))

    def with_shot_of(self, other: BranchEntry) -> BranchEntry:
        """This turn with the other's shot, if it has none; who proposed it stays its own."""
        return self if self.shot else msgspec.structs.replace(self, shot=other.shot, seed=other.seed)


class StoryWorld(msgspec.Struct, frozen=True):
    """The world that a story was played in."""

    name: str
    fingerprint: str


class StoryIndex(msgspec.Struct, frozen=True, kw_only=True):
    """The content of story.json. branch: the current one. branches: the turns of each, the oldest branch first."""

    format: int = FORMAT
    world: StoryWorld
    branch: _BranchName = FIRST_BRANCH
    memory: Memory
    rules: Rules
    branches: dict[_BranchName, list[BranchEntry]]


def check_story_name(name: str) -> str:
    """`name`; ValueError if no story may have it."""
    if check_folder_name(name).lower() in (LOCKS, TRASH):
        raise ValueError(f"story name {name!r} is reserved for the stories' own folders; choose another name")
    return name


def story_names(root: Path | str) -> list[str]:
    """The stories below `root`, the last played first; other folders are skipped."""
    played = {}
    for index in Path(root).glob(f"*/{INDEX}"):
        with suppress(OSError, ValueError):  # no story, or removed meanwhile
            check_story_name(index.parent.name)
            read_index(index)
            played[index.parent.name] = index.stat().st_mtime_ns
    return sorted(played, key=played.__getitem__, reverse=True)


def read_index(path: Path) -> StoryIndex:
    """The index of a story; ValueError names the field that is invalid."""
    try:
        index = read_json(path, StoryIndex)
    except JsonError as error:
        raise ValueError(f"{error}; this is not the index of a story, so choose another name for the story") from error
    if index.format != FORMAT:
        raise ValueError(f"{path}: story format {index.format}, this program reads {FORMAT}; update the program")
    return index


def write_index(path: Path, index: StoryIndex) -> None:
    """Replace the index of a story at once, so that a crash or a full disk loses no turn."""
    write_text(path, msgspec.json.format(msgspec.json.encode(index), indent=1).decode("utf-8") + "\n")


def check_new(folder: Path) -> None:
    """ValueError if a folder without an index holds other files."""
    if folder.is_dir() and not all(is_part(path.name) for path in folder.iterdir()):
        raise ValueError(f"{folder} holds other files and no {INDEX}; choose another name for the story")


def check_there(root: Path, name: str) -> None:
    """ValueError, with the names of other stories, if `root` has no story of this name."""
    if (root / check_story_name(name) / INDEX).exists():
        return
    names = story_names(root)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    shown = ", ".join(map(repr, near or names[:10]))
    hint = f"did you mean {shown}?" if near else f"there are {shown}" if names else "there are no stories yet"
    raise ValueError(f"no story {name!r} in {root}; {hint}")


@contextmanager
def exclusive_access(root: Path, name: str, reading: bool = False) -> Iterator[None]:
    """Hold a story's lock; ValueError if it is held already. Removes old unfinished files of the story first.

    reading: where the lock cannot be written, as on a read-only disk, go on without it.
    """
    remedy = "wait until that ends, or choose another name"
    refusal = f"story {name!r} is being played elsewhere or exported; {remedy}"
    with ExitStack() as held:
        try:
            held.enter_context(locked(root / LOCKS / check_story_name(name), refusal))
            for part in (root / name).glob(f"**/{UNFINISHED}*"):
                if is_part(part.name) and part.is_file() and time.time() - part.stat().st_mtime > 3600:
                    part.unlink(missing_ok=True)
        except OSError as error:
            if not reading or error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise
        yield


def rename_story(root: Path, name: str, new: str) -> None:
    """Rename a story. ValueError: there is no such story, the new name is taken, or it is being played."""
    with _free(root, new), _existing(root, name):
        os.rename(root / name, root / new)


def duplicate_story(root: Path, name: str, new: str) -> None:
    """Copy a story with all its branches and films under another name; ValueError as in `rename_story`.

    After an error the copy is removed; OSError on a full disk.
    """
    with _free(root, new), _existing(root, name), room_for(root / new, "duplicate the story again"):
        make_folder(root / TRASH)
        with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=root / TRASH, ignore_cleanup_errors=True) as folder:
            _copy_folder(root / name, Path(folder, new))
            os.rename(Path(folder, new), root / new)


def trash_story(root: Path, name: str) -> str:
    """Move a story to the trash; returns its ticket there. ValueError: no such story, or it is being played."""
    with _existing(root, name):
        now = time.time_ns()
        place = root / TRASH / str(now)  # a folder, since a name next to the time could be too long for a file system
        make_folder(place)
        os.rename(root / name, place / name)
    return f"{now} {name}"


def restore_story(root: Path, ticket: str) -> str:
    """Restore a story from the trash; returns its name. ValueError: an unknown ticket, or the name is now taken."""
    match = _TICKET.fullmatch(ticket)
    time, name = match.groups() if match else ("", "gone")
    place = root / TRASH / time
    with _free(root, name, "rename that one, then restore this one"):
        if match is None or not (place / name / INDEX).is_file():
            raise ValueError("this story is no longer in the trash; look in the folder .trash next to the stories")
        os.rename(place / name, root / name)
        with suppress(OSError):  # somebody may have put a file there
            place.rmdir()
    return name


@contextmanager
def _existing(root: Path, name: str) -> Iterator[None]:
    """Hold the lock of a story; ValueError if there is none of this name."""
    check_there(root, name)
    with exclusive_access(root, name):
        check_there(root, name)  # it may have been moved before it was locked
        yield


@contextmanager
def _free(root: Path, name: str, remedy: str = "choose another name") -> Iterator[None]:
    """Hold the lock of a name that no story has; ValueError if one does."""
    with exclusive_access(root, name):
        with suppress(OSError):
            (root / name).rmdir()  # an empty folder is nobody's, and in the way
        if (root / name).exists():
            raise ValueError(f"there is a story or folder {name!r} already; {remedy}")
        yield


def _copy_folder(folder: Path, target: Path) -> None:
    """Copy a folder. Links stay links, hard ones too: shutil.copytree would make two files of a shot and its link
    `turn-00n`, continue after an error, and lose its number.
    """
    copies: dict[tuple[int, int], Path] = {}
    for path in (folder, *folder.rglob("*")):
        copy = target / path.relative_to(folder)
        if path.is_dir() and not path.is_symlink():
            copy.mkdir()
            continue
        facts = path.lstat()
        first = copies.setdefault((facts.st_dev, facts.st_ino), copy)
        with suppress(OSError):  # a disk without hard links
            if first != copy:
                os.link(first, copy)
                continue
        shutil.copy2(path, copy, follow_symlinks=False)
