"""The save game: a story on disk, content-addressed, so that a known turn is never computed twice.

    story.json             the story's world, and the name of its current line
    lines/<name>.jsonl     one entry a turn: state, shot and seed, with a few words for people to read
    turns/<address>.*      a predicted state: its record (json) and its representation (safetensors)
    shots/<address>.*      a drawn shot: its record and its clip
    turn-001.mp4 ...       the clips of the current line
A state's address covers its parent's, so the tree of all turns is in the records, and branching is another line over
the same turns. The order of writes makes a crash harmless: content, its record, then the line's entry, so that at most
the turn in progress is lost. Reading the index imports no torch.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import time
import typing
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from .files import PART, replacing, write_text
from .shelf import Shelf, ShotKey, StateKey
from .state import CharacterState, GameSession, GameState, StateChange, Turn

if typing.TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1  # raised when an older program could misread a story
INDEX = "story.json"
FIRST_LINE = "main"
_DEVICES = {"CON", "PRN", "AUX", "NUL", *(f"{port}{n}" for port in ("COM", "LPT") for n in range(1, 10))}
_NAME = re.compile(r'[^\x00-\x1f<>:"/\\|?*]{1,80}')
_LINE_NAME = re.compile(r"main|line-[0-9]{1,6}")


@dataclass(frozen=True)
class LineEntry:
    """One turn of a line: the addresses of its state and shot (None: not drawn), and its seed."""

    state: str
    shot: str | None
    seed: int


def check_story_name(name: str) -> str:
    """`name`, if it can be a folder's name on every system and stays inside its parent; ValueError otherwise."""
    stem = name.split(".")[0].strip().upper()
    if not _NAME.fullmatch(name) or name != name.strip() or name.endswith(".") or stem in _DEVICES:
        raise ValueError(
            f"story name {name!r} cannot be a folder's name; use up to 80 letters, digits, spaces, - and _, "
            "and none of the words that Windows keeps for devices"
        )
    return name


class Story:
    """A story's folder and its current line."""

    def __init__(self, folder: Path, fingerprint: str, line: str) -> None:
        self.folder = folder
        self.fingerprint = fingerprint
        self.states = Shelf(folder / "turns", StateKey, (".safetensors",))
        self.shots = Shelf(folder / "shots", ShotKey, (".mp4", ".safetensors"))
        self.line = line
        self.entries, self._whole_bytes = self._read_line(line)

    @classmethod
    def open(cls, root: Path | str, name: str, world_name: str, fingerprint: str) -> Story:
        """Open the story `name` below `root`, or begin it. ValueError: a bad name, another world's story, no story."""
        folder = Path(root) / check_story_name(name)
        index = folder / INDEX
        if not index.exists():
            if folder.is_dir() and any(not path.name.startswith(PART) for path in folder.iterdir()):
                raise ValueError(f"{folder} holds other files and no {INDEX}; choose another name for the story")
            story = cls(folder, fingerprint, FIRST_LINE)
            story._write_index(world_name)
            return story
        values = _read_index(index)
        played = values["world"]
        if played["fingerprint"] != fingerprint:
            raise ValueError(
                f"story {name!r} was played in world {played['name']!r} ({played['fingerprint'][:8]}), "
                f"this is {world_name!r} ({fingerprint[:8]}); choose another name, or that world"
            )
        _sweep(folder)
        return cls(folder, fingerprint, values["line"])

    def session(self, count: int, window: int) -> GameSession:
        """The first `count` turns of the current line, without their representations (see `recall`)."""
        if not 0 <= count <= len(self.entries):
            raise ValueError(f"this story has {len(self.entries)} turns; cannot go on after turn {count}")
        turns, character = [], CharacterState()
        for number, entry in enumerate(self.entries[:count], start=1):
            state, instruction = self._known(entry.state)
            character = character.after(state.change)
            turns.append(Turn(number, instruction, entry.seed, state, character, entry.state))
        return GameSession(tuple(turns), window)

    def find_state(self, address: str) -> GameState | None:
        """The predicted state of an address, without its representation; None if it is not known or damaged."""
        return _state_of(self.states.find(address))

    def put_state(self, key: StateKey, state: GameState) -> str:
        """Store a prediction; returns its address."""
        values = {"motion": state.motion, "change": asdict(state.change), "said": list(state.said)}

        def write(path: Path) -> None:
            from safetensors.torch import save_file

            save_file({"representation": state.representation.contiguous()}, path)

        return self.states.put(key, ".safetensors", values, write)

    def recall(self, turn: Turn) -> Turn:
        """The turn with its representation, read again by its address where the session let it go."""
        if turn.state.representation is not None or turn.address is None:
            return turn
        return replace(turn, state=replace(turn.state, representation=self.read_representation(turn.address)))

    def read_representation(self, address: str) -> Tensor:
        """The (N, D) representation of a known state, on the CPU."""
        from safetensors.torch import load_file

        return load_file(self.states.path(address))["representation"]

    def enter(self, turn: Turn, shot: str | None) -> Path | None:
        """Make `turn` with this shot the one of its number in the current line; returns its clip `turn-00n`, if drawn.

        Where the line holds another turn, that line is kept and another becomes current: one that goes this way
        already or ends where it would begin, or a new one.
        """
        assert turn.address is not None
        entry = LineEntry(turn.address, shot, turn.seed)
        before = self.entries[: turn.number - 1]
        assert len(before) == turn.number - 1, f"turn {turn.number} follows {len(before)} turns"
        clip = None if shot is None else self._publish(turn.number, shot)
        if self.entries[turn.number - 1 :] and self.entries[turn.number - 1] != entry:
            way = [*before, entry]
            self._switch(lambda entries: entries[: len(way)] in (way, before), len(before))
            self._drop_clips(turn.number)
        if len(self.entries) == len(before):
            self._append(turn, entry)
        return clip

    def settle(self, count: int) -> None:
        """End the current line after `count` turns; a longer one is kept, and another becomes current."""
        if count < len(self.entries):
            kept = self.entries[:count]
            self._switch(lambda entries: entries == kept, count)
        self._drop_clips(count)

    def clips(self) -> dict[int, Path]:
        """The clips of the current line: turn number -> file, without the turns that were not drawn."""
        numbered = enumerate(self.entries, start=1)
        return {number: self._clip_path(number, entry.shot) for number, entry in numbered if entry.shot is not None}

    def _known(self, address: str) -> tuple[GameState, str]:
        record = self.states.record(address)
        state = _state_of(record)
        if record is None or state is None:
            raise ValueError(
                f"{self.folder}: turn {address[:12]}... is missing or damaged; play the game's file again to restore it"
            )
        return state, record["key"]["instruction"]

    def _clip_path(self, number: int, shot: str) -> Path:
        return self.folder / f"turn-{number:03d}{self.shots.path(shot).suffix}"

    def _publish(self, number: int, shot: str) -> Path:
        """The shot's clip under a name for people: a hard link, or a copy where the disk has none."""
        source, clip = self.shots.path(shot), self._clip_path(number, shot)
        if not (clip.exists() and os.path.samefile(source, clip)):
            with replacing(clip) as part:
                try:
                    os.link(source, part)
                except OSError:
                    shutil.copyfile(source, part)
        return clip

    def _drop_clips(self, count: int) -> None:
        """Take away the published clips of turns after `count`; the shots themselves stay."""
        for clip in self.folder.glob("turn-*.*"):
            number = re.fullmatch(r"turn-([0-9]{3,})", clip.stem)
            if number and int(number[1]) > count:
                clip.unlink()

    def _lines(self) -> list[str]:
        return sorted(path.stem for path in (self.folder / "lines").glob("*.jsonl") if _LINE_NAME.fullmatch(path.stem))

    def _line_path(self, name: str) -> Path:
        return self.folder / "lines" / f"{name}.jsonl"

    def _read_line(self, name: str) -> tuple[list[LineEntry], int]:
        """The entries of a line and the bytes they take; what a crash tore off the end is left out."""
        path = self._line_path(name)
        entries, size = [], 0
        for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
            entry = _entry_of(line)
            if entry is None:
                break
            entries.append(entry)
            size += len(line)
        return entries, size

    def _append(self, turn: Turn, entry: LineEntry) -> None:
        words = {"turn": turn.number, "instruction": turn.instruction, "motion": turn.state.motion}
        line = (_json({**words, **asdict(turn.character), **asdict(entry)}) + "\n").encode("utf-8")
        path = self._line_path(self.line)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if path.exists() else "wb") as file:
            file.truncate(self._whole_bytes)
            file.seek(self._whole_bytes)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self.entries.append(entry)
        self._whole_bytes += len(line)

    def _switch(self, fits: Callable[[list[LineEntry]], bool], count: int) -> None:
        """Make the first line that fits current, or else a new one of the first `count` entries of this one."""
        lines = self._lines()
        name = next((name for name in lines if fits(self._read_line(name)[0])), None)
        if name is None:
            name = next(f"line-{n}" for n in itertools.count(2) if f"line-{n}" not in lines)
            text = self._line_path(self.line).read_bytes().splitlines(keepends=True)[:count]
            write_text(self._line_path(name), b"".join(text).decode("utf-8"))
        self.line = name
        self.entries, self._whole_bytes = self._read_line(name)
        self._write_index(_read_index(self.folder / INDEX)["world"]["name"])

    def _write_index(self, world_name: str) -> None:
        world = {"name": world_name, "fingerprint": self.fingerprint}
        values = {"format": FORMAT, "world": world, "line": self.line}
        write_text(self.folder / INDEX, json.dumps(values, indent=1) + "\n")


def _read_index(path: Path) -> dict[str, typing.Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        wanted = {"format": int, "world": dict, "line": str}
        whole = all(isinstance(values[name], kind) for name, kind in wanted.items())
        whole = whole and {"name", "fingerprint"} <= values["world"].keys() and _LINE_NAME.fullmatch(values["line"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not the index of a story; choose another name for the story") from error
    if not whole:
        raise ValueError(f"{path}: not the index of a story; choose another name for the story")
    if values["format"] != FORMAT:
        raise ValueError(f"{path}: story format {values['format']}, this program reads {FORMAT}; update the program")
    return values


def _entry_of(line: bytes) -> LineEntry | None:
    try:
        values = json.loads(line)
        entry = LineEntry(values["state"], values["shot"], values["seed"])
    except (ValueError, KeyError, TypeError):
        return None
    hashes = [entry.state] if entry.shot is None else [entry.state, entry.shot]
    sound = all(isinstance(item, str) and re.fullmatch("[0-9a-f]{64}", item) for item in hashes)
    return entry if line.endswith(b"\n") and sound and isinstance(entry.seed, int) else None


def _state_of(record: Mapping[str, typing.Any] | None) -> GameState | None:
    try:
        return record and GameState(None, record["motion"], StateChange(**record["change"]), tuple(record["said"]))
    except (KeyError, TypeError):
        return None


def _sweep(folder: Path) -> None:
    """Take away what crashed processes left unfinished more than an hour ago."""
    for part in folder.glob(f"**/{PART}*"):
        if time.time() - part.stat().st_mtime > 3600:
            part.unlink(missing_ok=True)


def _json(values: Mapping[str, typing.Any]) -> str:
    return json.dumps(values, ensure_ascii=False, allow_nan=False)
