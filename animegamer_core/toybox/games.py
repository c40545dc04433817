"""Games: chains of scenes with one main character, lasting places, one prop, and gaps that need memory.

Seeds of the splits never meet: a scene's seed carries its split in its lowest bits, and every choice is drawn
from a generator named after the split.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from .world import AMPLITUDES, CHARACTERS, COLOURS, MOTIONS, PLACES, PROPS, TIMES, UNSEEN_PAIRS, Scene

SPLITS = ("train", "heldout", "unseen")
PROP_FRACTION = 0.6  # of a game's turns show its prop
SAME_FILM_FRACTION = 0.6  # of second characters come from the main character's film


@dataclass(frozen=True)
class Game:
    """Scenes of the turns 1..n; `opening` is turn 0, a picture to start from, where the game has one."""

    split: str
    seed: int
    scenes: tuple[Scene, ...]
    opening: Scene | None = None


def scene_seed(split: str, seed: int, turn: int) -> int:
    """Return a 58-bit seed; no seed of one split ever occurs in another."""
    digest = hashlib.sha256(f"toybox/{split}/{seed}/{turn}".encode()).digest()
    return int.from_bytes(digest[:7], "big") * 4 + SPLITS.index(split)


def sample_game(seed: int, *, turns: int = 10, split: str = "train") -> Game:
    """Return a game of `turns` turns: the same for the same seed, split and number of turns.

    "train" and "heldout" hold no unseen (character, motion) pair; in "unseen" every turn is one. The
    prop's colour is named at its first visible turn and never again.
    Raises ValueError for an unknown split or fewer than one turn.
    """
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}; choose one of {', '.join(SPLITS)}")
    if turns < 1:
        raise ValueError(f"a game of {turns} turns cannot be drawn; ask for at least 1")
    rng = random.Random(f"toybox/game/{split}/{seed}")
    character = rng.choice(sorted(UNSEEN_PAIRS))[0] if split == "unseen" else rng.choice(tuple(CHARACTERS))
    prop, colour = rng.choice(PROPS), rng.choice(tuple(COLOURS))
    visible = _visible_turns(rng, turns)
    motions, settings = _motions(rng, character, split), _settings(rng)
    scenes = []
    for turn in range(1, turns + 1):
        motion, (place, time) = next(motions), next(settings)
        scene = Scene(
            film=CHARACTERS[character].film,
            character=character,
            partner=_partner(rng, character, motion),
            motion=motion,
            place=place,
            time=time,
            prop=None,
            prop_colour=None,
            prop_told=False,
            amplitude=_amplitude(rng),
            seed=scene_seed(split, seed, turn),
        )
        if turn in visible:
            scene = replace(scene, prop=prop, prop_colour=colour, prop_told=turn == min(visible))
        scenes.append(scene)
    return Game(split, seed, tuple(scenes))


def opening_game(seed: int, *, turns: int = 10, split: str = "train") -> Game:
    """Return a game whose turn 0 is a picture with the prop, whose colour no instruction names."""
    game = sample_game(seed, turns=turns, split=split)
    first = next(scene for scene in game.scenes if scene.prop is not None)
    rng = random.Random(f"toybox/opening/{split}/{seed}")
    motion = next(_motions(rng, first.character, split))
    opening = replace(
        first,
        motion=motion,
        partner=_partner(rng, first.character, motion),
        place=game.scenes[0].place,
        time=game.scenes[0].time,
        prop_told=False,
        amplitude=_amplitude(rng),
        seed=scene_seed(split, seed, 0),
    )
    return replace(game, scenes=tuple(replace(scene, prop_told=False) for scene in game.scenes), opening=opening)


def sparse_game(seed: int, shown: Sequence[int], *, turns: int, split: str = "train", opening: bool = False) -> Game:
    """Return a game whose prop is visible on the turns `shown` only, and named on the first or shown by its opening."""
    game = (opening_game if opening else sample_game)(seed, turns=turns, split=split)
    first = next(scene for scene in game.scenes if scene.prop is not None)
    bare = [replace(scene, prop=None, prop_colour=None, prop_told=False) for scene in game.scenes]
    for turn in shown:
        named = turn == shown[0] and not opening
        bare[turn - 1] = replace(bare[turn - 1], prop=first.prop, prop_colour=first.prop_colour, prop_told=named)
    return replace(game, scenes=tuple(bare))


def _motions(rng: random.Random, character: str, split: str) -> Iterator[str]:
    """Yield motions of the split without end, each unlike the one before where there is a choice."""
    unseen = split == "unseen"
    allowed = [name for name in MOTIONS if ((character, name) in UNSEEN_PAIRS) == unseen]
    last = None
    while True:
        last = rng.choice([name for name in allowed if name != last] or allowed)
        yield last


def _partner(rng: random.Random, character: str, motion: str) -> str | None:
    if not MOTIONS[motion].partner:
        return None
    same_film = rng.random() < SAME_FILM_FRACTION
    film = CHARACTERS[character].film
    return rng.choice(
        [name for name, row in CHARACTERS.items() if name != character and (row.film == film) == same_film]
    )


def _settings(rng: random.Random) -> Iterator[tuple[str, str]]:
    """Yield (place, time) without end: a place stays two or three turns, day turns to night and back."""
    place, time = rng.choice(PLACES), rng.choice(TIMES)
    place_left, time_left = rng.randint(2, 3), rng.randint(2, 5)
    while True:
        yield place, time
        place_left, time_left = place_left - 1, time_left - 1
        if not place_left:
            place, place_left = rng.choice([name for name in PLACES if name != place]), rng.randint(2, 3)
        if not time_left:
            time, time_left = TIMES[1 - TIMES.index(time)], rng.randint(2, 5)


def _visible_turns(rng: random.Random, turns: int) -> frozenset[int]:
    """Return the turns that show the prop: at least one, early; about PROP_FRACTION of all."""
    first = rng.randint(1, max(1, turns // 4))
    rest = [turn for turn in range(first + 1, turns + 1) if rng.random() < PROP_FRACTION + 0.04]
    return frozenset((first, *rest))


def _amplitude(rng: random.Random) -> float:
    low, high = AMPLITUDES
    return math.exp(rng.uniform(math.log(low), math.log(high)))
