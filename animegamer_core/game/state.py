"""The game without models: motion scope, character stats, instructions, turns and the session.

Values are frozen: a step returns a new session, and an older one can continue as another branch. Nothing here needs
torch.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from ..messages import shortened
from .life import LIMITS, PUBLISHED_RULES, Rules, Values
from .recall import OPENING, PUBLISHED, RECALL, RECENT, Memory, Seen

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

CACHED_TURNS = 20  # a session keeps the representations of its last turns (more for a wider window) in memory
MOST_TOKENS = 1024  # of an instruction; 20 turns of that length fit in the engine's positions, usual ones have 60
MOST_LETTERS = 8 * MOST_TOKENS  # of an instruction, where no tokenizer is loaded
_Pixels = Annotated[float, Meta(ge=-1e6, le=1e6)]  # a file with a larger number is damaged
DEFAULT_WINDOW = 4  # training used up to 4 past turns (docs/reference.md, training)


class MotionScope(IntEnum):
    """How much a shot moves, as the engine's token number; a `MotionTable` maps it to a motion value."""

    STILL, GENTLE, BRISK, FAST, WILD = 1, 2, 3, 4, 5

    @classmethod
    def parse(cls, text: str | int) -> MotionScope:
        """`fast`, `4` or 4; ValueError lists the names."""
        word = str(text).strip().upper()
        for scope in cls:
            if word in (scope.name, str(scope.value)):
                return scope
        names = ", ".join(scope.name.lower() for scope in cls)
        raise ValueError(f"unknown motion scope {shortened(repr(text), 80)}; choose {names} or 1..5")


@dataclass(frozen=True)
class MotionTable:
    """The motion values of the scopes in one world, in px per frame at 480 px height.

    values: the decoder's condition for scopes 1..5. edges: the four borders between scopes, the quintiles of the
    world's dataset; None if they are not published.
    """

    name: str
    values: Annotated[tuple[_Pixels, ...], Meta(min_length=5, max_length=5)]
    edges: Annotated[tuple[_Pixels, ...], Meta(min_length=4, max_length=4)] | None = None

    def value(self, scope: int) -> float:
        """The motion value of a scope; numbers outside 1..5 mean `wild`, as in the released scripts."""
        return self.values[scope - 1] if scope in range(1, 6) else self.values[4]

    def at_least(self, value: float) -> float:
        """A player's own motion value, or half of `still`'s if it is less.

        Decoders are trained with 0 for no value, so shots move more again below this: in the Toybox 1.4 to 4.8 px at 0,
        0.7 to 0.8 at 0.5.
        """
        return max(float(value), self.values[0] / 2)

    def level(self, value: float) -> MotionScope:
        """The scope of a measured motion value; ValueError if the table has no edges."""
        if self.edges is None:
            raise ValueError(
                f"motion table {self.name!r} has no measured edges; use the table of a world with its own dataset"
            )
        return MotionScope(level_of(value, self.edges))


def level_of(value: float, edges: Sequence[float]) -> int:
    """The level 1..5 of a motion value; a value on one of the four edges belongs to the level below it."""
    return 1 + sum(bool(value > edge) for edge in edges)


def scope_name(motion: int) -> str:
    """`still` .. `wild`; `unread` for a number outside 1..5, which a reply in profile `as_run` may hold."""
    return MotionScope(motion).name.lower() if motion in range(1, 6) else "unread"


MOTION_TABLES: dict[str, MotionTable] = {
    "released": MotionTable("released", (0.5, 2.5, 10.0, 15.0, 40.0)),
    "released_app": MotionTable("released_app", (0.5, 1.0, 5.0, 20.0, 40.0)),
}


@dataclass(frozen=True)
class GameState:
    """What the engine predicts for one turn.

    representation: (N, D) float tensor on the CPU; None if the session has dropped it. motion: the scope, 0 for an
    unreadable reply in profile `as_run`. change: of the stats, in units; a stat that it does not name changes as usual.
    raw_choices: the engine's unconstrained choices, of the motion and each stat; None for a token that is no number.
    """

    representation: Tensor | None
    motion: int
    change: Values = field(default_factory=dict)
    raw_choices: tuple[int | None, ...] = ()

    @classmethod
    def of_picture(cls, representation: Tensor | None) -> GameState:
        """The state of an opening picture: it has no motion and changes no stat."""
        return cls(representation, MotionScope.STILL)


@dataclass(frozen=True, eq=False)
class OpeningClip:
    """The clip of an opening, (F, H, W, 3) uint8 like a shot. Only for people: no turn depends on it."""

    frames: np.ndarray
    fps: float


@dataclass(frozen=True)
class Turn:
    """A played turn. number: from 1; 0 is an opening picture. address: in its story. window: how many past turns its
    prediction could use. recalled: the numbers of recalled older turns. before: the stats before it. refused: the stats
    whose predicted change the world's rules did not count. clip: an opening's clip that is not yet in its story.
    """

    number: int
    instruction: str
    seed: int
    state: GameState
    character: Values
    address: str | None = None
    window: int = DEFAULT_WINDOW
    recalled: tuple[int, ...] = ()
    before: Values | None = None
    refused: tuple[str, ...] = ()
    clip: OpeningClip | None = None

    def counted_by(self, rules: Rules) -> Turn:
        """The turn with its new stats; until now `character` holds the stats before it."""
        before, predicted = self.character, rules.change(self.state.change)
        counted = rules.allowed(before, predicted)
        refused = tuple(name for name, units in predicted.items() if counted[name] != units)
        return replace(self, character=rules.after(before, counted), before=before, refused=refused)

    @property
    def moved(self) -> dict[str, int]:
        """By how many points it changed each stat."""
        before = self.character if self.before is None else self.before
        return {name: value - before[name] for name, value in self.character.items()}


@dataclass(frozen=True)
class GameSession:
    """A game so far.

    window: the number of past turns in the engine's prompt (the released `max_window` is one more). None: as many as in
    the world's training. opening: the stats at the start, 0 to 100; those that it does not name start by the rules.
    memory: which turns these are; None: the world's default. rules: of the stats; None: the world's. `with_defaults`
    fills these in once the world is known.
    """

    turns: tuple[Turn, ...] = ()
    window: int | None = DEFAULT_WINDOW
    opening: Values = field(default_factory=dict)
    memory: Memory | None = Memory()
    rules: Rules | None = PUBLISHED_RULES

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 0:
            raise ValueError(f"window is {self.window}; expected a number of past turns, 0 or more")
        for name, value in self.opening.items():
            if not LIMITS[0] <= value <= LIMITS[1]:
                raise ValueError(f"{name} is {value}; expected {LIMITS[0]} to {LIMITS[1]}")

    @property
    def character(self) -> Values:
        """The stats now."""
        return self.turns[-1].character if self.next_number > 1 else self.start

    @property
    def start(self) -> dict[str, int]:
        """The stats at the start."""
        return {**(self.rules or PUBLISHED_RULES).start, **self.opening}

    @property
    def next_number(self) -> int:
        """The number of the next turn."""
        return self.turns[-1].number + 1 if self.turns else 1

    @property
    def picture(self) -> Turn | None:
        """The opening picture, turn 0, if the game started from one."""
        return self.turns[0] if self.turns and self.turns[0].number == 0 else None

    def with_defaults(self, window: int, memory: Memory, rules: Rules = PUBLISHED_RULES) -> GameSession:
        """The session with this window, memory and rules as defaults."""
        filled = (window if self.window is None else self.window, self.memory or memory, self.rules or rules)
        if filled == (self.window, self.memory, self.rules):
            return self
        return replace(self, window=filled[0], memory=filled[1], rules=filled[2])

    def past(self, recalled: tuple[int, ...] = ()) -> tuple[Turn, ...]:
        """The past turns in the prompt of the next one, oldest first: the recalled ones, then the last others."""
        assert self.window is not None, "call with_defaults first"
        last = len(self.turns) - max(0, self.window - len(recalled))  # not [-last:], which for 0 is all of them
        return (*(turn for turn in map(self._turn, recalled)), *self.turns[max(0, last) :])

    def recall(self, instruction: str, stored: bool = False) -> tuple[int, ...]:
        """The numbers of the turns that `past` takes for this instruction instead of the oldest of the window.

        stored: the representation of any turn can be read from a story, not only those in memory.
        """
        assert self.window is not None and self.memory is not None, "call with_defaults first"
        most = min(self.memory.turns, self.window - 1)  # the last turn always stays
        if self.memory.kind == RECENT or most < 1:
            return ()

        def is_known(number: int) -> bool:
            return stored or self._turn(number).state.representation is not None

        end = self.next_number
        found = sorted(self._seen.recall(instruction, end - self.window + most, most, is_known))
        while found and found[-1] >= end - 1 - self.window + len(found):  # it stays as one of the last turns
            found.pop()
        return tuple(found)

    def _turn(self, number: int) -> Turn:
        return self.turns[number - self.turns[0].number]

    @cached_property
    def _seen(self) -> Seen:
        return Seen.of((turn.number, turn.instruction) for turn in self.turns)

    def open_with(self, instruction: str, state: GameState, clip: OpeningClip | None = None) -> GameSession:
        """A game that starts from a picture, or a frame of a clip, as turn 0; ValueError if it already has turns."""
        if self.turns:
            raise ValueError(f"this game already has {len(self.turns)} turns; an opening picture must come first")
        return replace(self, turns=(Turn(OPENING, instruction, 0, state, self.start, clip=clip),))

    def step(
        self,
        instruction: str,
        state: GameState,
        seed: int = 0,
        address: str | None = None,
        recalled: tuple[int, ...] = (),
    ) -> GameSession:
        """The session with one more turn. It drops the representations of old turns, so memory stays constant."""
        assert self.window is not None and self.rules is not None, "call with_defaults first"
        played = Turn(self.next_number, instruction, seed, state, self.character, address, self.window, recalled)
        turn = played.counted_by(self.rules)
        turns = (*self.turns, turn)
        oldest = len(turns) - 1 - max(CACHED_TURNS, self.window)
        stays = turns[0].number == OPENING and self.memory is not None and self.memory.kind == RECALL
        if oldest >= int(stays):  # `recall` may need the opening picture at any time
            dropped = turns[oldest]
            dropped = replace(dropped, state=replace(dropped.state, representation=None))
            turns = (*turns[:oldest], dropped, *turns[oldest + 1 :])
        session = replace(self, turns=turns)
        if "_seen" in self.__dict__:  # else it is made when it is first needed
            session.__dict__["_seen"] = self._seen.with_turn(turn.number, instruction)
        return session

    def rewind(self, number: int) -> GameSession:
        """The session as it was after turn `number` (0: before turn 1, with its opening picture)."""
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
        """The same; ValueError if character, motion or place is empty, or a part holds a `;`."""
        required = {"character": ", ".join(self.characters), "motion": self.motion, "place": self.place}
        for name, text in {**required, "adverb": self.adverb, "time": self.time}.items():
            if name in required and not clean_text(text):
                raise ValueError(f"the {name} is empty; an instruction needs a character, a motion and a place")
            if ";" in text:
                raise ValueError(f"the {name} is {text!r}; remove the `;`, which separates the parts of an instruction")
        return self


def motion_text(instruction: str) -> str:
    """The motion part of an instruction with its adverb, for the shot encoder; all of a text without parts."""
    match = PUBLISHED.fullmatch(instruction)
    return match["motion"] if match else instruction


def clean_text(text: str) -> str:
    """User text made safe for the prompt: one line, single spaces, no control characters and no tags.

    Angle brackets become similar-looking quotation marks, so text cannot contain a special token. Runs of spaces
    collapse, because tokenizer versions disagree about them (docs/reference.md, tokenizer).
    """
    plain = unicodedata.normalize("NFC", text)
    plain = "".join(" " if unicodedata.category(char)[0] in "CZ" else char for char in plain)
    return " ".join(plain.replace("<", "\u2039").replace(">", "\u203a").split())


def check_length(instruction: str, tokens: int = 0) -> None:
    """ValueError for an instruction of more than MOST_TOKENS tokens (0: not counted) or MOST_LETTERS letters."""
    if tokens > MOST_TOKENS or len(instruction) > MOST_LETTERS:
        found = f"{tokens} tokens" if tokens > MOST_TOKENS else f"{len(instruction)} letters"
        raise ValueError(
            f"the instruction {shortened(instruction, 60)!r} has {found}; shorten it to {MOST_TOKENS} tokens (about "
            f"700 words) and {MOST_LETTERS} letters"
        )


def read_instruction(text: str) -> str:
    """A typed instruction, cleaned: everything after this reads it as it is. ValueError if it is empty or too long."""
    instruction = clean_text(text)
    if not instruction:
        raise ValueError("the instruction is empty; say who does what, and where")
    check_length(instruction)
    return instruction


def read_instructions(text: str) -> tuple[str, ...]:
    """The instructions of a file, one per line, cleaned; blank lines and comments (`#`) are passed over.

    ValueError for one that is too long.
    """
    lines = map(clean_text, text.splitlines())
    found = tuple(line for line in lines if line and not line.startswith("#"))
    for line in found:
        check_length(line)
    return found
