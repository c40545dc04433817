"""Which scenes the games of each split may contain: one row of data per edition of the games.

The shipped weights were trained on edition 2. It is harder than edition 1: its training games leave out one in six of
every kind of pair, all couples from two films, and the hugs of two characters, so that each kind can be tested as new.
And some of its instructions can only be understood from earlier turns.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from ..game.life import Life
from .world import CHARACTERS, LIFE, MOTIONS, PLACES, REFERENCES, UNSEEN_PAIRS, WORDS, Scene

Pairs = frozenset[tuple[str, str]]
NOVELTIES = ("motion", "place", "setting", "couple", "partner")
SEEN: frozenset[str] = frozenset()  # no novelty
EDITION_NOTE = "games edition"  # key of a world's provenance; a world without it has edition 1


class Casting(NamedTuple):
    """Who does what where: the part of a scene that can be new."""

    character: str
    partner: str | None
    motion: str
    place: str

    @classmethod
    def of(cls, scene: Scene) -> Casting:
        """The casting of a scene."""
        return cls(scene.character, scene.partner, scene.motion, scene.place)


@dataclass(frozen=True)
class GamesEdition:
    """The rules of one edition.

    name: the random generators' seeds begin with it. splits: name -> the novelties that each of its scenes has.
    motions, places, settings, partners: pairs that never occur in training, namely (character, motion), (character,
    place), (motion, place) and (character, motion with a partner). In a pair with a motion, the character is the main
    one; in a pair with a place, it is either. couples: whether couples from two films never occur in training.
    same_film: fraction of second characters that are from the main character's film. references: fraction of turns
    whose instruction refers back.
    """

    number: int
    name: str
    splits: Mapping[str, frozenset[str]]
    motions: Pairs
    places: Pairs = frozenset()
    settings: Pairs = frozenset()
    partners: Pairs = frozenset()
    couples: bool = False
    same_film: float = 1.0
    references: float = 0.0

    @property
    def new_splits(self) -> tuple[str, ...]:
        """The splits whose scenes all have something that never occurs in training."""
        return tuple(name for name, kinds in self.splits.items() if kinds)

    @property
    def reference_kinds(self) -> tuple[str, ...]:
        """The kinds of references that its instructions contain, of REFERENCES."""
        return REFERENCES if self.references else ()

    @property
    def life(self) -> Life:
        """What a world that was trained on its games states: rules, words, and pairs of words never seen together."""
        couples = [
            (name, other)
            for name, other in itertools.combinations(CHARACTERS, 2)
            if self.couples and CHARACTERS[name].film != CHARACTERS[other].film
        ]
        acts = [(name, MOTIONS[motion].phrase) for name, motion in (*self.motions, *self.partners)]
        settings = [(MOTIONS[motion].phrase, place) for motion, place in self.settings]
        return replace(LIFE, words=replace(WORDS, untried=tuple(sorted([*couples, *acts, *self.places, *settings]))))

    def novelties(self, casting: Casting) -> frozenset[str]:
        """Which of NOVELTIES a casting has; SEEN if it may occur in training."""
        character, partner, motion, place = casting
        shown = (character,) if partner is None else (character, partner)
        new = {
            "motion": (character, motion) in self.motions,
            "place": any((name, place) in self.places for name in shown),
            "setting": (motion, place) in self.settings,
            "couple": self.couples and len({CHARACTERS[name].film for name in shown}) > 1,
            "partner": (character, motion) in self.partners,
        }
        return frozenset(name for name, is_new in new.items() if is_new)

    def castings(self, split: str) -> tuple[Casting, ...]:
        """Every casting that may occur in a split's games, in the order of the world's tables."""
        return _castings(self.number, self.splits[split])

    def mains(self, split: str) -> tuple[str, ...]:
        """The main characters to choose from; one with more new (character, motion) pairs occurs more often."""
        if not self.splits[split]:
            return tuple(CHARACTERS)
        return tuple(name for name, _ in sorted({(row.character, row.motion) for row in self.castings(split)}))

    def motions_of(self, split: str, character: str, place: str | None = None) -> tuple[str, ...]:
        """The motions that a main character may have in a split, at a place or (None) anywhere."""
        return _motions_of(self.number, split, character, place)

    def places_of(self, split: str, character: str, motion: str) -> tuple[str, ...]:
        """The places where a main character may have a motion in a split."""
        return _places_of(self.number, split, character, motion)

    def partners_of(self, split: str, character: str, motion: str, place: str) -> tuple[str, ...]:
        """The second characters that a split allows for the rest of a casting."""
        return tuple(name for name in CHARACTERS if self.allows(split, Casting(character, name, motion, place)))

    def allows(self, split: str, casting: Casting) -> bool:
        """Whether a casting may occur in a split's games."""
        return casting.character != casting.partner and self.novelties(casting) == self.splits[split]


@cache
def _castings(number: int, kinds: frozenset[str]) -> tuple[Casting, ...]:
    edition = EDITIONS[number]
    rows = (
        Casting(character, partner, motion, place)
        for character in CHARACTERS
        for motion, row in MOTIONS.items()
        for partner in ([name for name in CHARACTERS if name != character] if row.partner else [None])
        for place in PLACES
    )
    return tuple(row for row in rows if edition.novelties(row) == kinds)


@cache
def _motions_of(number: int, split: str, character: str, place: str | None) -> tuple[str, ...]:
    rows = EDITIONS[number].castings(split)
    found = {row.motion for row in rows if row.character == character and place in (None, row.place)}
    return tuple(name for name in MOTIONS if name in found)


@cache
def _places_of(number: int, split: str, character: str, motion: str) -> tuple[str, ...]:
    rows = EDITIONS[number].castings(split)
    found = {row.place for row in rows if (row.character, row.motion) == (character, motion)}
    return tuple(name for name in PLACES if name in found)


def _every_sixth(first: tuple[str, ...], second: tuple[str, ...], rest: int, *, skewed: bool = False) -> Pairs:
    """One in six of all pairs of two tables, distributed evenly, as in a Latin square."""
    return frozenset(
        (one, other)
        for row, one in enumerate(first)
        for column, other in enumerate(second)
        if (row + (2 * column + column // 3 if skewed else column)) % 6 == rest
    )


_CHARACTERS, _MOTIONS = tuple(CHARACTERS), tuple(MOTIONS)

FIRST = GamesEdition(
    number=1,
    name="toybox",
    splits=MappingProxyType({"train": SEEN, "heldout": SEEN, "unseen": frozenset({"motion"})}),
    motions=UNSEEN_PAIRS,
    same_film=0.6,
)
SECOND = GamesEdition(
    number=2,
    name="toybox2",
    splits=MappingProxyType({"train": SEEN, "heldout": SEEN, **{name: frozenset({name}) for name in NOVELTIES}}),
    motions=_every_sixth(_CHARACTERS, _MOTIONS, 0),
    places=_every_sixth(_CHARACTERS, PLACES, 1, skewed=True),
    settings=_every_sixth(_MOTIONS, PLACES, 2),
    partners=frozenset({("Yuzu", "hug"), ("Beni", "hug")}),
    couples=True,
    references=0.3,
)
EDITIONS: Mapping[int, GamesEdition] = {row.number: row for row in (FIRST, SECOND)}


def edition_of(provenance: Mapping[str, str]) -> GamesEdition:
    """The edition that a world was trained on, by its provenance; ValueError if this program does not know it."""
    said = provenance.get(EDITION_NOTE, str(FIRST.number))
    found = {str(number): edition for number, edition in EDITIONS.items()}
    if said not in found:
        raise ValueError(f"world.json says {EDITION_NOTE} {said!r}; this program knows {', '.join(found)}")
    return found[said]
