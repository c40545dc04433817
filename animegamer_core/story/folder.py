"""The stories in a folder: their indexes and locks, and how they are renamed, copied and deleted. Imports no torch.

Deleted ones are in the folder `.trash` next to the stories, and can be restored. None of this works for a story that is
being played or exported.
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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import msgspec

from ..files import PART, check_folder_name, is_part, is_plain_name, locked, make_folder, room_for, write_text
from ..game.life import Rules
from ..game.recall import Memory
from ..json_files import JsonError, read_json

FORMAT = 1  # raised when an older program could misread a story
INDEX = "story.json"
LOCK = "story.lock"
TRASH = ".trash"  # folder of deleted stories next to the others
FIRST_BRANCH = "main"
LARGEST_INDEX = 1 << 28  # bytes; a branch of 10,000 turns takes about 2 MB
_TICKET = re.compile(r"(?P<time>[0-9]{1,20}) (?P<name>[^/\\]+)")
_Address = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}\\Z")]
_BranchName = Annotated[str, msgspec.Meta(pattern=f"^(?:{FIRST_BRANCH}|branch-[0-9]{{1,6}})\\Z")]


class BranchEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One turn of a branch: the addresses of its state and shot (None: not drawn), and its seed.

    proposed_by: the director that proposed the turn; empty if a player wrote it.
    """

    state: _Address
    shot: _Address | None
    seed: int
    proposed_by: str = ""

    def matches(self, other: BranchEntry) -> bool:
        """Whether both can be the same turn: the same state, and the same shot unless one has none."""
        drawn = (self.shot, self.seed) == (other.shot, other.seed)
        return self.state == other.state and (drawn or None in (self.shot, other.shot))

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
    if check_folder_name(name).lower() == TRASH:
        raise ValueError(f"story name {name!r} is reserved for the folder of deleted stories; choose another name")
    return name


def story_names(root: Path | str) -> list[str]:
    """The stories below `root`, the last played first; other folders are skipped."""
    indexes = [path for path in Path(root).glob(f"*/{INDEX}") if _is_story(path)]
    return [path.parent.name for path in sorted(indexes, key=_played_at, reverse=True)]


def read_index(path: Path) -> StoryIndex:
    """The index of a story; ValueError names the field that is invalid."""
    try:
        index = read_json(path, StoryIndex, LARGEST_INDEX)
    except JsonError as error:
        raise ValueError(f"{error}; this is not the index of a story, so choose another name for the story") from error
    if index.format != FORMAT:
        raise ValueError(f"{path}: story format {index.format}, this program reads {FORMAT}; update the program")
    return index


def write_index(path: Path, index: StoryIndex) -> None:
    """Replace the index of a story at once, so that a crash or a full disk loses no turn."""
    write_text(path, msgspec.json.format(msgspec.json.encode(index), indent=1).decode("utf-8") + "\n")


def check_new(folder: Path) -> None:
    """ValueError if a folder without an index holds files other than those of a new story."""
    ours = (LOCK, INDEX)
    if folder.is_dir() and any(path.name not in ours and not is_part(path.name) for path in folder.iterdir()):
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
def exclusive_access(folder: Path, refusal: str) -> Iterator[None]:
    """Hold the lock of a story's folder; ValueError with `refusal` if it is held already.

    Removes old unfinished files first. At the end, removes the folder if nothing was saved: before the lock is
    released, because another process may take it at once, but on Windows afterwards, because open files cannot be
    removed.
    """
    held, late = None, os.name == "nt"
    try:
        with locked(folder / LOCK, refusal):
            try:
                held = folder.stat()
            except FileNotFoundError as error:
                raise ValueError(f"story {folder.name!r} was moved or deleted meanwhile; look at the list") from error
            _check_no_links(folder)
            _remove_old_parts(folder)
            try:
                yield
            finally:
                if not late:
                    _remove_if_empty(folder, held)
    finally:
        if held is not None and late:
            _remove_if_empty(folder, held)


def _check_no_links(folder: Path) -> None:
    """ValueError for a link to a folder, since a story writes into its own only."""
    with os.scandir(folder) as entries:
        link = next((entry.name for entry in entries if entry.is_symlink() and entry.is_dir()), None)
    if link is not None:
        raise ValueError(
            f"{folder / link} is a link to another folder, and a story is written into its own only; put that folder "
            "in the link's place"
        )


def _remove_old_parts(folder: Path) -> None:
    for part in folder.glob(f"**/{PART}*"):
        if is_part(part.name) and part.is_file() and time.time() - part.stat().st_mtime > 3600:
            part.unlink(missing_ok=True)


def _remove_if_empty(folder: Path, held: os.stat_result) -> None:
    """Remove the locked folder, if it has no index. If it was moved, its name may now belong to another player."""
    try:
        if (folder / INDEX).exists() or not os.path.samestat(folder.stat(), held):
            return
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
    """When a story was played last, 0 if it was removed meanwhile."""
    try:
        return index.stat().st_mtime_ns
    except OSError:
        return 0


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
        _remove_empty(place)
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
    _remove_empty(place.parent)
    return name


def _check_free(root: Path, name: str, remedy: str = "choose another name") -> None:
    with suppress(OSError):
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
        with suppress(OSError):  # a disk without hard links
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


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _refusal(name: str) -> str:
    return f"story {name!r} is being played or exported; wait until that ends, or stop it"
