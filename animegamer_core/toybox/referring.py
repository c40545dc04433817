"""Instructions that refer back: which turns of a game have them, what they refer to, and how well a guess would do.

The scene of such a turn holds the truth. Its own words do not state it, but the last WINDOW turns do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from .splits import Casting, allows, castings
from .world import CHARACTERS, MOTIONS, Scene

REFERRING = 0.3  # fraction of turns whose instruction may refer back
WINDOW = 4  # turns; the default window of a game
WEIGHTS = {"they": 6, "friend": 6}  # higher, since these rarely fit: they need an earlier shot of two characters
HEADS = {  # reference -> the probe heads that must be right about the shot
    "place": ("place",),
    "who": ("character",),
    "again": ("motion",),
    "they": ("character", "partner"),
    "friend": ("character", "partner"),
}
Change = Callable[[Scene, Sequence[Scene]], "Scene | None"]  # (scene, earlier scenes) -> the scene that refers to them


def with_references(scenes: Sequence[Scene], split: str, rng: random.Random) -> tuple[Scene, ...]:
    """A game's scenes, some of them changed so that their instruction refers back to earlier turns.

    A changed scene is still allowed in its split. The first scene never refers back. A kind of reference does not fit
    if the words leave only one answer; of those that fit, the kinds that rarely fit are preferred.
    """
    done: list[Scene] = list(scenes[:1])
    for scene in scenes[1:]:
        refers = rng.random() < REFERRING
        changed = filter(None, (change(scene, done) for change in CHANGES.values())) if refers else ()
        fitting = [found for found in changed if allows(split, Casting.of(found)) and len(answers(found)) > 1]
        weights = [WEIGHTS.get(found.refers, 1) for found in fitting]
        done.append(rng.choices(fitting, weights)[0] if fitting else scene)
    return tuple(done)


def _with_friend(refers: str) -> Change:
    """The change in which the couple of the window's latest shot of two meets again. refers: `they` or `friend`."""

    def change(scene: Scene, earlier: Sequence[Scene]) -> Scene | None:
        couple = next((before for before in reversed(earlier[-WINDOW:]) if before.partner is not None), None)
        if couple is None or couple.character != scene.character:
            return None
        motion = scene.motion if MOTIONS[scene.motion].partner else couple.motion
        return replace(scene, motion=motion, partner=couple.partner, refers=refers)

    return change


CHANGES: dict[str, Change] = {
    "place": lambda scene, earlier: replace(scene, place=earlier[-1].place, refers="place"),
    "who": lambda scene, earlier: (
        replace(scene, refers="who") if scene.partner is None and scene.character == earlier[-1].character else None
    ),
    "again": lambda scene, earlier: replace(
        scene, motion=earlier[-1].motion, partner=earlier[-1].partner, refers="again"
    ),
    "they": _with_friend("they"),
    "friend": _with_friend("friend"),
}


def chance(scene: Scene) -> float:
    """The accuracy of a uniform guess among the answers that fit the words of a scene that refers back.

    The guess knows every rule of the training games, but not the earlier turns.
    """
    return 1 / len(answers(scene))


def answers(scene: Scene) -> set[tuple[str | None, ...]]:
    """The possible values of the reference's HEADS, given only the scene's own words and the rules of training games.

    ValueError for a scene that does not refer back.
    """
    if scene.refers is None:
        raise ValueError("this scene's instruction does not refer back; only one that does has answers to guess")
    heads, own = HEADS[scene.refers], Casting.of(scene)
    pronoun = CHARACTERS[scene.character].pronoun if scene.refers in ("who", "friend") else None
    rows = [*_trained(heads).get(own._replace(**dict.fromkeys(heads)), ()), own]
    fitting = [row for row in rows if pronoun in (None, CHARACTERS[row.character].pronoun)]
    return {tuple(getattr(row, head) for head in heads) for row in fitting}


@cache
def _trained(heads: tuple[str, ...]) -> dict[Casting, list[Casting]]:
    """The training games' castings by all that is in them except `heads`."""
    rows: dict[Casting, list[Casting]] = {}
    for row in castings("train"):
        rows.setdefault(row._replace(**dict.fromkeys(heads)), []).append(row)
    return rows
