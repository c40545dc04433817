"""The game without models: motion scope, gauges, instructions, turns and the session.

Values are frozen; a step returns a new session, so keeping an old one is a branch of the story. Nothing here needs
torch.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

UNIT = 5  # gauge points of one unit of change (reference-facts 11)
KEPT_TURNS = 20  # turns (more for a wider window) whose representations a session holds; the story on disk has all
DEFAULT_WINDOW = 4  # training saw up to 4 past turns (reference-facts 10.2)


class MotionScope(IntEnum):
    """How much a shot moves. The number is the engine's token; a `MotionTable` says what the decoder is told."""

    STILL, GENTLE, BRISK, FAST, WILD = 1, 2, 3, 4, 5

    @classmethod
    def parse(cls, text: str | int) -> MotionScope:
        """`fast`, `4` or 4; ValueError lists the names."""
        word = str(text).strip().upper()
        for scope in cls:
            if word in (scope.name, str(scope.value)):
                return scope
        raise ValueError(f"unknown motion scope {text!r}; choose {', '.join(s.name.lower() for s in cls)} or 1..5")


@dataclass(frozen=True)
class MotionTable:
    """What each motion scope means in one world, as motion values: px a frame at 480 px height.

    `values` is what the decoder is told for scopes 1..5; `edges` are the four borders between scopes of a world whose
    dataset was measured (its quintiles), or None where they were never published.
    """

    name: str
    values: tuple[float, float, float, float, float]
    edges: tuple[float, float, float, float] | None = None

    def value(self, scope: int) -> float:
        """The motion value of a scope; numbers outside 1..5 mean the wildest, as in the released scripts."""
        return self.values[scope - 1] if scope in range(1, 6) else self.values[4]

    def level(self, value: float) -> MotionScope:
        """The scope that a measured motion value falls in; ValueError if this world never measured its edges."""
        if self.edges is None:
            raise ValueError(f"motion table {self.name!r} has no measured edges; use the table of a built world")
        return MotionScope(level_of(value, self.edges))


def level_of(value: float, edges: Sequence[float]) -> int:
    """The level 1..5 of a motion value between four edges; a value on an edge belongs to the level below it."""
    return 1 + sum(bool(value > edge) for edge in edges)


def scope_name(motion: int) -> str:
    """`still` .. `wild`; `unread` for a number outside 1..5, as the released scripts' reading of a reply may give."""
    return MotionScope(motion).name.lower() if motion in range(1, 6) else "unread"


MOTION_TABLES: dict[str, MotionTable] = {
    "released": MotionTable("released", (0.5, 2.5, 10.0, 15.0, 40.0)),
    "released_app": MotionTable("released_app", (0.5, 1.0, 5.0, 20.0, 40.0)),
}


@dataclass(frozen=True)
class StateChange:
    """What one turn does to the gauges, in units: social and entertainment 0 or 1, stamina -1 or 1."""

    social: int = 0
    entertainment: int = 0
    stamina: int = -1


@dataclass(frozen=True)
class CharacterState:
    """The three gauges, 0..100."""

    stamina: int = 50
    social: int = 50
    entertainment: int = 50

    def __post_init__(self) -> None:
        for name in ("stamina", "social", "entertainment"):
            if not 0 <= getattr(self, name) <= 100:
                raise ValueError(f"gauge {name} is {getattr(self, name)}; gauges run from 0 to 100")

    def after(self, change: StateChange) -> CharacterState:
        """The gauges one turn later, clamped to 0..100."""
        return CharacterState(
            stamina=_clamp(self.stamina + UNIT * change.stamina),
            social=_clamp(self.social + UNIT * change.social),
            entertainment=_clamp(self.entertainment + UNIT * change.entertainment),
        )


@dataclass(frozen=True)
class GameState:
    """What the engine predicts for one turn.

    representation: (N, D) float tensor on the CPU, or None where a session let an old one go. motion: the scope that
    the rules allow, 0 where the released scripts failed to read a reply. said: the model's own first choices
    (ML, SC, ET, ST) before any rule was applied; None stands for a token that is no number.
    """

    representation: Tensor | None
    motion: int
    change: StateChange = StateChange()
    said: tuple[int | None, int | None, int | None, int | None] = (None, None, None, None)

    @classmethod
    def of_picture(cls, representation: Tensor) -> GameState:
        """The state of an opening picture: it stands still, nobody meets anybody, and no gauge will move by it."""
        return cls(representation, MotionScope.STILL)

    @property
    def levels(self) -> tuple[int, int, int, int]:
        """(ML, SC, ET, ST), the order of the prompt."""
        return self.motion, self.change.social, self.change.entertainment, self.change.stamina


@dataclass(frozen=True)
class Turn:
    """One turn that was played. `number` counts from 1; 0 is an opening picture. `address` finds it in its story;
    `window` is how many past turns could be read for it."""

    number: int
    instruction: str
    seed: int
    state: GameState
    character: CharacterState
    address: str | None = None
    window: int = DEFAULT_WINDOW


@dataclass(frozen=True)
class GameSession:
    """A game so far.

    window: k, the past turns that the engine reads (the released `max_window` is k + 1). None: as many as the world
    was trained with, which `read_with` fills in once the world is known.
    """

    turns: tuple[Turn, ...] = ()
    window: int | None = DEFAULT_WINDOW
    opening: CharacterState = field(default_factory=CharacterState)

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 0:
            raise ValueError(f"window is {self.window}; it counts the past turns that the engine reads, 0 or more")

    @property
    def character(self) -> CharacterState:
        """The gauges now."""
        return self.turns[-1].character if self.turns else self.opening

    @property
    def next_number(self) -> int:
        """The number of the turn to come."""
        return self.turns[-1].number + 1 if self.turns else 1

    @property
    def picture(self) -> Turn | None:
        """The opening picture, turn 0, if the game began from one."""
        return self.turns[0] if self.turns and self.turns[0].number == 0 else None

    def read_with(self, window: int) -> GameSession:
        """The session with this window, where it leaves the choice to the world."""
        return replace(self, window=window) if self.window is None else self

    def past(self) -> tuple[Turn, ...]:
        """The turns that the engine reads for the next one, oldest first; a window of 0 means none, not all."""
        assert self.window is not None, "read_with comes first"
        return self.turns[max(0, len(self.turns) - self.window) :]

    def open_with(self, instruction: str, state: GameState) -> GameSession:
        """A game that starts from a picture: turn 0, which changes no gauge. Only an empty session can be opened."""
        if self.turns:
            raise ValueError(f"this game has {len(self.turns)} turns already; an opening picture must come first")
        return replace(self, turns=(Turn(0, instruction, 0, state, self.opening),))

    def step(self, instruction: str, state: GameState, seed: int = 0, address: str | None = None) -> GameSession:
        """The session one turn on. Only the last turns keep their representations, so memory stays flat."""
        assert self.window is not None, "read_with comes first"
        character = self.character.after(state.change)
        turn = Turn(self.next_number, instruction, seed, state, character, address, self.window)
        turns = (*self.turns, turn)
        kept = max(KEPT_TURNS, self.window)
        if len(turns) > kept:
            old = turns[-kept - 1]
            faded = replace(old, state=replace(old.state, representation=None))
            turns = (*turns[: -kept - 1], faded, *turns[-kept:])
        return replace(self, turns=turns)

    def rewind(self, number: int) -> GameSession:
        """The session as it was after turn `number` (0: before turn 1, an opening picture kept)."""
        if not 0 <= number < self.next_number:
            raise ValueError(f"cannot rewind to turn {number}; this game has turns 1 to {self.next_number - 1}")
        return replace(self, turns=tuple(turn for turn in self.turns if turn.number <= number))


@dataclass(frozen=True)
class Instruction:
    """The published form: `Character: {who}; Motion: {adverb} {motion}; Background: {time} {place}.`"""

    characters: tuple[str, ...]
    motion: str
    place: str
    adverb: str = ""
    time: str = ""

    @property
    def text(self) -> str:
        """The instruction as the engine reads it."""
        motion = f"{self.adverb} {self.motion}".strip()
        background = f"{self.time} {self.place}".strip()
        return clean_text(f"Character: {', '.join(self.characters)}; Motion: {motion}; Background: {background}.")

    def checked(self) -> Instruction:
        """The same; ValueError if character, motion or place is not told, or a part holds the `;` between parts."""
        told = {"character": ", ".join(self.characters), "motion": self.motion, "place": self.place}
        for name, text in {**told, "adverb": self.adverb, "time": self.time}.items():
            if name in told and not clean_text(text):
                raise ValueError(f"the {name} is empty; an instruction says who does what, and where")
            if ";" in text:
                raise ValueError(f"the {name} is {text!r}; leave out the `;`, which separates an instruction's parts")
        return self


_PUBLISHED = re.compile(r"Character: (?P<who>[^;]+); Motion: (?P<motion>[^;]+); Background: (?P<place>[^;]+?)\.?")


def motion_text(instruction: str) -> str:
    """The motion part of an instruction, adverb included: what the shot encoder reads. Plain text is its own."""
    match = _PUBLISHED.fullmatch(clean_text(instruction))
    return match["motion"] if match else clean_text(instruction)


def clean_text(text: str) -> str:
    """User text made safe for the prompt: one line, single spaces, no control characters, nothing that reads as a tag.

    Angle brackets turn into the single quotation marks that look like them, so no text can name a special token;
    runs of spaces collapse, where tokenizer versions disagree (reference-facts 3.4).
    """
    plain = unicodedata.normalize("NFC", text)
    plain = "".join(" " if unicodedata.category(char)[0] in "CZ" else char for char in plain)
    return " ".join(plain.replace("<", "\u2039").replace(">", "\u203a").split())


def read_instructions(text: str) -> tuple[str, ...]:
    """The instructions of a file: one a line, `#` starts a comment line, blank lines are passed over."""
    lines = (clean_text(line) for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


def _clamp(value: int) -> int:
    return max(0, min(100, value))
