"""A saved game: a story on disk, content-addressed, so a turn is never computed twice.

    story.json             the story's world, and its branches: state, shot and seed of each turn
    turns/<address>.*      a predicted state: its record (JSON) and its representation (safetensors)
    shots/<address>.*      a drawn shot: its record and its clip
    openings/<address>.*   an opening: the stats, the representation of a picture, and its clip, which may be missing
    turn-001.mp4 ...       the clips of the current branch

A state's address includes its parent's, so branches share their turns. Files are written in the order content, record,
index, each at once, so a crash or a full disk loses the turn in progress at most. Reading the index imports no torch,
and opening a story writes nothing.
"""

from __future__ import annotations

import filecmp
import itertools
import os
import re
import shutil
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from ..files import replacing
from ..game.life import PUBLISHED_RULES, Rules
from ..game.plain import Reading
from ..game.recall import OPENING, Memory
from ..game.state import CACHED_TURNS, GameSession, GameState, Turn, clean_text
from ..json_files import to_type
from ..messages import shortened
from .content_store import ContentStore, read_representation, state_of, write_representation
from .folder import (
    FIRST_BRANCH,
    INDEX,
    BranchEntry,
    StoryIndex,
    StoryWorld,
    check_new,
    check_story_name,
    check_there,
    exclusive_access,
    read_index,
    write_index,
)
from .turn import OpeningKey, ShotKey, StateKey, opening_address, opening_key, with_opening_address

if typing.TYPE_CHECKING:
    from torch import Tensor


OPENING_CLIP = ".mp4"  # suffix of the clip of an opening


class Story:
    """A story's folder and its current branch."""

    def __init__(self, folder: Path, world_name: str, fingerprint: str, index: StoryIndex | None = None) -> None:
        """index: None for a story that has not started yet. memory, rules: how its turns are played by default, and its
        stats' rules; None before it starts.
        """
        self.folder = folder
        self.file_tags: dict[str, str] = {}  # text fields of the videos that are written from here on
        self.world_name = world_name
        self.fingerprint = fingerprint
        self.memory: Memory | None = None
        self.rules: Rules | None = None
        self.branch = FIRST_BRANCH if index is None else index.branch
        self._turns: dict[str, list[BranchEntry]] = {}
        self._on_disk: StoryIndex | None = None
        if index is not None:
            self._take(index)
        self.states = ContentStore(folder / "turns", StateKey, ".safetensors")
        self.shots = ContentStore(folder / "shots", ShotKey, ".mp4")
        self.openings = ContentStore(folder / "openings", OpeningKey, ".safetensors")

    @classmethod
    def open(cls, root: Path | str, name: str, world_name: str, fingerprint: str) -> Story:
        """The story `name` below `root`; a new one is written with its first turn.

        ValueError: an invalid name, a story of another world, a folder with other files.
        """
        folder = Path(root) / check_story_name(name)
        if not (folder / INDEX).exists():
            check_new(folder)
            return cls(folder, world_name, fingerprint)
        return cls(folder, world_name, fingerprint, read_index(folder / INDEX))

    @classmethod
    def read(cls, root: Path | str, name: str) -> Story:
        """An existing story of any world; ValueError lists the existing names if there is none."""
        check_there(Path(root), name)
        folder = Path(root) / name
        index = read_index(folder / INDEX)
        return cls(folder, index.world.name, index.world.fingerprint, index)

    @property
    def name(self) -> str:
        """The story's name, which is its folder's."""
        return self.folder.name

    @property
    def entries(self) -> list[BranchEntry]:
        """The turns of the branch, from turn 1."""
        return self._turns.get(self.branch, [])

    @contextmanager
    def lock(self, reading: bool = False) -> Iterator[None]:
        """Hold the story's lock; ValueError if it is held already. Reads the branch again, which may have changed.

        reading: as in `exclusive_access`.
        """
        with exclusive_access(self.folder.parent, self.name, reading):
            if (self.folder / INDEX).exists():
                self._take(read_index(self.folder / INDEX))
            yield

    def version(self) -> str:
        """A text that changes whenever the story's index does."""
        found = (self.folder / INDEX).stat()
        return f"{found.st_mtime_ns}:{found.st_size}:{found.st_ino}"

    def branches(self) -> list[str]:
        """The names of the story's branches, oldest first."""
        return list(self._turns)

    def use(self, branch: str) -> None:
        """Continue with another branch; it becomes the current one on disk with the next turn."""
        if branch not in self._turns:
            gone = ": it was removed from the output folder, or never started; start it again"
            known = f"; its branches are {', '.join(self._turns)}" if self._turns else gone
            raise ValueError(f"story {self.name!r} has no branch {shortened(repr(branch), 80)}{known}")
        self.branch = branch

    def session(self, count: int, window: int | None, memory: Memory | None = None) -> GameSession:
        """The first `count` turns of the branch, without representations (see `load_turn` and `load_session`).

        memory: None is the story's own.
        """
        if not 0 <= count <= len(self.entries):
            raise ValueError(
                f"branch {self.branch!r} of this story has {len(self.entries)} turns; cannot continue after turn "
                f"{count}"
            )
        rules = self.rules or PUBLISHED_RULES
        session = self._with_opening(GameSession((), window, {}, memory or self.memory, rules))
        turns, character = list(session.turns), session.character
        for number, entry in enumerate(self.entries[:count], start=1):
            state, key = self._known(entry.state)
            text = clean_text(key.instruction)  # the file may be somebody else's
            turn = Turn(number, text, entry.seed, state, character, entry.state, key.window, key.recalled)
            turns.append(turn.counted_by(rules))
            character = turns[-1].character
        return replace(session, turns=tuple(turns))

    def load_session(self, session: GameSession) -> GameSession:
        """The session with the representations of its opening and of its last turns, as right after playing them."""
        first = session.next_number - max(CACHED_TURNS, session.window or 0)
        kept = {OPENING, *range(first, session.next_number)}
        turns = (self.load_turn(turn) if turn.number in kept else turn for turn in session.turns)
        return replace(session, turns=tuple(turns))

    def find_state(self, address: str) -> GameState | None:
        """The predicted state of an address, without its representation; None if it is unknown or damaged."""
        record = self.states.find(address)
        return None if record is None else state_of(record)

    def put_state(self, key: StateKey, state: GameState) -> str:
        """Store a prediction; returns its address."""
        self._write_first_index()
        values = {"motion": state.motion, "change": dict(state.change), "raw_choices": list(state.raw_choices)}
        return self.states.put(key, values, partial(write_representation, state.representation))

    def put_opening(self, session: GameSession) -> GameSession:
        """Store a session's opening, if it has one; returns the session with the address on its picture."""
        address, picture = opening_address(self.fingerprint, session), session.picture
        if address is not None and self.openings.find(address) is None:
            if picture is not None and picture.state.representation is None:
                raise ValueError(
                    "the representation of the opening picture is not in memory or in the story; encode it again"
                )
            self._write_first_index()
            write = partial(write_representation, None if picture is None else picture.state.representation)
            self.openings.put(opening_key(self.fingerprint, session), {}, write)
        if address is not None and picture is not None and picture.clip is not None:
            from ..media.video import write_clip

            tags = {"title": "turn 0", "comment": picture.instruction} | self.file_tags
            path = self.openings.folder / f"{address}{OPENING_CLIP}"
            write_clip(path, picture.clip.frames, picture.clip.fps, tags)
        return with_opening_address(self.fingerprint, session)

    def opening_clip(self, session: GameSession) -> Path | None:
        """The clip of a session's opening, turn 0; None if there is none."""
        if session.picture is None or session.picture.address is None:
            return None
        path = self.openings.folder / f"{session.picture.address}{OPENING_CLIP}"
        return path if path.is_file() else None

    def load_turn(self, turn: Turn) -> Turn:
        """The turn with its representation, which is read from disk if it is not in memory."""
        if turn.state.representation is not None or turn.address is None:
            return turn
        return replace(turn, state=replace(turn.state, representation=self.read_representation(turn.address)))

    def read_representation(self, address: str) -> Tensor:
        """The (N, D) representation of a state or opening picture, on the CPU; ValueError if missing or damaged."""
        store = self.states if self.openings.record(address) is None else self.openings
        if store.find(address) is None:
            raise self._lost(f"turn {address[:12]}", "play the game again to restore it")
        return read_representation(store.path(address))

    def add_turn(
        self,
        turn: Turn,
        shot: str | None,
        keep_later: bool = False,
        proposed_by: str = "",
        reading: Reading | None = None,
    ) -> Path | None:
        """Make `turn` with this shot the one of its number in the branch; returns its clip `turn-00n`, if drawn.

        If the branch has the same turn, an undrawn one gets this shot. If it has another turn there, it stays, and play
        continues in another branch: one that already has these turns, one that ends before this turn, or a new one. If
        it ends there, play continues in a branch that already has these turns, if any, so that no two become equal.
        keep_later: a new branch for another shot of the same state gets the later turns too. proposed_by: the director
        that proposed it. reading: how what was typed was read. An existing turn keeps its own.
        """
        assert turn.address is not None
        index, there = turn.number - 1, self.entries[turn.number - 1 : turn.number]
        assert len(self.entries) >= index, f"turn {turn.number} follows {len(self.entries)} turns"
        same_state = any(known.state == turn.address for known in there)
        if same_state:
            entry = msgspec.structs.replace(there[0], shot=shot, seed=turn.seed)
        else:
            said = reading or Reading(turn.instruction)
            entry = BranchEntry(turn.address, shot, turn.seed, proposed_by, said.typed, said.unknown, said.notes)
        before = self.entries[:index]
        wanted = [*before, entry, *(self.entries[index + 1 :] if keep_later and same_state else ())]
        fits = [lambda turns: _starts_with(turns, wanted)]
        if not (keep_later and same_state):
            fits.append(lambda turns: len(turns) == index and _starts_with(turns, before))
        self._go_on_with(wanted, fits)
        self._make_current()
        return None if shot is None else self._publish(turn.number, shot)

    def end_branch(self, count: int) -> None:
        """End the branch after `count` turns and publish its clips; a longer one stays, and another becomes current."""
        if count < len(self.entries):
            first = self.entries[:count]
            self._go_on_with(first, [lambda turns: len(turns) == count and _starts_with(turns, first)])
        if (self.folder / INDEX).exists():
            self._make_current()
        self._publish_all()

    def clips(self) -> dict[int, Path]:
        """The clips of the branch: turn number -> file, for the turns that are drawn."""
        numbered = enumerate(self.entries, start=1)
        return {number: self._clip_path(number) for number, entry in numbered if entry.shot is not None}

    def _with_opening(self, session: GameSession) -> GameSession:
        """An empty session with the opening of the branch's first turn."""
        first = self.entries[0].state if self.entries else None
        if first is None or (self.states.record(first) is None and not self.openings.folder.exists()):
            return session  # without openings, a lost first turn had none either, and playing restores it
        parent = self._known(first)[1].parent
        if parent is None:
            return session
        record = self.openings.record(parent)
        if record is None:
            raise self._lost(f"the game's opening {parent[:12]}", "start the game again")
        key = to_type(record["key"], OpeningKey, parent)
        session = replace(session, opening=key.stats)
        if key.picture is None:
            return session
        session = session.open_with(clean_text(key.text), GameState.of_picture(None))
        return replace(session, turns=(replace(session.turns[0], address=parent),))

    def _known(self, address: str) -> tuple[GameState, StateKey]:
        """The state of an address, without its representation, and its key."""
        record = self.states.record(address)
        if record is None:
            raise self._lost(f"turn {address[:12]}", "play the game's file again to restore it")
        return state_of(record), to_type(record["key"], StateKey, address)

    def _lost(self, what: str, remedy: str) -> ValueError:
        return ValueError(f"{self.folder}: {what}... is missing or damaged; {remedy}")

    def _clip_path(self, number: int) -> Path:
        return self.folder / f"turn-{number:03d}{self.shots.suffix}"

    def _publish(self, number: int, shot: str) -> Path:
        """Link the shot's clip as `turn-00n`, or copy it if the disk has no hard links."""
        source, clip = self.shots.path(shot), self._clip_path(number)
        same = clip.exists() and (os.path.samefile(source, clip) or filecmp.cmp(source, clip, shallow=False))
        if not same:
            with replacing(clip) as part:
                try:
                    os.link(source, part)
                except OSError:  # a disk without hard links
                    shutil.copyfile(source, part)
        return clip

    def _publish_all(self) -> None:
        """Publish the clips of the branch and remove those of other branches. A clip whose shot is lost stays."""
        drawn = {number: entry.shot for number, entry in enumerate(self.entries, start=1) if entry.shot is not None}
        for number, shot in drawn.items():
            if self.shots.record(shot) is not None:
                self._publish(number, shot)
        for clip in self.folder.glob(f"turn-*{self.shots.suffix}"):
            named = re.fullmatch(r"turn-([0-9]{3,})", clip.stem)
            if named and int(named[1]) not in drawn:
                clip.unlink()

    def _take(self, index: StoryIndex) -> None:
        """Know what is on disk; ValueError for a story of another world."""
        if index.world.fingerprint != self.fingerprint:
            played, name, fingerprint = index.world, self.world_name, self.fingerprint
            raise ValueError(
                f"story {self.name!r} was played in world {played.name!r} ({played.fingerprint[:8]}), this is {name!r} "
                f"({fingerprint[:8]}); choose another name, or that world and its profile"
            )
        self.memory, self.rules, self._turns, self._on_disk = index.memory, index.rules, dict(index.branches), index

    def _go_on_with(self, wanted: list[BranchEntry], fits: Sequence[Callable[[list[BranchEntry]], bool]]) -> None:
        """Switch to the first branch that fits, this one preferred, or to a new one, and give it these turns.

        Turns that it has already get the shots that they lack.
        """
        names = [self.branch, *self._turns]
        new = next(name for number in itertools.count(2) if (name := f"branch-{number}") not in self._turns)
        self.branch = next((name for fit in fits for name in names if fit(self._turns.get(name, []))), new)
        shared = [own.with_shot_of(other) for own, other in zip(self.entries, wanted)]  # noqa: B905 up to the shorter
        self._turns[self.branch] = [*shared, *self.entries[len(shared) :], *wanted[len(shared) :]]

    def _write_first_index(self) -> None:
        """Write the index of a new story, before any other file."""
        if not (self.folder / INDEX).exists():
            self._write_index()

    def _make_current(self) -> None:
        """Write the index, and publish the clips of this branch if another one was current."""
        before = self._on_disk
        self._write_index()
        if before is None or before.branch != self.branch:
            self._publish_all()

    def _write_index(self) -> None:
        """Write the index, unless it is on disk as it is."""
        path, world = self.folder / INDEX, StoryWorld(self.world_name, self.fingerprint)
        if self._on_disk is not None and not path.exists():
            raise ValueError(f"{self.folder} was removed while its story was open; open the story again")
        memory, rules = self.memory or Memory(), self.rules or PUBLISHED_RULES
        index = StoryIndex(world=world, branch=self.branch, memory=memory, rules=rules, branches=dict(self._turns))
        if index != self._on_disk:
            write_index(path, index)
            self._on_disk = index


def _starts_with(turns: Sequence[BranchEntry], first: Sequence[BranchEntry]) -> bool:
    """Whether a branch starts with these turns."""
    return len(turns) >= len(first) and all(map(BranchEntry.matches, turns, first))
