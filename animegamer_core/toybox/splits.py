"""Which scenes the games of each split may contain.

Training games leave out one in six of every kind of pair, all couples from two films, and for each character one motion
with a friend, so that each kind can be tested as new.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from .world import CHARACTERS, LIFE, MOTIONS, PLACES, WORDS, Scene

Pairs = frozenset[tuple[str, str]]
NOVELTIES = ("motion", "place", "setting", "couple", "partner")
SEEN: frozenset[str] = frozenset()  # no novelty
# split -> the novelties that each of its scenes has
SPLITS = {"train": SEEN, "heldout": SEEN, **{name: frozenset({name}) for name in NOVELTIES}}
SEEDED = "toybox3"  # the random generators' seeds begin with it


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


def _every_sixth(first: tuple[str, ...], second: tuple[str, ...], rest: int, *, skewed: bool = False) -> Pairs:
    """One in six of all pairs of two tables, distributed evenly, as in a Latin square."""
    return frozenset(
        (one, other)
        for row, one in enumerate(first)
        for column, other in enumerate(second)
        if (row + (2 * column + column // 3 if skewed else column)) % 6 == rest
    )


# Pairs that never occur in training. In a pair with a motion, the character is the main one; in one with a place, it is
# either.
NEW_MOTIONS = _every_sixth(tuple(CHARACTERS), tuple(MOTIONS), 0)
NEW_PLACES = _every_sixth(tuple(CHARACTERS), tuple(PLACES), 1, skewed=True)
NEW_SETTINGS = _every_sixth(tuple(MOTIONS), tuple(PLACES), 2)
_TOGETHER = [name for name, row in MOTIONS.items() if row.partner]
# (character, motion with a partner): one of the five for each character
NEW_PARTNERS = frozenset((name, _TOGETHER[row % len(_TOGETHER)]) for row, name in enumerate(CHARACTERS))

_COUPLES = [pair for pair in itertools.combinations(CHARACTERS, 2) if len({CHARACTERS[name].film for name in pair}) > 1]
_ACTS = [(name, MOTIONS[motion].phrase) for name, motion in (*NEW_MOTIONS, *NEW_PARTNERS)]
_SETTINGS = [(MOTIONS[motion].phrase, place) for motion, place in NEW_SETTINGS]
# What a world that was trained on the games states: rules, words, and pairs of words never seen together.
TRAINED_LIFE = replace(LIFE, words=replace(WORDS, untried=tuple(sorted([*_COUPLES, *_ACTS, *NEW_PLACES, *_SETTINGS]))))


def novelties(casting: Casting) -> frozenset[str]:
    """Which of NOVELTIES a casting has; SEEN if it may occur in training."""
    character, partner, motion, place = casting
    shown = (character,) if partner is None else (character, partner)
    new = {
        "motion": (character, motion) in NEW_MOTIONS,
        "place": any((name, place) in NEW_PLACES for name in shown),
        "setting": (motion, place) in NEW_SETTINGS,
        "couple": len({CHARACTERS[name].film for name in shown}) > 1,
        "partner": (character, motion) in NEW_PARTNERS,
    }
    return frozenset(name for name, is_new in new.items() if is_new)


def allows(split: str, casting: Casting) -> bool:
    """Whether a casting may occur in a split's games."""
    return casting.character != casting.partner and novelties(casting) == SPLITS[split]


@cache
def castings(split: str) -> tuple[Casting, ...]:
    """Every casting that may occur in a split's games, in the order of the world's tables."""
    rows = (
        Casting(character, partner, motion, place)
        for character in CHARACTERS
        for motion, row in MOTIONS.items()
        for partner in (CHARACTERS if row.partner else [None])
        for place in PLACES
    )
    return tuple(row for row in rows if allows(split, row))


def mains(split: str) -> tuple[str, ...]:
    """The main characters to choose from; one with more new (character, motion) pairs occurs more often."""
    if not SPLITS[split]:
        return tuple(CHARACTERS)
    return tuple(name for name, _ in sorted({(row.character, row.motion) for row in castings(split)}))


@cache
def motions_of(split: str, character: str, place: str | None = None) -> tuple[str, ...]:
    """The motions that a main character may have in a split, at a place or (None) anywhere."""
    found = {row.motion for row in castings(split) if row.character == character and place in (None, row.place)}
    return tuple(name for name in MOTIONS if name in found)


@cache
def places_of(split: str, character: str, motion: str) -> tuple[str, ...]:
    """The places where a main character may have a motion in a split."""
    found = {row.place for row in castings(split) if (row.character, row.motion) == (character, motion)}
    return tuple(name for name in PLACES if name in found)


def partners_of(split: str, character: str, motion: str, place: str) -> tuple[str, ...]:
    """The second characters that a split allows for the rest of a casting."""
    return tuple(name for name in CHARACTERS if allows(split, Casting(character, name, motion, place)))
