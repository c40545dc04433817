"""A world's life: its stats with their rules, and the words that it knows. Needs no torch.

All of it is data in world.json (field `life`). The default is the published game: three stats that start at 50, which a
turn moves by 5 points or not at all, within 0 to 100. A row more in `stats` is a stat more: prompts, grammar, labels,
page and metrics go through the rows.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property

from .recall import PUBLISHED, names_of

Values = Mapping[str, int]  # of each stat by its name: its value, or its change in units

UNIT = 5  # points of a stat per unit of change (docs/reference.md, character stats)
LIMITS = (0, 100)
_WORD = re.compile(r"[\w'-]+")


@dataclass(frozen=True)
class Number:
    """A number that a turn's prompt states between two tags. choices: its valid values, the usual one first."""

    name: str
    tag: str
    choices: tuple[int, ...]

    @property
    def opening(self) -> str:
        return f"<{self.tag}>"

    @property
    def closing(self) -> str:
        return f"</{self.tag}>"


@dataclass(frozen=True)
class Stat(Number):
    """A stat of a character, and how it behaves. choices: the changes in units that the engine can predict; the first
    one counts where nothing is known. meaning: when it changes, as models are asked. label: what it is called;
    empty: its name. colour: of its gauge, as in CSS. start: its value in a new game. step: points for one unit of
    change. low, high: its range. drift: points that every turn adds. restful: an act that raises it is done calmly.
    """

    meaning: str = ""
    label: str = ""
    colour: str = "#6d4fc4"
    start: int = 50
    step: int = UNIT
    low: int = LIMITS[0]
    high: int = LIMITS[1]
    drift: int = 0
    restful: bool = False

    def __post_init__(self) -> None:
        if not LIMITS[0] <= self.low <= self.start <= self.high <= LIMITS[1]:
            raise ValueError(
                f"{self.name} starts at {self.start} between {self.low} and {self.high}; expected low <= start <= "
                f"high, within {LIMITS[0]} to {LIMITS[1]}"
            )
        if not 0 <= self.step <= LIMITS[1] or abs(self.drift) > LIMITS[1]:
            raise ValueError(
                f"{self.name} has step {self.step} and drift {self.drift}; expected at most {LIMITS[1]} points"
            )
        if not self.choices or not all(abs(units) <= MOST_UNITS for units in self.choices):
            limits = f"-{MOST_UNITS} to {MOST_UNITS}"
            raise ValueError(f"{self.name} has the choices {self.choices}; expected units from {limits}")

    def after(self, value: int, change: int) -> int:
        """The value one turn later."""
        return max(self.low, min(self.high, value + self.step * change + self.drift))


MOST_UNITS = 5  # of one change: the vocabulary has the numbers -5..5
MOTION = Number("motion", "ML", (1, 2, 3, 4, 5))  # value ranges: supplement, section 2
STATS = (  # in the order that a prompt states them
    Stat(
        "social",
        "SC",
        (0, 1),
        "1 if two or more characters do something together, such as talking, hugging, walking side by side or kissing; "
        "otherwise 0",
        colour="#2f74d0",
    ),
    Stat(
        "entertainment",
        "ET",
        (0, 1),
        "1 if the main character plays, does sports or relaxes, as in reading, riding, flying, swimming, whispering or "
        "archery; otherwise 0",
        colour="#d07a1c",
    ),
    Stat(
        "stamina",
        "ST",
        (-1, 1),
        "1 if the motion restores strength, as eating, drinking, lying, sleeping, hugging and being treated do; "
        "otherwise -1",
        colour="#2a9c65",
        restful=True,
    ),
)


def changes(known: Values, stats: Sequence[Number]) -> dict[str, int]:
    """The change of each stat, in order: the known one, or the usual one."""
    return {stat.name: known.get(stat.name, stat.choices[0]) for stat in stats}


def questions(first: int, stats: Sequence[Stat] = STATS) -> str:
    """What a model is asked of each stat, numbered from `first` on."""
    rows = (f"({number}) {stat.name} <{stat.tag}>: {stat.meaning}." for number, stat in enumerate(stats, start=first))
    return " ".join(rows)


@dataclass(frozen=True)
class Consequence:
    """While `stat` is at most `at_most`, a turn can raise only the stats in `only`."""

    stat: str
    at_most: int
    only: tuple[str, ...]


@dataclass(frozen=True)
class Rules:
    """The stats of a world, in the order that its prompts state them, and how the engine's predictions change them."""

    stats: tuple[Stat, ...] = STATS
    consequences: tuple[Consequence, ...] = ()

    def __post_init__(self) -> None:
        named = [name for rule in self.consequences for name in (rule.stat, *rule.only)]
        unknown = [name for name in named if name not in self.names]
        if unknown:
            known = ", ".join(self.names)
            raise ValueError(f"a consequence names an unknown stat {unknown[0]!r}; the stats are {known}")
        for words in (self.names, [MOTION.tag, *(stat.tag for stat in self.stats)]):
            if len(set(words)) < len(words):
                raise ValueError(f"two stats share a name or a tag: {', '.join(words)}; give each its own")

    @property
    def names(self) -> tuple[str, ...]:
        """The stats' names, in order."""
        return tuple(stat.name for stat in self.stats)

    def label(self, name: str) -> str:
        """A stat's name in this world."""
        return next(stat.label for stat in self.stats if stat.name == name) or name

    @property
    def start(self) -> dict[str, int]:
        """The stats of a new game."""
        return {stat.name: stat.start for stat in self.stats}

    def is_restful(self, change: Values) -> bool:
        """Whether an act with this change is done calmly."""
        known = self.change(change)
        return any(stat.restful and known[stat.name] > 0 for stat in self.stats)

    def change(self, known: Values) -> dict[str, int]:
        """A change of every stat of these rules."""
        return changes(known, self.stats)

    def only(self, values: Values) -> tuple[str, ...]:
        """The stats that a turn can raise now."""
        held = [rule.only for rule in self.consequences if values[rule.stat] <= rule.at_most]
        return tuple(name for name in self.names if all(name in names for names in held))

    def allowed(self, values: Values, change: Values) -> dict[str, int]:
        """The part of a change of every stat, in units, that counts with these stats."""
        only = self.only(values)
        return {name: units if name in only else min(0, units) for name, units in change.items()}

    def after(self, values: Values, counted: Values) -> dict[str, int]:
        """The stats one turn later. counted: as from `allowed`."""
        return {stat.name: stat.after(values[stat.name], counted[stat.name]) for stat in self.stats}


PUBLISHED_RULES = Rules()


@dataclass(frozen=True)
class Act:
    """A kind of motion: its phrase, the changes in units that it brings, where they are not the usual ones, and whether
    it takes a second character. places: where it is proposed; empty: anywhere.
    """

    phrase: str
    change: Values = field(default_factory=dict, hash=False)
    company: bool = False
    places: tuple[str, ...] = ()


@dataclass(frozen=True)
class Words:
    """The words that a world knows. adverbs: in groups, from still to wild. things, looks: what a character may carry,
    and what it may look like. untried: pairs of characters, act phrases and places that never appear together in its
    training data, so proposals never combine them. pronouns: pairs of a character and their pronoun.
    """

    characters: tuple[str, ...] = ()
    acts: tuple[Act, ...] = ()
    places: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    adverbs: tuple[tuple[str, ...], ...] = ()
    things: tuple[str, ...] = ()
    looks: tuple[str, ...] = ()
    untried: tuple[tuple[str, str], ...] = ()
    pronouns: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for kind in fields(self):
            groups = (item if isinstance(item, tuple) else (item,) for item in getattr(self, kind.name))
            for text in (getattr(item, "phrase", item) for group in groups for item in group):
                if not text.strip() or ";" in text:
                    raise ValueError(f"the words of a world have {text!r} in {kind.name}; expected text without `;`")

    @cached_property
    def _untried(self) -> frozenset[frozenset[str]]:
        return frozenset(map(frozenset, self.untried))

    def tried(self, one: str, other: str) -> bool:
        """Whether two of a character, an act's phrase and a place may appear together in the training data."""
        return frozenset((one, other)) not in self._untried

    def untried_in(self, instruction: str) -> list[tuple[str, str]]:
        """The pairs of `untried` that an instruction combines."""
        named = self.named_in(instruction)
        return [pair for pair in dict.fromkeys(self.untried) if named.issuperset(pair)]

    def named_in(self, text: str) -> frozenset[str]:
        """The characters, act phrases and places in any text. Of "run away" and "run", the longer one counts."""
        left, named = f" {' '.join(_WORD.findall(text.lower()))} ", set()
        for known in sorted(
            (*self.characters, *(act.phrase for act in self.acts), *self.places), key=len, reverse=True
        ):
            spelled = f" {' '.join(_WORD.findall(known.lower()))} "
            if spelled in left:
                named.add(known)
                left = left.replace(spelled, " | ")
        return frozenset(named)

    def parts_of(self, instruction: str) -> tuple[tuple[str, ...], str, str, str]:
        """(who, motion, time, place) of an instruction; of another text, the characters and the place that it names."""
        if parts := PUBLISHED.fullmatch(instruction):
            place, same = parts["place"], "in the same place by "
            setting = (place[len(same) :], "") if place.startswith(same) else time_and_place(place, self.times)
            return names_of(parts["who"]), parts["motion"], *setting
        who, places = (
            tuple(filter(self.named_in(instruction).__contains__, known)) for known in (self.characters, self.places)
        )
        return who, instruction, "", "".join(places[:1])

    def nearest(self, word: str, count: int = 3) -> list[str]:
        """The words of this world that are spelled most like another one; none if no spelling is near. For what is
        written as a name, the characters; for a word that is a part of known texts only, these texts; for what a known
        word begins with, as "lab", that word.
        """
        if word[:1].isupper() and self.characters:
            return difflib.get_close_matches(word, self.characters, count, cutoff=0)
        kinds = (self.characters, [act.phrase for act in self.acts], self.places, self.times, *self.adverbs)
        texts = [text for kind in (*kinds, self.things, self.looks) for text in kind]
        if around := [text for text in texts if word.lower() in text.lower().split()]:
            return around[:count]
        known = {part.lower(): part for text in texts for part in text.split()}
        near = [part for part in known if part.startswith(word.lower()) and len(word) > 2]
        near += difflib.get_close_matches(word.lower(), known, count, cutoff=0.7)  # 0.6 takes "pancake" for "dance"
        return [known[part] for part in dict.fromkeys(near)][:count]

    def act_of(self, motion: str) -> Act | None:
        """The act in the motion part of an instruction; None if the world does not know it. Of "run away" and "run",
        the longer one counts.
        """
        text = f" {motion.lower()} "
        found = (act for act in self.acts if f" {act.phrase.lower()} " in text)
        return max(found, key=lambda act: len(act.phrase), default=None)


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
