"""Words for worlds that list none, such as the published ones: everyday acts and places, which the engine's base
language model knows. The characters are those of the film, or those that the story has named so far.
"""

from __future__ import annotations

from dataclasses import replace

from ..life import Act, Life, Words
from ..recall import PUBLISHED, names_of
from ..state import GameSession
from .director import Director

FILM_CHARACTERS = {"qiqi": ("Qiqi",), "sosuke": ("Sosuke", "Ponyo")}  # by the name of the world's spec

EVERYDAY = Words(
    acts=(
        Act("sleep in bed", {"stamina": 1}),
        Act("rest on a bench", {"stamina": 1}),
        Act("eat a meal", {"stamina": 1}),
        Act("drink a cup of tea", {"stamina": 1}),
        Act("talk to a friend", {"social": 1}, company=True),
        Act("walk with a friend", {"social": 1}, company=True),
        Act("greet the neighbors", {"social": 1}),
        Act("help an old woman", {"social": 1}),
        Act("fly on a broomstick", {"entertainment": 1}),
        Act("run", {"entertainment": 1}),
        Act("dance", {"entertainment": 1}),
        Act("read a book", {"entertainment": 1}),
        Act("play with a cat", {"entertainment": 1}),
        Act("sing a song", {"entertainment": 1}),
        Act("look around"),
        Act("walk along the road"),
        Act("clean the room"),
        Act("carry a basket"),
    ),
    places=(
        "bedroom", "kitchen", "garden", "street", "market", "bakery", "forest", "beach", "harbor", "meadow", "hill",
        "living room",
    ),
    times=("morning", "day", "evening", "night"),
    adverbs=(
        ("barely", "faintly"),
        ("gently", "slowly", "softly"),
        ("steadily", "calmly"),
        ("quickly", "swiftly"),
        ("wildly", "furiously"),
    ),
)  # fmt: skip


class NobodyNamedError(ValueError):
    """The world lists no words, and no turn of the game names a character yet."""


def words_for(life: Life, world_name: str, session: GameSession) -> Words:
    """A world's own words, or else everyday words with the characters of its film and of the story so far."""
    if life.words is not None:
        return life.words
    named = [PUBLISHED.fullmatch(turn.instruction) for turn in session.turns]
    who = [name for parts in named if parts for name in names_of(parts["who"])]
    characters = dict.fromkeys([*FILM_CHARACTERS.get(world_name, ()), *who])
    return replace(EVERYDAY, characters=tuple(characters))


def director_for(life: Life, world_name: str, session: GameSession, seed: int) -> Director:
    """The director of a world with this life, for the game so far; ValueError if it has no words to propose with."""
    words = words_for(life, world_name, session)
    if life.words is None and not words.characters:
        raise NobodyNamedError(
            "this world lists no characters, and no turn of this game names one, so no turns can be proposed; first "
            "play a turn in the form `Character: ...; Motion: ...; Background: ...`, or add them to `words` of `life` "
            "in world.json"
        )
    return Director(words, seed)
