"""The content of the Toybox world: films, characters, motions, places, props, and the words for them.

A game plays in the film of its first main character. Who visits from another film keeps their own line and look, in
that film's light. Drawing, games and the vocabulary all follow these tables.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace

from ..game.life import STATS, Act, Consequence, Life, Rules, Words
from ..game.state import Instruction

FRAMES, HEIGHT, WIDTH, FPS = 17, 192, 288, 8
AMPLITUDES = (0.6, 14.0)  # range of target motion, pixels per frame at 480 px height


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
    needs a second character.
    """

    name: str
    phrase: str
    social: int
    entertainment: int
    stamina: int
    partner: bool = False

    @property
    def change(self) -> dict[str, int]:
        """How it changes the stats."""
        return {"social": self.social, "entertainment": self.entertainment, "stamina": self.stamina}


@dataclass(frozen=True)
class Scene:
    """Everything that a shot shows.

    amplitude: the target motion in pixels per frame at 480 px height. prop_told: whether the instruction names the
    prop's colour. seed: of what the words leave open (staging, camera, clouds, extras), and of the adverb. refers:
    which part of the instruction refers back to earlier turns, one of REFERENCES; the other fields hold what it refers
    to. sentence: the seed of a plain sentence that replaces the published form. same: what is as in the turn before
    ("place", "time"), which a plain sentence may leave out.
    """

    film: str
    character: str
    partner: str | None
    motion: str
    place: str
    time: str
    prop: str | None
    prop_colour: str | None
    prop_told: bool
    amplitude: float
    seed: int
    refers: str | None = None
    sentence: int | None = None
    same: tuple[str, ...] = ()


FILMS = ("meadow", "harbour", "lantern", "orbit", "frost")

CHARACTERS: dict[str, Character] = {
    name: Character(name, film, pronoun)
    for film, row in zip(
        FILMS,
        (
            "Miko she, Taro he, Hana she, Momo he",
            "Yuzu she, Nori he, Kai he, Puku she",
            "Beni she, Pico he, Ryo he, Luna she",
            "Vega she, Orin he, Bolt he, Nova she",
            "Yuki she, Toma he, Kuro he, Sora she",
        ),
        strict=True,
    )
    for name, pronoun in (entry.split() for entry in row.split(", "))
}

MOTIONS: dict[str, Motion] = {
    row.name: row
    for row in (
        Motion("sleep", "sleep under a blanket", 0, 0, 1),
        Motion("eat", "eat noodles", 0, 0, 1),
        Motion("talk", "talk to a friend", 1, 0, -1, partner=True),
        Motion("hug", "hug a friend", 1, 0, 1, partner=True),
        Motion("fly", "fly on a broomstick", 0, 1, -1),
        Motion("run", "run", 0, 1, -1),
        Motion("dance", "dance", 0, 1, -1),
        Motion("wave", "wave hello", 0, 0, -1),
        Motion("read", "read a book", 0, 1, -1),
        Motion("swing", "ride a swing", 0, 1, -1),
        Motion("climb", "climb a ladder", 0, 0, -1),
        Motion("swim", "swim", 0, 1, -1),
        Motion("paint", "paint a picture", 0, 1, -1),
        Motion("sing", "sing a song", 0, 1, -1),
        Motion("jump", "jump over a rope", 0, 1, -1),
        Motion("waltz", "waltz with a friend", 1, 1, -1, partner=True),
        Motion("clap", "clap hands with a friend", 1, 0, -1, partner=True),
        Motion("cards", "play cards with a friend", 1, 1, 1, partner=True),
        Motion("pillows", "fight a friend with pillows", 1, 1, -1, partner=True),
        Motion("carry", "carry a friend", 1, 0, -1, partner=True),
    )
}

PLACES = (
    "beach", "forest", "mountain", "street", "castle", "kitchen", "bedroom", "library", "garden", "station", "rooftop",
    "snowfield",
)  # fmt: skip
TIMES = ("day", "night")
PROPS = ("car", "umbrella", "scarf", "balloon", "kite", "ball")
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
# restful, 33 % social and 57 % entertaining, about as many as there are of each kind of act.
_SOCIAL, _ENTERTAINMENT, _STAMINA = STATS
RULES = Rules(
    (replace(_SOCIAL, step=6, drift=-2), replace(_ENTERTAINMENT, step=7, drift=-4), replace(_STAMINA, drift=3)),
    (Consequence("stamina", 0, ("stamina",)),),
)
WORDS = Words(
    characters=tuple(CHARACTERS),
    acts=tuple(Act(row.phrase, row.change, row.partner) for row in MOTIONS.values()),
    places=PLACES,
    times=TIMES,
    adverbs=tuple(ADVERBS.values()),
    things=PROPS,
    looks=tuple(COLOURS),
)
LIFE = Life(RULES, WORDS)  # as in world.json


def characters(scene: Scene) -> tuple[str, ...]:
    """Return the names of the shot's characters, the main one first."""
    return (scene.character,) if scene.partner is None else (scene.character, scene.partner)


def caption(scene: Scene, level: int) -> str:
    """Return the scene's caption in the published format, for a measured motion level 1..5; it never refers back."""
    return Instruction(characters(scene), motion_text(scene), scene.place, adverb(scene, level), scene.time).text


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
