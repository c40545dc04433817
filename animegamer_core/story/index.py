"""The stories in a folder, their indexes and their locks. Imports no torch."""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec

from ..files import PART, check_folder_name, is_part, locked, write_text
from ..json_files import JsonError, read_json
from ..life import Rules
from ..recall import Memory

FORMAT = 1  # raised when an older program could misread a story
INDEX = "story.json"
LOCK = "story.lock"
TRASH = ".trash"  # folder of deleted stories next to the others
FIRST_BRANCH = "main"
LARGEST_INDEX = 1 << 28  # bytes; a branch of 10,000 turns takes about 2 MB
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
