"""The save game: a story on disk, content-addressed, so that a known turn is never computed twice.

    story.json             the story's world, and the name of its current line
    lines/<name>.jsonl     one entry a turn: state, shot and seed, with a few words for people to read
    turns/<address>.*      a predicted state: its record (json) and its representation (safetensors)
    shots/<address>.*      a drawn shot: its record and its clip
    openings/<address>.*   how a game begins that does not begin from nothing: a picture's representation, the gauges
    turn-001.mp4 ...       the clips of the current line
    story.lock             held by whoever plays
A state's address covers its parent's, so the tree of all turns is in the records, and branching is another line over
the same turns. The order of writes makes a crash harmless: content, its record, then the line's entry, so that at most
the turn in progress is lost. Reading the index imports no torch, and opening a story writes nothing.
"""

from __future__ import annotations

import filecmp
import itertools
import os
import re
import shutil
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path

from .files import replacing
from .index import INDEX, alone, check_new, check_story_name, check_there, read_index, write_index
from .lines import FIRST_LINE, GONE, Line, LineEntry, line_names
from .shelf import OpeningKey, Shelf, ShotKey, StateKey, opening_address, opening_key, with_opening_address
from .state import KEPT_TURNS, CharacterState, GameSession, GameState, StateChange, Turn

if typing.TYPE_CHECKING:
    from torch import Tensor


class Story:
    """A story's folder and the line of it that play goes on with."""

    def __init__(self, folder: Path, world_name: str, fingerprint: str, line: str = FIRST_LINE) -> None:
        self.folder = folder
        self.world_name = world_name
        self.fingerprint = fingerprint
        self.states = Shelf(folder / "turns", StateKey, (".safetensors",))
        self.shots = Shelf(folder / "shots", ShotKey, (".mp4", ".safetensors"))
        self.openings = Shelf(folder / "openings", OpeningKey, (".safetensors",))
        self._turn_to(line)

    @classmethod
    def open(cls, root: Path | str, name: str, world_name: str, fingerprint: str) -> Story:
        """The story `name` below `root`, which its first turn begins if it is new.

        ValueError: a bad name, another world's story, a folder of something else.
        """
        folder = Path(root) / check_story_name(name)
        if not (folder / INDEX).exists():
            check_new(folder)
            return cls(folder, world_name, fingerprint)
        story = cls.read(root, name)
        _check_world(story, world_name, fingerprint)
        return story

    @classmethod
    def read(cls, root: Path | str, name: str) -> Story:
        """A story that is there, whatever its world; ValueError lists the names that are there if this one is not."""
        check_there(Path(root), name)
        folder = Path(root) / name
        values = read_index(folder / INDEX)
        return cls(folder, values["world"]["name"], values["world"]["fingerprint"], values["line"])

    @property
    def name(self) -> str:
        """The story's name, which is its folder's."""
        return self.folder.name

    @property
    def entries(self) -> list[LineEntry]:
        """The turns of the line, from turn 1."""
        return self._line.entries

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Play alone: ValueError while anybody else does. The line is read again, since others may have played it."""
        refusal = f"story {self.name!r} is being played elsewhere; wait until that ends, or choose another name"
        with alone(self.folder, refusal):
            if (self.folder / INDEX).exists():
                _check_world(self.read(self.folder.parent, self.name), self.world_name, self.fingerprint)
            self._turn_to(self.line)
            yield

    def version(self) -> str:
        """A text that changes whenever the story's index or one of its lines does."""
        paths = [self.folder / INDEX, *sorted((self.folder / "lines").glob("*.jsonl"))]
        return " ".join(f"{path.name}:{path.stat().st_mtime_ns}:{path.stat().st_size}" for path in paths)

    def lines(self) -> list[str]:
        """The names of the story's lines, oldest first."""
        return line_names(self.folder / "lines")

    def use(self, line: str) -> None:
        """Go on with another line. The folder names it as the current one with the next turn that is entered."""
        if line not in self.lines():
            known = "; its lines are " + ", ".join(self.lines()) if self.lines() else GONE
            raise ValueError(f"story {self.name!r} has no line {line!r}{known}")
        self._turn_to(line)

    def session(self, count: int, window: int) -> GameSession:
        """The first `count` turns of the line, without their representations (see `recall` and `held`)."""
        if not 0 <= count <= len(self.entries):
            raise ValueError(
                f"this story has {len(self.entries)} turns in its line {self.line!r}; cannot go on after turn {count}"
            )
        session = self._opened(GameSession((), window))
        turns, character = list(session.turns), session.character
        for number, entry in enumerate(self.entries[:count], start=1):
            state, key = self._known(entry.state)
            character = character.after(state.change)
            turns.append(Turn(number, key["instruction"], entry.seed, state, character, entry.state, key["window"]))
        return replace(session, turns=tuple(turns))

    def held(self, session: GameSession) -> GameSession:
        """The session with the representations that it would hold had it just been played: those of the last turns."""
        kept = max(KEPT_TURNS, session.window or 0)
        first = max(0, len(session.turns) - kept)
        return replace(session, turns=(*session.turns[:first], *map(self.recall, session.turns[first:])))

    def find_state(self, address: str) -> GameState | None:
        """The predicted state of an address, without its representation; None if it is not known or damaged."""
        return _state_of(self.states.find(address))

    def put_state(self, key: StateKey, state: GameState) -> str:
        """Store a prediction; returns its address."""
        values = {"motion": state.motion, "change": asdict(state.change), "said": list(state.said)}
        self._begin()
        return self.states.put(key, ".safetensors", values, _writer(state.representation))

    def put_opening(self, session: GameSession) -> GameSession:
        """Store how a session begins, if it is not from nothing; returns it with the picture's address."""
        address, picture = opening_address(self.fingerprint, session), session.picture
        if address is not None and self.openings.find(address) is None:
            if picture is not None and picture.state.representation is None:
                raise ValueError("this game let its opening picture go, and the story does not know it; open it anew")
            self._begin()
            representation = None if picture is None else picture.state.representation
            self.openings.put(opening_key(self.fingerprint, session), ".safetensors", {}, _writer(representation))
        return with_opening_address(self.fingerprint, session)

    def recall(self, turn: Turn) -> Turn:
        """The turn with its representation, read again by its address where the session let it go."""
        if turn.state.representation is not None or turn.address is None:
            return turn
        return replace(turn, state=replace(turn.state, representation=self.read_representation(turn.address)))

    def read_representation(self, address: str) -> Tensor:
        """The (N, D) representation of a known state or opening picture, on the CPU; ValueError if it is damaged."""
        from safetensors.torch import load_file

        opens = self.openings.record(address) is not None
        shelf = self.openings if opens else self.states
        if shelf.find(address) is None:
            raise self._lost_opening(address) if opens else self._lost_turn(address)
        return load_file(shelf.path(address))["representation"].clone()  # else a view, by which Windows holds the file

    def enter(self, turn: Turn, shot: str | None, keep_later: bool = False) -> Path | None:
        """Make `turn` with this shot the one of its number in the line; returns its clip `turn-00n`, if drawn.

        A turn that the line holds without a shot gets this one; without a shot, the line keeps what it has. Where it
        holds another turn, it is kept and another line goes on: one that goes this way already or ends where it would
        begin, or a new one. Where it ends, one that goes this way already goes on, so that no two become alike. With
        `keep_later`, a new line of another shot of the same state has the later turns too.
        """
        assert turn.address is not None
        index, entry = turn.number - 1, LineEntry(turn.address, shot, turn.seed)
        assert len(self.entries) >= index, f"turn {turn.number} follows {len(self.entries)} turns"
        words = {"turn": turn.number, "instruction": turn.instruction, "motion": turn.state.motion}
        words |= asdict(turn.character)
        self._begin()
        if self.entries[index:] and not self.entries[index].meets(entry):
            self._branch(entry, index, keep_later and self.entries[index].state == entry.state, words)
        elif len(self.entries) == index:
            self._turn_to_one([lambda line: line.goes([*self.entries, entry])], index)
        if len(self.entries) == index:
            self._line.append(entry, words)
        elif shot is not None and self.entries[index].shot is None:
            self._line.rewrite(index, entry, words)
        self._make_current()
        return None if shot is None else self._publish(turn.number, shot)

    def settle(self, count: int) -> None:
        """End the line after `count` turns; a longer one is kept, and another goes on. Its clips are published."""
        if count < len(self.entries):
            kept = self.entries[:count]
            self._switch([lambda line: len(line.entries) == count and line.goes(kept)], count)
        if (self.folder / INDEX).exists():
            self._make_current()
        self._publish_all()

    def clips(self) -> dict[int, Path]:
        """The clips of the line: turn number -> file, without the turns that were not drawn."""
        numbered = enumerate(self.entries, start=1)
        return {number: self._clip_path(number, entry.shot) for number, entry in numbered if entry.shot is not None}

    def _opened(self, session: GameSession) -> GameSession:
        """An empty session, begun as the line's first turn says."""
        first = self.entries[0].state if self.entries else None
        if first is None or (self.states.record(first) is None and not self.openings.folder.exists()):
            return session  # a lost first turn of a story without openings began from nothing: playing restores it
        parent = self._known(first)[1]["parent"]
        if parent is None:
            return session
        record = self.openings.record(parent)
        if record is None:
            raise self._lost_opening(parent)
        key = OpeningKey(**record["key"])
        session = replace(session, opening=CharacterState(key.stamina, key.social, key.entertainment))
        if key.picture is None:
            return session
        session = session.open_with(key.text, GameState.of_picture(None))
        return replace(session, turns=(replace(session.turns[0], address=parent),))

    def _known(self, address: str) -> tuple[GameState, dict[str, typing.Any]]:
        """The state of an address, without its representation, and what decided it."""
        record = self.states.record(address)
        state = _state_of(record)
        if record is None or state is None:
            raise self._lost_turn(address)
        return state, record["key"]

    def _lost_turn(self, address: str) -> ValueError:
        return ValueError(
            f"{self.folder}: turn {address[:12]}... is missing or damaged; play the game's file again to restore it"
        )

    def _lost_opening(self, address: str) -> ValueError:
        return ValueError(f"{self.folder}: the game's opening {address[:12]}... is missing or damaged; open it anew")

    def _clip_path(self, number: int, shot: str) -> Path:
        return self.folder / f"turn-{number:03d}{self.shots.path(shot).suffix}"

    def _publish(self, number: int, shot: str) -> Path:
        """The shot's clip under a name for people: a hard link, or a copy where the disk has none."""
        source, clip = self.shots.path(shot), self._clip_path(number, shot)
        same = clip.exists() and (os.path.samefile(source, clip) or filecmp.cmp(source, clip, shallow=False))
        if not same:
            with replacing(clip) as part:
                try:
                    os.link(source, part)
                except OSError:
                    shutil.copyfile(source, part)
        return clip

    def _publish_all(self) -> None:
        """The clips of the line, and none but those, under their names for people; the shots themselves stay.

        A clip whose own shot is lost is left where it is.
        """
        drawn = {number: entry.shot for number, entry in enumerate(self.entries, start=1) if entry.shot is not None}
        known = {number: shot for number, shot in drawn.items() if self.shots.record(shot) is not None}
        published = {number: self._publish(number, shot) for number, shot in known.items()}
        for clip in self.folder.glob("turn-*.*"):
            named = re.fullmatch(r"turn-([0-9]{3,})", clip.stem)
            number = int(named[1]) if named and clip.suffix in self.shots.suffixes else None
            if number is not None and (number not in drawn or published.get(number, clip) != clip):
                clip.unlink()

    def _turn_to(self, line: str) -> None:
        self.line = line
        self._line = Line(self._line_path(line))

    def _line_path(self, name: str) -> Path:
        return self.folder / "lines" / f"{name}.jsonl"

    def _branch(self, entry: LineEntry, index: int, keep_later: bool, words: Mapping[str, typing.Any]) -> None:
        """Turn to a line that holds `entry` at `index`, or that it can be appended to."""
        before, later = self.entries[:index], self.entries[index + 1 :] if keep_later else []
        way = [*before, entry, *later]
        fits = [lambda line: line.goes(way)]
        if not keep_later:
            fits.append(lambda line: len(line.entries) == index and line.goes(before))
        if not self._switch(fits, len(way) if keep_later else index) and keep_later:
            self._line.rewrite(index, entry, words)

    def _switch(self, fits: Sequence[Callable[[Line], bool]], count: int) -> bool:
        """Turn to the first line that fits (True), or else to a new one of the first `count` entries of this one."""
        known = self._turn_to_one(fits, count)
        if not known:
            name = next(f"line-{n}" for n in itertools.count(2) if not self._line_path(f"line-{n}").exists())
            self._line.copy(self._line_path(name), count)
            self._turn_to(name)
        return known

    def _turn_to_one(self, fits: Sequence[Callable[[Line], bool]], count: int) -> bool:
        """Turn to the first other line that fits, which gets the shots of the first `count` entries of this one."""
        lines = {}
        for name in [name for name in self.lines() if name != self.line]:  # this one never fits, and may be long
            with suppress(ValueError):  # a damaged line is left alone: nobody stands on it
                lines[name] = Line(self._line_path(name))
        name = next((name for fit in fits for name in lines if fit(lines[name])), None)
        if name is not None:
            lines[name].fill(self._line, count)
            self._turn_to(name)
        return name is not None

    def _begin(self) -> None:
        """Write the index of a new story, before anything else of it."""
        if not (self.folder / INDEX).exists():
            self._write_index()

    def _make_current(self) -> None:
        """Name this line in the index, and give its clips the names for people."""
        if read_index(self.folder / INDEX)["line"] != self.line:
            self._write_index()
            self._publish_all()

    def _write_index(self) -> None:
        write_index(self.folder / INDEX, self.world_name, self.fingerprint, self.line)


def _check_world(story: Story, world_name: str, fingerprint: str) -> None:
    if story.fingerprint != fingerprint:
        raise ValueError(
            f"story {story.name!r} was played in world {story.world_name!r} ({story.fingerprint[:8]}), "
            f"this is {world_name!r} ({fingerprint[:8]}); choose another name, or that world and its profile"
        )


def _state_of(record: Mapping[str, typing.Any] | None) -> GameState | None:
    try:
        return record and GameState(None, record["motion"], StateChange(**record["change"]), tuple(record["said"]))
    except (KeyError, TypeError):
        return None


def _writer(representation: Tensor | None) -> Callable[[Path], None]:
    """What writes a representation to a file; none is a file without tensors."""

    def write(path: Path) -> None:
        from safetensors.torch import save_file

        save_file({} if representation is None else {"representation": representation.contiguous()}, path)

    return write
