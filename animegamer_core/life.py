"""A world's life: the rules of its three stats, and the words that it knows. Needs no torch.

Both are data in world.json (field `life`). The default is the published rules: each stat starts at 50, a turn moves it
by 5 points or not at all, and it stays within 0 to 100.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property

STATS = ("stamina", "social", "entertainment")
UNIT = 5  # points of a stat per unit of change (docs/reference.md, character stats)
LIMITS = (0, 100)


@dataclass(frozen=True)
class Stat:
    """How one stat behaves. label: what it is called; empty: its own name. start: its value in a new game. step: points
    for one unit of change. low, high: its range. drift: points that every turn adds.
    """

    label: str = ""
    start: int = 50
    step: int = UNIT
    low: int = LIMITS[0]
    high: int = LIMITS[1]
    drift: int = 0

    def __post_init__(self) -> None:
        if not LIMITS[0] <= self.low <= self.start <= self.high <= LIMITS[1]:
            raise ValueError(
                f"a stat starts at {self.start} between {self.low} and {self.high}; expected low <= start <= high, "
                f"within {LIMITS[0]} to {LIMITS[1]}"
            )
        if not 0 <= self.step <= LIMITS[1] or abs(self.drift) > LIMITS[1]:
            raise ValueError(f"a stat has step {self.step} and drift {self.drift}; expected at most {LIMITS[1]} points")

    def after(self, value: int, change: int) -> int:
        """The value one turn later."""
        return max(self.low, min(self.high, value + self.step * change + self.drift))


@dataclass(frozen=True)
class Consequence:
    """While `stat` is at most `at_most`, a turn can raise only the stats in `only`."""

    stat: str
    at_most: int
    only: tuple[str, ...]

    def __post_init__(self) -> None:
        unknown = [name for name in (self.stat, *self.only) if name not in STATS]
        if unknown:
            raise ValueError(f"a consequence names an unknown stat {unknown[0]!r}; the stats are {', '.join(STATS)}")


@dataclass(frozen=True)
class Rules:
    """How the engine's predictions change the stats."""

    stamina: Stat = Stat()
    social: Stat = Stat()
    entertainment: Stat = Stat()
    consequences: tuple[Consequence, ...] = ()

    def stat(self, name: str) -> Stat:
        """One stat by its name."""
        return getattr(self, name)

    def label(self, name: str) -> str:
        """A stat's name in this world."""
        return self.stat(name).label or name

    @property
    def start(self) -> dict[str, int]:
        """The stats of a new game."""
        return {name: self.stat(name).start for name in STATS}

    def only(self, values: Mapping[str, int]) -> tuple[str, ...]:
        """The stats that a turn can raise now."""
        held = [rule.only for rule in self.consequences if values[rule.stat] <= rule.at_most]
        return tuple(name for name in STATS if all(name in names for names in held))

    def allowed(self, values: Mapping[str, int], change: Mapping[str, int]) -> dict[str, int]:
        """The part of a predicted change, in units, that counts with these stats."""
        only = self.only(values)
        return {name: units if name in only else min(0, units) for name, units in change.items()}

    def after(self, values: Mapping[str, int], change: Mapping[str, int]) -> dict[str, int]:
        """The stats one turn later, for a predicted change in units."""
        counted = self.allowed(values, change)
        return {name: self.stat(name).after(values[name], counted[name]) for name in STATS}


PUBLISHED_RULES = Rules()


@dataclass(frozen=True)
class Act:
    """A kind of motion: its phrase, the changes that it usually brings, and whether it takes a second character."""

    phrase: str
    stamina: int = -1
    social: int = 0
    entertainment: int = 0
    company: bool = False

    @property
    def change(self) -> dict[str, int]:
        """The usual change in units."""
        return {name: getattr(self, name) for name in STATS}


@dataclass(frozen=True)
class Words:
    """The words that a world knows. adverbs: in groups, from still to wild. things, looks: what a character may carry,
    and what it may look like. untried: pairs of characters, act phrases and places that never appear together in its
    training data, so proposals never combine them.
    """

    characters: tuple[str, ...] = ()
    acts: tuple[Act, ...] = ()
    places: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    adverbs: tuple[tuple[str, ...], ...] = ()
    things: tuple[str, ...] = ()
    looks: tuple[str, ...] = ()
    untried: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            groups = (item if isinstance(item, tuple) else (item,) for item in getattr(self, field.name))
            for text in (getattr(item, "phrase", item) for group in groups for item in group):
                if not text.strip() or ";" in text:
                    raise ValueError(f"the words of a world have {text!r} in {field.name}; expected text without `;`")

    @cached_property
    def by_length(self) -> tuple[Act, ...]:
        """The acts, those with the longest phrase first, so that "run away" is found before "run"."""
        return tuple(sorted(self.acts, key=lambda act: -len(act.phrase)))

    @cached_property
    def _untried(self) -> frozenset[frozenset[str]]:
        return frozenset(map(frozenset, self.untried))

    def tried(self, one: str, other: str) -> bool:
        """Whether two of a character, an act's phrase and a place may appear together in the training data."""
        return frozenset((one, other)) not in self._untried

    def act_of(self, motion: str) -> Act | None:
        """The act in the motion part of an instruction; None if the world does not know it."""
        text = f" {motion.lower()} "
        return next((act for act in self.by_length if f" {act.phrase.lower()} " in text), None)


@dataclass(frozen=True)
class Life:
    """A world's rules and words. words: None if it does not list them."""

    rules: Rules = PUBLISHED_RULES
    words: Words | None = None


def time_and_place(background: str, times: Iterable[str]) -> tuple[str, str]:
    """The two parts of a background, such as ("day", "moor"); no time if it begins with none of `times`."""
    background = background.strip()
    time = next((time for time in times if background.lower().startswith(f"{time.lower()} ")), "")
    return time, background[len(time) :].strip()
