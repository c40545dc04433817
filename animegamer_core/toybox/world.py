"""The content of the Toybox world: films, characters, motions, places, props, and the words for them.

Every place is in one film, whose style its shots have; characters of other films keep their own look, in its light.
Drawing, games and the vocabulary all follow these tables.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..game.life import STATS, Act, Consequence, Life, Rules, Words
from ..game.state import Instruction

FRAMES, HEIGHT, WIDTH, FPS = 17, 192, 288, 8
AMPLITUDES = (0.6, 20.0)  # range of target motion, pixels per frame at 480 px height


@dataclass(frozen=True)
class Character:
    """A character's name, film, and the pronoun that an instruction may use instead of the name."""

    name: str
    film: str
    pronoun: str


@dataclass(frozen=True)
class Motion:
    """A kind of motion: its English phrase and the paper's labels.

    social and entertainment are 0 or 1, stamina is -1 or +1 (the paper's supplement, section 2). partner: whether it
    needs a second character. places: where the director proposes it; empty: anywhere.
    """

    name: str
    phrase: str
    social: int
    entertainment: int
    stamina: int
    partner: bool = False
    places: tuple[str, ...] = ()

    @property
    def change(self) -> dict[str, int]:
        """How it changes the stats."""
        return {"social": self.social, "entertainment": self.entertainment, "stamina": self.stamina}


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Everything that a shot shows.

    amplitude: the target motion in pixels per frame at 480 px height. prop_told: whether the instruction names the
    prop's colour. seed: of small random differences, and of the choice of the adverb. refers: which part of the
    instruction refers back to earlier turns, one of REFERENCES; the other fields hold what it refers to.
    """

    character: str
    motion: str
    place: str
    time: str
    amplitude: float
    seed: int
    partner: str | None = None
    prop: str | None = None
    prop_colour: str | None = None
    prop_told: bool = False
    refers: str | None = None

    @property
    def film(self) -> str:
        """The film whose style the shot has."""
        return PLACES[self.place]


# film -> its characters with their pronouns
CASTS: dict[str, str] = {
    "meadow": "Miko she, Taro he, Hana she, Goro he",
    "harbour": "Yuzu she, Nori he, Rin she, Kai he",
    "lantern": "Beni she, Pico he, Suzu she, Tomo he",
    "snow": "Yuki she, Aki he, Momo she, Kuma he",
    "orbit": "Luna she, Leo he, Nova she, Bolt he",
}
CHARACTERS: dict[str, Character] = {
    name: Character(name, film, pronoun)
    for film, cast in CASTS.items()
    for name, pronoun in (row.split() for row in cast.split(", "))
}

_OUTDOORS = ("beach", "forest", "mountain", "street", "castle", "garden", "market", "rooftop")
_WATERS = ("beach", "forest", "mountain", "garden")
MOTIONS: dict[str, Motion] = {
    row.name: row
    for row in (
        Motion("sleep", "sleep under a blanket", 0, 0, 1),
        Motion("eat", "eat noodles", 0, 0, 1),
        Motion("talk", "talk to a friend", 1, 0, -1, partner=True),
        Motion("hug", "hug a friend", 1, 0, 1, partner=True),
        Motion("fly", "fly on a broomstick", 0, 1, -1, places=_OUTDOORS),
        Motion("run", "run", 0, 1, -1),
        Motion("dance", "dance", 0, 1, -1),
        Motion("wave", "wave hello", 0, 0, -1),
        Motion("read", "read a book", 0, 1, -1),
        Motion("swing", "ride a swing", 0, 1, -1, places=_OUTDOORS),
        Motion("climb", "climb a ladder", 0, 0, -1),
        Motion("swim", "swim", 0, 1, -1, places=_WATERS),
        Motion("ball", "play ball with a friend", 1, 1, -1, partner=True),
        Motion("shake", "shake hands with a friend", 1, 0, -1, partner=True),
        Motion("race", "race a friend", 1, 1, -1, partner=True, places=_OUTDOORS),
        Motion("jump", "jump", 0, 1, -1),
        Motion("guitar", "play the guitar", 0, 1, -1),
        Motion("ride", "ride a bicycle", 0, 1, -1, places=_OUTDOORS),
        Motion("paint", "paint a picture", 0, 1, -1),
        Motion("drink", "drink tea", 0, 0, 1),
    )
}

# place -> its film. If names decided the style, an engine would learn whole casts, and draw a guest as one of its own.
PLACES: dict[str, str] = {
    "beach": "harbour",
    "forest": "meadow",
    "mountain": "snow",
    "street": "lantern",
    "castle": "lantern",
    "kitchen": "meadow",
    "bedroom": "lantern",
    "library": "snow",
    "garden": "meadow",
    "market": "harbour",
    "rooftop": "orbit",
    "classroom": "orbit",
}
TIMES = ("day", "night")
PROPS = ("car", "umbrella", "scarf", "balloon", "flag", "cat")
COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (222, 44, 50),
    "blue": (40, 96, 226),
    "green": (38, 164, 72),
    "yellow": (250, 208, 40),
    "purple": (142, 60, 186),
    "white": (250, 250, 250),
}

ADVERBS: dict[int, tuple[str, str, str]] = {
    1: ("barely", "faintly", "slightly"),
    2: ("gently", "slowly", "softly"),
    3: ("steadily", "calmly", "evenly"),
    4: ("quickly", "briskly", "swiftly"),
    5: ("wildly", "furiously", "madly"),
}

# What an instruction may leave out because earlier turns tell it: place ("in the same place"), who ("she"), again ("do
# the same again"), they (both characters of the last shot of two), friend ("she ... the friend from before").
REFERENCES = ("place", "who", "again", "they", "friend")
SAME_PLACE, AGAIN, BOTH, A_FRIEND, THE_FRIEND = (
    "in the same place by",
    "do the same again",
    "they",
    "a friend",
    "the friend from before",
)

# Without a drift, two of the stats could only rise. With these values, the stats stay level if 20 % of the turns are
# restful, 13 % social and 62 % entertaining. So every character can keep them level, although training shows some only
# one restful act, or only two that entertain nobody, and no act should take more than 15 % of the turns.
_SOCIAL, _ENTERTAINMENT, _STAMINA = STATS
RULES = Rules(
    (replace(_SOCIAL, step=15, drift=-2), replace(_ENTERTAINMENT, step=8, drift=-5), replace(_STAMINA, drift=3)),
    (Consequence("stamina", 0, ("stamina",)),),
)
WORDS = Words(
    characters=tuple(CHARACTERS),
    acts=tuple(Act(row.phrase, row.change, row.partner, row.places) for row in MOTIONS.values()),
    places=tuple(PLACES),
    times=TIMES,
    adverbs=tuple(ADVERBS.values()),
    things=PROPS,
    looks=tuple(COLOURS),
    pronouns=tuple((row.name, row.pronoun) for row in CHARACTERS.values()),
)
LIFE = Life(RULES, WORDS)  # as in world.json


def characters(scene: Scene) -> tuple[str, ...]:
    """Return the names of the shot's characters, the main one first."""
    return (scene.character,) if scene.partner is None else (scene.character, scene.partner)


def caption(scene: Scene, level: int) -> str:
    """Return the scene's caption in the published format, for a measured motion level 1..5; it never refers back."""
    return Instruction(characters(scene), motion_text(scene), scene.place, adverb(scene, level), scene.time).text


def instruction(scene: Scene, level: int) -> str:
    """Return the player's instruction for the scene: its caption, or a text that refers back to earlier turns."""
    refers, pronoun = scene.refers, CHARACTERS[scene.character].pronoun
    who = {"who": (pronoun,), "they": (BOTH,), "friend": (pronoun,)}.get(refers, characters(scene))
    place, time = (f"{SAME_PLACE} {scene.time}", "") if refers == "place" else (scene.place, scene.time)
    return Instruction(who, _said_motion(scene), place, adverb(scene, level), time).text


def _said_motion(scene: Scene) -> str:
    if scene.refers == "again":
        return motion_text(scene).replace(MOTIONS[scene.motion].phrase, AGAIN)
    return motion_text(scene).replace(A_FRIEND, THE_FRIEND) if scene.refers == "friend" else motion_text(scene)


def adverb(scene: Scene, level: int) -> str:
    """Return one of a measured motion level's three adverbs, chosen by the scene's seed."""
    return random.Random(f"adverb:{scene.seed}:{level}").choice(ADVERBS[level])


def motion_text(scene: Scene) -> str:
    """Return the motion's phrase with the prop, and with the prop's colour if the instruction names it."""
    phrase = MOTIONS[scene.motion].phrase
    if scene.prop is None:
        return phrase
    return f"{phrase} with {f'a {scene.prop_colour}' if scene.prop_told else 'the'} {scene.prop}"


def words(text: str) -> tuple[str, ...]:
    """Split a text into lower-case words and punctuation marks."""
    return tuple(re.findall(r"[a-z]+|[^\sa-z]", text.lower()))


def vocabulary(references: bool = False) -> tuple[str, ...]:
    """Return every word and punctuation mark of every possible instruction, in alphabetical order.

    references: whether to include the words of instructions that refer back to earlier turns.
    """
    sources: Sequence[str] = (
        "Character: , ; Motion: ; Background: . with a the",
        *CHARACTERS,
        *(motion.phrase for motion in MOTIONS.values()),
        *(adverb for row in ADVERBS.values() for adverb in row),
        *PLACES,
        *TIMES,
        *PROPS,
        *COLOURS,
        *((SAME_PLACE, AGAIN, BOTH, THE_FRIEND, *(row.pronoun for row in CHARACTERS.values())) if references else ()),
    )
    return tuple(sorted({word for source in sources for word in words(source)}))
