"""Plain sentences for a scene: a small grammar of patterns, verbs and adverbs beside the published form.

What a sentence leaves out follows from the turns before: it may leave out the place and the time if they are the same
(`Scene.same`), and it refers back as the scene does (`Scene.refers`). Words in braces are slots:
{who} the name or pronoun, {act} the act in the third person, {plain} its bare form, {ing} its
-ing form with what follows and the prop, {how} the adverb, {where} place and time, {pair} two as one subject, {both}
what they do.
"""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path

from ..game.state import Instruction
from .world import (
    A_FRIEND,
    ADVERBS,
    AGAIN,
    BOTH,
    CHARACTERS,
    COLOURS,
    MOTIONS,
    PLACES,
    PROPS,
    SAME_PLACE,
    THE_FRIEND,
    TIMES,
    Scene,
    adverb,
    characters,
    motion_text,
    words,
)

TEXT = Path(__file__).with_name("games") / "sentences.txt"


@cache
def tables() -> dict[str, dict[str, list[str]]]:
    """The tables of sentences.txt: name -> key -> choices; a table of patterns has them under the key ""."""
    found: dict[str, dict[str, list[str]]] = {}
    for line in TEXT.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            table = found.setdefault(line[1 : line.index("]")], {})
        elif line and not line.startswith("#"):
            key, colon, choices = line.partition(": ")
            if colon and key.isalnum():
                table[key] = choices.split("; ")
            else:
                table.setdefault("", []).append(line)
    return found


def instruction(scene: Scene, level: int) -> str:
    """Return the player's instruction for the scene: its caption, a text that refers back, or a plain sentence."""
    if scene.sentence is not None:
        return sentence(scene, level)
    refers, pronoun = scene.refers, CHARACTERS[scene.character].pronoun
    who = {"who": (pronoun,), "they": (BOTH,), "friend": (pronoun,)}.get(refers, characters(scene))
    place, time = (f"{SAME_PLACE} {scene.time}", "") if refers == "place" else (scene.place, scene.time)
    return Instruction(who, _said_motion(scene), place, adverb(scene, level), time).text


def _said_motion(scene: Scene) -> str:
    if scene.refers == "again":
        return motion_text(scene).replace(MOTIONS[scene.motion].phrase, AGAIN)
    return motion_text(scene).replace(A_FRIEND, THE_FRIEND) if scene.refers == "friend" else motion_text(scene)


def sentence(scene: Scene, level: int) -> str:
    """The scene as a plain sentence, the same for the same scene."""
    rng = random.Random(f"sentence:{scene.sentence}")
    how = adverb(scene, level) if rng.random() < 0.75 else rng.choice(tables()["how"][str(level)])
    here = {"how": how, "where": _where(scene, rng)}
    # only a single word stands between a subject and its verb
    fits = [
        [row for row in rows if " " not in how or not re.search(r"\{how\} \{(act|plain|ing|both|who)\}", row)]
        for rows in (tables()["one"][""], tables()["two"][""])
    ]
    thing = _thing(scene, rng)
    couple = scene.refers in (None, "place", "they") and scene.motion in tables()["together"]
    if couple and (scene.refers == "they" or rng.random() < 0.5):
        pair = "they" if scene.refers == "they" else _pick(rng, "pairs").format(scene.character, scene.partner)
        pattern = rng.choice(fits[1])
        if pair == "they" and pattern.startswith(("let", "make", "i want", "it is time")):
            pair = "them"
        slots = {"pair": pair, "both": _joined(_pick(rng, "together", scene.motion), thing)}
    else:
        third, bare, ing, rest = _act(scene, rng)
        pattern = rng.choice(fits[0])
        slots = {
            "who": _who(scene, pattern),
            "act": _joined(third, rest, thing),
            "plain": _joined(bare, rest, thing),
            "ing": _joined(ing, rest, thing),
        }
    text = re.sub(r"\s+", " ", pattern.format(**slots, **here))
    text = re.sub(r" ([,.?:])", r"\1", re.sub(r"^[\s,:]+", "", text)).replace(",,", ",").replace(", .", ".")
    text = re.sub(r"[,:]+([.?])", r"\1", text).strip(" ,")
    return text[:1].upper() + text[1:]


def _pick(rng: random.Random, table: str, key: str = "") -> str:
    return rng.choice(tables()[table][key])


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _who(scene: Scene, pattern: str) -> str:
    if scene.refers not in ("who", "friend"):
        return scene.character
    pronoun = CHARACTERS[scene.character].pronoun
    as_object = re.search(r"(let|show|see|want|make|for|of) \{who\}", pattern)
    return {"she": "her", "he": "him"}[pronoun] if as_object else pronoun


def _act(scene: Scene, rng: random.Random) -> tuple[str, str, str, str]:
    if scene.refers == "again":
        third, rest = _pick(rng, "once_more").split(" ", 1)
        bare = {"does": "do", "goes": "go", "repeats": "repeat"}[third]
        return third, bare, {"do": "doing", "go": "going", "repeat": "repeating"}[bare], _with_partner(scene, rest)
    third, bare, ing, *words = _pick(rng, "acts", scene.motion).split(" ")
    friend = _pick(rng, "friends") if scene.refers == "friend" else scene.partner or ""
    return third, bare, ing, " ".join(words).replace("*", friend)


def _with_partner(scene: Scene, rest: str) -> str:
    return f"{rest} with {scene.partner}" if scene.partner else rest


def _where(scene: Scene, rng: random.Random) -> str:
    """Place and time in either order; what is as in the turn before is often left out."""
    at, when = _pick(rng, "at", scene.place), _pick(rng, "when", scene.time)
    if scene.refers == "place":
        at = _pick(rng, "there")
    elif "place" in scene.same and rng.random() < 0.6:
        at = ""
    if "time" in scene.same and rng.random() < 0.7:
        when = ""
    return _joined(*((at, when) if rng.random() < 0.7 else (when, at)))


def _thing(scene: Scene, rng: random.Random) -> str:
    if scene.prop is None:
        return ""
    article = f"{rng.choice(('a', 'the'))} {scene.prop_colour}" if scene.prop_told else "the"
    return _pick(rng, "thing", scene.prop).format(article)


def vocabulary() -> tuple[str, ...]:
    """Return every word and punctuation mark of every possible instruction, in alphabetical order."""
    rows = [row for table in tables().values() for choices in table.values() for row in choices]
    sources = (
        "Character: , ; Motion: ; Background: . with a the do go repeat doing going repeating her him they them",
        *CHARACTERS,
        *(motion.phrase for motion in MOTIONS.values()),
        *(adverb for row in ADVERBS.values() for adverb in row),
        *(*PLACES, *TIMES, *PROPS, *COLOURS),
        *(SAME_PLACE, AGAIN, BOTH, THE_FRIEND, *(row.pronoun for row in CHARACTERS.values())),
        *(re.sub(r"\{\w*\}|\*", " ", row) for row in rows),
    )
    return tuple(sorted({word for source in sources for word in words(source)}))
