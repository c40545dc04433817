"""Instructions that refer back: which turns of a game have them, what they refer to, and how well a guess would do.

The scene of such a turn holds the truth. Its own words do not state it, but the last WINDOW turns do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from .splits import Casting, allows, castings
from .world import CHARACTERS, MOTIONS, Scene, characters

REFERRING = 0.3  # fraction of turns whose instruction may refer back
WINDOW = 4  # turns; the default window of a game
WEIGHTS = {"they": 5, "friend": 6, "who": 3}  # higher for what rarely fits
HEADS = {  # reference -> the probe heads that must be right about the shot
    "place": ("place",),
    "who": ("character",),
    "again": ("motion",),
    "they": ("character", "partner"),
    "friend": ("character", "partner"),
}
Change = Callable[[Scene, Sequence[Scene]], "Scene | None"]  # (scene, earlier scenes) -> the scene that refers to them


def with_references(scenes: Sequence[Scene], split: str, rng: random.Random) -> list[Scene]:
    """A game's scenes, some of them changed so that their instruction refers back to earlier turns.

    A changed scene is still allowed in its split. The first scene never refers back. Of the kinds that fit, those that
    rarely fit are preferred.
    """
    done: list[Scene] = list(scenes[:1])
    for scene in scenes[1:]:
        refers = rng.random() < REFERRING
        changed = filter(None, (change(scene, done) for change in CHANGES.values())) if refers else ()
        fitting = [found for found in changed if allows(split, Casting.of(found))]
        weights = [WEIGHTS.get(found.refers, 1) for found in fitting]
        done.append(rng.choices(fitting, weights)[0] if fitting else scene)
    return done


def _same_place(scene: Scene, earlier: Sequence[Scene]) -> Scene:
    return replace(scene, place=earlier[-1].place, refers="place")


def _pronoun(scene: Scene, earlier: Sequence[Scene]) -> Scene | None:
    if scene.partner is not None or meant(CHARACTERS[scene.character].pronoun, earlier[-1]) != scene.character:
        return None
    return replace(scene, refers="who")


def meant(pronoun: str, before: Scene) -> str | None:
    """Whom `she` or `he` means after a scene: its main character or, if that is the other pronoun's, its partner."""
    return next((name for name in characters(before) if CHARACTERS[name].pronoun == pronoun), None)


def _again(scene: Scene, earlier: Sequence[Scene]) -> Scene | None:
    before = earlier[-1]
    if before.partner is not None and before.character != scene.character:
        return None
    return replace(scene, motion=before.motion, partner=before.partner, refers="again")


def _they(scene: Scene, earlier: Sequence[Scene]) -> Scene | None:
    """The couple of the window's latest shot of two does something together."""
    couple = next((before for before in reversed(earlier[-WINDOW:]) if before.partner is not None), None)
    if couple is None:
        return None
    motion = scene.motion if MOTIONS[scene.motion].partner else couple.motion
    return replace(scene, character=couple.character, motion=motion, partner=couple.partner, refers="they")


def _friend(scene: Scene, earlier: Sequence[Scene]) -> Scene | None:
    """The main character of the turn before meets the one with whom it was last seen."""
    who = earlier[-1].character
    couples = [before for before in earlier[-WINDOW:] if before.partner is not None and before.character == who]
    if not couples:
        return None
    motion = scene.motion if MOTIONS[scene.motion].partner else couples[-1].motion
    return replace(scene, character=who, motion=motion, partner=couples[-1].partner, refers="friend")


CHANGES: dict[str, Change] = {
    "place": _same_place,
    "who": _pronoun,
    "again": _again,
    "they": _they,
    "friend": _friend,
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
    known = [name for name in Casting._fields if name not in heads]
    pronoun = CHARACTERS[scene.character].pronoun if scene.refers in ("who", "friend") else None
    return {
        tuple(getattr(row, head) for head in heads)
        for row in castings("train")
        if all(getattr(row, name) == getattr(own, name) for name in known)
        and pronoun in (None, CHARACTERS[row.character].pronoun)
    } | {tuple(getattr(own, head) for head in heads)}
