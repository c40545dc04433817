"""Games: sequences of scenes with main characters that come and go, places that last some turns, and a prop.

To predict the prop's colour, a model must remember earlier turns. Splits never share a seed: a scene's seed holds its
split in its lowest bits, and every random choice comes from a generator that is named after the split.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .referring import with_references
from .splits import SEEDED, SPLITS, mains, motions_of, partners_of, places_of
from .world import AMPLITUDES, COLOURS, MOTIONS, PROPS, TIMES, Scene

NEW_SCENES = 2  # the lowest bits of the seeds in all splits whose scenes are new
STAYS = 0.65  # chance that the main character of a turn is that of the turn before, if nobody else comes by chance
PROP_FRACTION = 0.6  # fraction of a game's turns that show its prop
# The Toybox's own benchmark: held-out games that are shipped as text. The held-out games of a dataset count from 0, and
# those of `evaluate toybox` from 1000000, so no model has seen one of these.
BENCHMARK = Path(__file__).with_name("games") / "benchmark.txt"
BENCHMARK_GAMES = tuple(f"heldout-{seed}" for seed in range(900_000, 900_050))


@dataclass(frozen=True)
class Game:
    """The scenes of turns 1..n. opening: the scene of turn 0, a picture to start from, if the game has one."""

    split: str
    seed: int
    scenes: tuple[Scene, ...]
    opening: Scene | None = None


def scene_seed(split: str, seed: int, turn: int) -> int:
    """Return a 58-bit seed; the seeds of training games, held-out games and new scenes never coincide."""
    digest = hashlib.sha256(f"{SEEDED}/{split}/{seed}/{turn}".encode()).digest()
    return int.from_bytes(digest[:7], "big") * 4 + min(NEW_SCENES, tuple(SPLITS).index(split))


def sample_game(seed: int, *, turns: int = 10, split: str = "train", who: Sequence[str] = ()) -> Game:
    """Return a game of `turns` turns: the same for the same seed, split and number of turns.

    who: the main character of each turn, all named; empty: they come and go by chance. "train" and "heldout" contain
    nothing that is kept out of training. In the other splits, every turn is new in the one way that the split is named
    after. The prop's colour is named in the first turn that shows the prop, and never again. ValueError for an unknown
    split or fewer than one turn.
    """
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}; choose one of {', '.join(SPLITS)}")
    if turns < 1:
        raise ValueError(f"a game of {turns} turns cannot be drawn; ask for at least 1")
    rng = random.Random(f"{SEEDED}/game/{split}/{seed}")
    character, motion = rng.choice(mains(split)), ""
    prop, colour = rng.choice(PROPS), rng.choice(tuple(COLOURS))
    visible = _visible_turns(rng, turns)
    setting, scenes = _Setting(rng), list[Scene]()
    for turn in range(1, turns + 1):
        if who:
            character = who[turn - 1]
        elif scenes and rng.random() > STAYS:  # the friend takes over, or somebody comes, of this film or of another
            friend = scenes[-1].partner
            character = friend if friend in mains(split) and rng.random() < 0.5 else rng.choice(mains(split))
        motion = _motion(rng, motions_of(split, character), motion)
        place, time = setting.step(places_of(split, character, motion))
        scene = Scene(
            character=character,
            partner=_partner(rng, split, character, motion, place),
            motion=motion,
            place=place,
            time=time,
            amplitude=_amplitude(rng),
            seed=scene_seed(split, seed, turn),
        )
        if turn in visible:
            scene = replace(scene, prop=prop, prop_colour=colour, prop_told=turn == min(visible))
        scenes.append(scene)
    if not SPLITS[split] and not who:
        return Game(split, seed, with_references(scenes, split, random.Random(f"{SEEDED}/references/{split}/{seed}")))
    return Game(split, seed, tuple(scenes))


def true_game(name: str) -> Game | None:
    """The game with its true scenes for a name of the benchmark; None for other names."""
    return sample_game(int(name.split("-")[1]), split="heldout") if name in BENCHMARK_GAMES else None


def opening_game(seed: int, *, turns: int = 10, split: str = "train") -> Game:
    """Return a game whose turn 0 is a picture that shows the prop; no instruction names the prop's colour."""
    game = sample_game(seed, turns=turns, split=split)
    first = next(scene for scene in game.scenes if scene.prop is not None)
    place = first.place  # its character may not be allowed where the game begins
    rng = random.Random(f"{SEEDED}/opening/{split}/{seed}")
    motion = _motion(rng, motions_of(split, first.character, place), "")
    opening = replace(
        first,
        motion=motion,
        partner=_partner(rng, split, first.character, motion, place),
        place=place,
        time=first.time,
        prop_told=False,
        amplitude=_amplitude(rng),
        seed=scene_seed(split, seed, 0),
        refers=None,
    )
    return replace(game, scenes=tuple(replace(scene, prop_told=False) for scene in game.scenes), opening=opening)


def sparse_game(seed: int, shown: Sequence[int], *, turns: int, split: str = "train", opening: bool = False) -> Game:
    """Return a game that shows its prop only in the turns `shown`.

    The prop's colour is named in the first of them or, with `opening`, shown by the opening picture.
    """
    game = (opening_game if opening else sample_game)(seed, turns=turns, split=split)
    first = next(scene for scene in game.scenes if scene.prop is not None)
    bare = [replace(scene, prop=None, prop_colour=None, prop_told=False) for scene in game.scenes]
    for turn in shown:
        named = turn == shown[0] and not opening
        bare[turn - 1] = replace(bare[turn - 1], prop=first.prop, prop_colour=first.prop_colour, prop_told=named)
    return replace(game, scenes=tuple(bare))


def _motion(rng: random.Random, allowed: Sequence[str], last: str) -> str:
    """Return a random one of the allowed motions, another one than the last if there is a choice."""
    return rng.choice([name for name in allowed if name != last] or allowed)


def _partner(rng: random.Random, split: str, character: str, motion: str, place: str) -> str | None:
    if not MOTIONS[motion].partner:
        return None
    return rng.choice(partners_of(split, character, motion, place))


class _Setting:
    """The place and time of a game, turn by turn: a place stays for two or three turns, day becomes night and back.

    The place changes earlier if the split does not allow the turn's motion there.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._place, self._time = "", ""
        self._place_left, self._time_left = 0, 0

    def step(self, allowed: Sequence[str]) -> tuple[str, str]:
        """Return the (place, time) of the next turn, at one of the allowed places."""
        rng = self._rng
        if not self._place:
            self._place, self._time = rng.choice(allowed), rng.choice(TIMES)
            self._place_left, self._time_left = rng.randint(2, 3), rng.randint(2, 5)
            return self._place, self._time
        self._place_left, self._time_left = self._place_left - 1, self._time_left - 1
        if not self._place_left or self._place not in allowed:
            self._place = rng.choice([name for name in allowed if name != self._place] or allowed)
            self._place_left = rng.randint(2, 3)
        if not self._time_left:
            self._time, self._time_left = TIMES[1 - TIMES.index(self._time)], rng.randint(2, 5)
        return self._place, self._time


def _visible_turns(rng: random.Random, turns: int) -> frozenset[int]:
    """Return the turns that show the prop: about PROP_FRACTION of all, and one in the first quarter."""
    first = rng.randint(1, max(1, turns // 4))
    rest = [turn for turn in range(first + 1, turns + 1) if rng.random() < PROP_FRACTION + 0.04]
    return frozenset((first, *rest))


def _amplitude(rng: random.Random) -> float:
    low, high = AMPLITUDES
    return math.exp(rng.uniform(math.log(low), math.log(high)))
