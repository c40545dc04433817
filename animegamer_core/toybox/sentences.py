"""Plain sentences for a scene: a small grammar of patterns, verbs and adverbs beside the published form.

What a sentence leaves out follows from the turns before: it may leave out the place and the time if they are the same
(`Told.same`), and it refers back as the scene does (`Told.refers`). Words in braces are slots:
{who} the names or pronouns, {friend} the partner, {act} the act in the third person, {plain} its bare form, {ing} its
-ing form, {how} the adverb, {at} the place, {time} the time, {thing} the prop.
"""

from __future__ import annotations

import random
import re
from typing import NamedTuple

# act -> ways to say it, as (third person, bare form, -ing form) of the verb, and what follows it. A `*` stands for the
# friend; acts of one do not have it.
ACTS: dict[str, tuple[tuple[str, str, str, str], ...]] = {
    "sleep": (
        ("sleeps", "sleep", "sleeping", "under a blanket"),
        ("naps", "nap", "napping", ""),
        ("dreams", "dream", "dreaming", "under a warm blanket"),
        ("takes", "take", "taking", "a nap"),
        ("is", "be", "being", "asleep"),
    ),
    "eat": (
        ("eats", "eat", "eating", "noodles"),
        ("has", "have", "having", "a bowl of noodles"),
        ("enjoys", "enjoy", "enjoying", "some noodles"),
        ("tastes", "taste", "tasting", "hot noodles"),
        ("has", "have", "having", "lunch"),
    ),
    "talk": (
        ("talks", "talk", "talking", "to *"),
        ("chats", "chat", "chatting", "with *"),
        ("speaks", "speak", "speaking", "with *"),
        ("tells", "tell", "telling", "* a story"),
    ),
    "hug": (
        ("hugs", "hug", "hugging", "*"),
        ("embraces", "embrace", "embracing", "*"),
        ("gives", "give", "giving", "* a hug"),
        ("cuddles", "cuddle", "cuddling", "*"),
    ),
    "fly": (
        ("flies", "fly", "flying", "on a broomstick"),
        ("rides", "ride", "riding", "a flying broom"),
        ("soars", "soar", "soaring", "through the air on a broom"),
        ("flies", "fly", "flying", "around"),
    ),
    "run": (
        ("runs", "run", "running", ""),
        ("jogs", "jog", "jogging", "along"),
        ("races", "race", "racing", "along"),
        ("dashes", "dash", "dashing", "off"),
        ("hurries", "hurry", "hurrying", "along"),
    ),
    "dance": (
        ("dances", "dance", "dancing", ""),
        ("does", "do", "doing", "a dance"),
        ("dances", "dance", "dancing", "to the music"),
        ("twirls", "twirl", "twirling", "around"),
    ),
    "wave": (
        ("waves", "wave", "waving", "hello"),
        ("says", "say", "saying", "hello"),
        ("waves", "wave", "waving", "a hand"),
        ("greets", "greet", "greeting", "everybody"),
    ),
    "read": (
        ("reads", "read", "reading", "a book"),
        ("reads", "read", "reading", "a story"),
        ("studies", "study", "studying", "a book"),
        ("looks", "look", "looking", "into a book"),
    ),
    "swing": (
        ("rides", "ride", "riding", "a swing"),
        ("swings", "swing", "swinging", ""),
        ("plays", "play", "playing", "on the swing"),
        ("sits", "sit", "sitting", "on a swing"),
    ),
    "climb": (
        ("climbs", "climb", "climbing", "a ladder"),
        ("goes", "go", "going", "up a ladder"),
        ("climbs", "climb", "climbing", "up"),
        ("steps", "step", "stepping", "up the ladder"),
    ),
    "swim": (
        ("swims", "swim", "swimming", ""),
        ("swims", "swim", "swimming", "in the water"),
        ("goes", "go", "going", "for a swim"),
        ("paddles", "paddle", "paddling", "in the water"),
    ),
    "paint": (
        ("paints", "paint", "painting", "a picture"),
        ("draws", "draw", "drawing", "a picture"),
        ("paints", "paint", "painting", ""),
        ("makes", "make", "making", "a painting"),
    ),
    "sing": (
        ("sings", "sing", "singing", "a song"),
        ("sings", "sing", "singing", ""),
        ("performs", "perform", "performing", "a song"),
        ("sings", "sing", "singing", "out loud"),
    ),
    "jump": (
        ("jumps", "jump", "jumping", "over a rope"),
        ("skips", "skip", "skipping", "rope"),
        ("jumps", "jump", "jumping", "rope"),
        ("hops", "hop", "hopping", "over the rope"),
    ),
    "waltz": (
        ("waltzes", "waltz", "waltzing", "with *"),
        ("dances", "dance", "dancing", "with *"),
        ("dances", "dance", "dancing", "a waltz with *"),
        ("leads", "lead", "leading", "* in a dance"),
    ),
    "clap": (
        ("claps", "clap", "clapping", "hands with *"),
        ("gives", "give", "giving", "* a high five"),
        ("slaps", "slap", "slapping", "hands with *"),
        ("plays", "play", "playing", "a clapping game with *"),
    ),
    "cards": (
        ("plays", "play", "playing", "cards with *"),
        ("plays", "play", "playing", "a card game with *"),
        ("has", "have", "having", "a game of cards with *"),
        ("deals", "deal", "dealing", "cards to *"),
    ),
    "pillows": (
        ("fights", "fight", "fighting", "* with pillows"),
        ("has", "have", "having", "a pillow fight with *"),
        ("hits", "hit", "hitting", "* with a pillow"),
        ("throws", "throw", "throwing", "pillows at *"),
    ),
    "carry": (
        ("carries", "carry", "carrying", "*"),
        ("carries", "carry", "carrying", "* around"),
        ("gives", "give", "giving", "* a ride"),
        ("lifts", "lift", "lifting", "* up"),
    ),
}  # fmt: skip
# What two do as one subject: "they {plain}".
TOGETHER: dict[str, tuple[str, ...]] = {
    "talk": ("talk", "chat", "talk to each other", "have a chat"),
    "hug": ("hug", "hug each other", "embrace", "share a hug"),
    "waltz": ("waltz", "dance together", "dance a waltz", "waltz together"),
    "clap": ("clap hands", "give each other a high five", "clap hands together", "play a clapping game"),
    "cards": ("play cards", "play a card game", "play cards together", "have a game of cards"),
    "pillows": ("have a pillow fight", "fight with pillows", "throw pillows at each other", "play with pillows"),
    "carry": (),  # one carries the other
}
AT: dict[str, tuple[str, ...]] = {
    "beach": ("on the beach", "at the beach", "by the sea"),
    "forest": ("in the forest", "in the woods", "among the trees"),
    "mountain": ("on the mountain", "in the mountains", "up on a mountain"),
    "street": ("in the street", "on the street", "out on the road"),
    "castle": ("at the castle", "in front of the castle", "by the castle"),
    "kitchen": ("in the kitchen", "in a kitchen"),
    "bedroom": ("in the bedroom", "in a bedroom"),
    "library": ("in the library", "at the library", "among the books"),
    "garden": ("in the garden", "in a garden", "by the fence"),
    "station": ("at the station", "on the platform", "by the train"),
    "rooftop": ("on the rooftop", "on the roof", "up on the roof"),
    "snowfield": ("in the snow", "on the snowfield", "in a snowfield"),
}
WHEN: dict[str, tuple[str, ...]] = {
    "day": ("by day", "in the daytime", "during the day", "in the sunlight", "today"),
    "night": ("at night", "by night", "in the dark", "under the moon", "tonight"),
}
THING: dict[str, tuple[str, ...]] = {
    "car": ("with {} car", "next to {} car", "by {} car"),
    "umbrella": ("with {} umbrella", "beside {} umbrella", "next to {} umbrella"),
    "scarf": ("with {} scarf", "in {} scarf", "wearing {} scarf"),
    "balloon": ("with {} balloon", "next to {} balloon", "beside {} balloon"),
    "kite": ("with {} kite", "under {} kite", "below {} kite"),
    "ball": ("with {} ball", "next to {} ball", "by {} ball"),
}
HOW: dict[int, tuple[str, ...]] = {
    1: ("hardly moving", "very slowly", "almost still"),
    2: ("in a gentle way", "without haste", "at ease"),
    3: ("at an even pace", "in a steady way", "as usual"),
    4: ("at a quick pace", "in a hurry", "fast"),
    5: ("like mad", "as fast as possible", "with all might"),
}
THERE = ("there", "in the same place", "here", "at the same place", "still there")
AGAIN = ("does it again", "does the same again", "does that once more", "goes on with it", "repeats it")
FRIENDS = ("the friend from before", "the same friend", "the friend again", "that friend")

# Patterns with the adverb, with {when} and {at} as one slot {where} before or after, for one subject.
ONE: tuple[str, ...] = (
    "{who} {how} {act} {where}.",
    "{who} {act} {how} {where}.",
    "{who} {act} {where} {how}.",
    "{where}, {who} {how} {act}.",
    "{where}, {who} {act} {how}.",
    "{how}, {who} {act} {where}.",
    "{how} {who} {act} {where}.",
    "now {who} {how} {act} {where}.",
    "then {who} {how} {act} {where}.",
    "then {who} {act} {how} {where}.",
    "and then {who} {how} {act} {where}.",
    "and now {who} {act} {how} {where}.",
    "next, {who} {act} {how} {where}.",
    "after that, {who} {how} {act} {where}.",
    "later, {who} {how} {act} {where}.",
    "soon {who} {how} {act} {where}.",
    "so {who} {act} {how} {where}.",
    "{who} is {how} {ing} {where}.",
    "{who} is {ing} {how} {where}.",
    "{who} is {ing} {where}, {how}.",
    "{where}, {who} is {how} {ing}.",
    "now {who} is {how} {ing} {where}.",
    "{who} is now {ing} {how} {where}.",
    "{who} starts {ing} {how} {where}.",
    "{who} begins to {how} {plain} {where}.",
    "{who} starts to {plain} {how} {where}.",
    "{who} wants to {plain} {how} {where}.",
    "{who} will {how} {plain} {where}.",
    "{who} will {plain} {where} {how}.",
    "{who} is going to {plain} {how} {where}.",
    "{who} decides to {plain} {how} {where}.",
    "{who} would like to {plain} {how} {where}.",
    "{who} goes on {ing} {how} {where}.",
    "let {who} {how} {plain} {where}.",
    "let {who} {plain} {how} {where}.",
    "please let {who} {plain} {how} {where}.",
    "show {who} {how} {ing} {where}.",
    "show {who} {ing} {where} {how}.",
    "show how {who} {how} {act} {where}.",
    "i want to see {who} {ing} {how} {where}.",
    "i want {who} to {how} {plain} {where}.",
    "we see {who} {how} {ing} {where}.",
    "we see how {who} {act} {how} {where}.",
    "make {who} {plain} {how} {where}.",
    "it is time for {who} to {plain} {how} {where}.",
    "{where} we see {who} {how} {ing}.",
    "over here, {who} {how} {act} {where}.",
    "look, {who} {act} {how} {where}.",
    "look, {who} is {how} {ing} {where}.",
    "suddenly {who} {how} {act} {where}.",
    "once more a new scene: {who} {act} {how} {where}.",
    "a scene of {who} {how} {ing} {where}.",
    "{who}, {how} {ing} {where}.",
    "{where}: {who} {how} {act}.",
    "{where}: {who} {act} {how}.",
    "what if {who} {how} {act} {where}?",
    "can {who} {plain} {how} {where}?",
    "now it is {who} who {how} {act} {where}.",
    "{who} {how} {act} {where}",
    "{who} {act} {how} {where}",
    "{who} {act} {where}, {how}",
    "{where} {who} {how} {act}",
)
# Patterns for two who do something together; {pair} joins their names, {both} is what they do.
TWO: tuple[str, ...] = (
    "{pair} {how} {both} {where}.",
    "{pair} {both} {how} {where}.",
    "{pair} {both} {where} {how}.",
    "{where}, {pair} {how} {both}.",
    "{where}, {pair} {both} {how}.",
    "then {pair} {how} {both} {where}.",
    "and then {pair} {both} {how} {where}.",
    "now {pair} {both} {how} {where}.",
    "after that, {pair} {how} {both} {where}.",
    "later, {pair} {both} {how} {where}.",
    "{how}, {pair} {both} {where}.",
    "together, {pair} {how} {both} {where}.",
    "{pair} start to {both} {how} {where}.",
    "{pair} begin to {how} {both} {where}.",
    "{pair} want to {both} {how} {where}.",
    "{pair} will {how} {both} {where}.",
    "{pair} are going to {both} {how} {where}.",
    "{pair} decide to {both} {how} {where}.",
    "let {pair} {how} {both} {where}.",
    "let {pair} {both} {how} {where}.",
    "make {pair} {both} {how} {where}.",
    "we see how {pair} {how} {both} {where}.",
    "show how {pair} {both} {how} {where}.",
    "i want {pair} to {how} {both} {where}.",
    "it is time for {pair} to {both} {how} {where}.",
    "look, {pair} {how} {both} {where}.",
    "{where}: {pair} {how} {both}.",
    "can {pair} {both} {how} {where}?",
    "suddenly {pair} {both} {how} {where}.",
    "{pair} meet and {how} {both} {where}.",
    "{pair} {how} {both} {where}",
)
PAIRS = ("{} and {}", "{} together with {}", "{} with {}", "both {} and {}")


class Told(NamedTuple):
    """What a sentence tells: a scene's words. level: 1..5, with one of its adverbs. colour: None if it is not named."""

    seed: int
    character: str
    pronoun: str
    partner: str | None
    act: str
    place: str
    time: str
    prop: str | None
    colour: str | None
    level: int
    adverb: str
    refers: str | None
    same: tuple[str, ...]


def sentence(scene: Told) -> str:
    """The scene as a plain sentence: always the same for the same."""
    rng = random.Random(f"sentence:{scene.seed}")
    how = _how(scene, rng)
    here = {"how": how, "where": _where(scene, rng)}
    # only a single word stands between a subject and its verb
    fits = [
        [row for row in rows if " " not in how or not re.search(r"\{how\} \{(act|plain|ing|both|who)\}", row)]
        for rows in (ONE, TWO)
    ]
    thing = _thing(scene, rng)
    couple = scene.partner is not None and scene.refers in (None, "place", "they") and TOGETHER[scene.act]
    if couple and (scene.refers == "they" or rng.random() < 0.5):
        names = [scene.character, scene.partner]
        pair = "they" if scene.refers == "they" else rng.choice(PAIRS).format(*names)
        pattern = rng.choice(fits[1])
        if pair == "they" and pattern.startswith(("let", "make", "i want", "it is time")):
            pair = "them"
        slots = {"pair": pair, "both": _joined(rng.choice(TOGETHER[scene.act]), thing)}
    else:
        third, bare, ing, rest = _act(scene, rng)
        pattern = rng.choice(fits[0])
        slots = {
            "who": _who(scene, rng, pattern),
            "act": _joined(third, rest, thing),
            "plain": _joined(bare, rest, thing),
            "ing": _joined(ing, rest, thing),
        }
    text = re.sub(r"\s+", " ", pattern.format(**slots, **here))
    text = re.sub(r" ([,.?:])", r"\1", re.sub(r"^[\s,:]+", "", text)).replace(",,", ",").replace(", .", ".")
    text = re.sub(r"[,:]+([.?])", r"\1", text).strip(" ,")
    return text[:1].upper() + text[1:]


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _who(scene: Told, rng: random.Random, pattern: str) -> str:
    if scene.refers == "they":  # of an act that one does to the other
        return scene.character
    if scene.refers not in ("who", "friend"):
        return scene.character
    pronoun = scene.pronoun
    as_object = re.search(r"(let|show|see|want|make|for|of) \{who\}", pattern)
    return {"she": "her", "he": "him"}[pronoun] if as_object else pronoun


def _act(scene: Told, rng: random.Random) -> tuple[str, str, str, str]:
    if scene.refers == "again":
        third, rest = rng.choice(AGAIN).split(" ", 1)
        bare = {"does": "do", "goes": "go", "repeats": "repeat"}[third]
        return third, bare, {"do": "doing", "go": "going", "repeat": "repeating"}[bare], _with_partner(scene, rest)
    third, bare, ing, rest = rng.choice(ACTS[scene.act])
    friend = rng.choice(FRIENDS) if scene.refers == "friend" else scene.partner or ""
    return third, bare, ing, rest.replace("*", friend)


def _with_partner(scene: Told, rest: str) -> str:
    return f"{rest} with {scene.partner}" if scene.partner else rest


def _how(scene: Told, rng: random.Random) -> str:
    return scene.adverb if rng.random() < 0.75 else rng.choice(HOW[scene.level])


def _where(scene: Told, rng: random.Random) -> str:
    """Place and time in either order; what is as in the turn before is often left out."""
    at, when = rng.choice(AT[scene.place]), rng.choice(WHEN[scene.time])
    if scene.refers == "place":
        at = rng.choice(THERE)
    elif "place" in scene.same and rng.random() < 0.6:
        at = ""
    if "time" in scene.same and rng.random() < 0.7:
        when = ""
    return _joined(*((at, when) if rng.random() < 0.7 else (when, at)))


def _thing(scene: Told, rng: random.Random) -> str:
    if scene.prop is None:
        return ""
    article = f"{rng.choice(('a', 'the'))} {scene.colour}" if scene.colour else "the"
    return rng.choice(THING[scene.prop]).format(article)


def _words_of(*texts: str) -> set[str]:
    return {word for text in texts for word in re.findall(r"[a-z]+|[^\sa-z]", re.sub(r"\{\w*\}", " ", text.lower()))}


SENTENCE_WORDS: tuple[str, ...] = tuple(
    sorted(
        _words_of(
            *(part for rows in ACTS.values() for row in rows for part in row),
            *(text for table in (TOGETHER, AT, WHEN, THING, HOW) for row in table.values() for text in row),
            *(*THERE, *AGAIN, *FRIENDS, *ONE, *TWO, *PAIRS),
            "do go repeat doing going repeating her him they them a the with",
        )
        - {"*"}
    )
)
