"""Reads plain sentences: "Miko skis down the hill" becomes the published form, in words that the world knows.

A world's words, and the words that mean about the same (meanings.txt), are looked for from left to right. What a
sentence leaves out is taken from the turns before. Nothing is lost without a word: a `Reading` says what this world
cannot show.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from pathlib import Path

from ..messages import shortened
from .life import Act, Life, Rules, Words, time_and_place
from .recall import CONJUNCTIONS, INTRODUCING, PREPOSITIONS, PRONOUNS, PUBLISHED, REFERRING, WORD, names_of
from .state import Instruction

MEANINGS = Path(__file__).with_name("meanings.txt")  # from WordNet, whose notice it holds
_QUOTED = re.compile('["\u201c](.+)["\u201d]')
_TOKEN = re.compile(WORD)
_DETERMINERS = INTRODUCING | REFERRING | {"one"}
_PREPOSITIONS = PREPOSITIONS | frozenset("about down up during like".split())
_PRONOUNS = PRONOUNS | {"both"}
_OTHERS = _PRONOUNS - frozenset("i you me".split())
_FUNCTION_WORDS = _DETERMINERS | _PREPOSITIONS | _PRONOUNS
_PLURAL = frozenset("we they us them both".split())
_PASSED_OVER = frozenset(
    "who which is are was were be been being am does do did has have had will would can could must may again too also "
    "well as here there now next later afterwards very so just really away out back together still same time this more "
    "instead else starts start begins begin keeps keep wants want tries try goes gets let lets makes makes takes gives "
    "comes where everyone everybody something someone somebody two himself herself itself themselves each other not no "
    "it's let's".split()
)
_NEW_CLAUSE = CONJUNCTIONS | {"because"}
_ENDINGS = [row.split("-") for row in "ies-y ied-y es- s- ed- er- ing- ing-e d- ying-ie".split()]
_LIGHT = frozenset(  # verbs of which a noun says more, as in "plays cards", or another verb, as in "goes and swims"
    "play move go went gone come travel have take give make do get look".split()
)
_WHERE = frozenset("home outside outdoors inside indoors upstairs downstairs downtown nearby".split())  # without a noun
OWN_PLACES = "own places"  # which count wherever they stand
_DONE = ("acts", "nouns", "moves", "going")  # the kinds that say what is done
STRANGE = "strange"  # the kind of a word that the world does not know


@dataclass(frozen=True)
class Reading:
    """How a sentence was read. instruction: for the engine. typed: the sentence, empty if it is the instruction.
    unknown: typed words that this world cannot show, or for which a turn has no room.
    """

    instruction: str
    typed: str = ""
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Find:
    """What stands at one place of a sentence. meant: what the world calls it. exact: whether that is what was typed.
    by: the preposition before it. clause: the number of its clause.
    """

    kind: str
    meant: str
    typed: str
    exact: bool = False
    by: str = ""
    clause: int = 0


def read_plainly(text: str, life: Life, past: Sequence[str], unknown: Sequence[str] = ()) -> Reading:
    """Read an instruction in the words of a world, if it lists any.

    past: the instructions of the turns so far, oldest first. unknown: words of the text that the engine does not know;
    without any, the published form stays as it is. So does a text in double quotes. ValueError if the world shows
    nothing that is done.
    """
    if quoted := _QUOTED.fullmatch(text):
        return Reading(quoted[1], unknown=tuple(unknown))
    match, words = PUBLISHED.fullmatch(text), life.words or Words()
    if match and not unknown or not words.acts:
        return Reading(text, unknown=tuple(unknown))
    finds = list(_scan("{who} {motion} in the {place}".format(**match.groupdict()) if match else text, words))
    before = [part for part in map(PUBLISHED.fullmatch, reversed(past)) if part]
    done = _what_is_done(finds)
    acts = (words.act_of(done.meant) if done else None, *(words.act_of(part["motion"]) for part in before))
    act = next(filter(None, acts), None)
    named = any(find.kind == "who" or find.typed.lower() in _OTHERS or find.exact for find in finds)
    strange = sum(find.kind == STRANGE for find in finds)
    by_chance = not named and strange > 0 and (done is None or 2 * strange >= len(finds))
    if act is None or not finds or by_chance:
        known = "; ".join(known.phrase for known in words.acts[:3])
        like = f"this world shows nothing like {shortened(text, 60)!r}; say what somebody does, for example: {known}"
        raise ValueError(f"{like}; a text in double quotes is played as it is")
    time, place = _best(finds, "times"), _best(finds, "places")
    for part in before:
        last_time, last_place = time_and_place(part["place"].removeprefix("in the same place by "), words.times)
        time, place = time or last_time, place or (last_place if last_place in words.places else "")
    thing, look = _best(finds, "things"), _best(finds, "looks")
    carried = thing and (f" with a {look} {thing}" if look else f" with the {thing}")
    instruction = Instruction(
        _who(finds, done, act, words, before),
        act.phrase + carried,
        place or next(iter(words.places), ""),
        _best(finds, "adverbs") or _usual_adverb(act, words, life.rules),
        time or next(iter(words.times), ""),
    )
    used = {act.phrase, time, place, thing, look, instruction.adverb, *instruction.characters} - {""}
    left_out = [find.typed for find in finds if find.meant not in used and find.kind not in ("pronoun", "going")]
    return Reading(instruction.checked().text, text, tuple(dict.fromkeys(left_out)))


def _what_is_done(finds: Sequence[_Find]) -> _Find | None:
    """In the first clause that says it: a verb or its object that is clear, else another noun, or a vaguer verb."""

    def vague(find: _Find) -> tuple[bool, int, int]:
        is_clear = find.kind == "acts" or find.kind == "nouns" and not find.by
        return find.kind == "going", find.clause, 0 if is_clear else 1 if find.kind == "nouns" else 2

    return min((find for find in finds if find.kind in _DONE), key=vague, default=None)


def _best(finds: Sequence[_Find], kind: str) -> str:
    """What was found of a kind, the world's own words first; empty if there is nothing."""
    best = max((find for find in finds if find.kind == kind), key=lambda find: find.exact, default=None)
    return best.meant if best else ""


def _who(
    finds: Sequence[_Find], done: _Find | None, act: Act, words: Words, before: Sequence[re.Match[str]]
) -> tuple[str, ...]:
    """Those who are named before what is done, else whom a pronoun means or who was on; with an act for two, a friend.

    before: the parts of the past instructions, the last one first.
    """
    known = (tuple(name for name in names_of(part["who"]) if name in words.characters) for part in before)
    shown = list(filter(None, known))
    first = finds if done is None else finds[: finds.index(done)]
    named = tuple(dict.fromkeys(find.meant for find in first if find.kind == "who"))
    others = [find.meant for find in finds if find.kind == "who"]
    pronoun = next((find.typed.lower() for find in first if find.kind in ("who", "pronoun")), "")
    couple = next((names for names in shown if len(names) > 1), ())
    if pronoun in _PLURAL and couple:
        return couple
    if not named or pronoun in _PRONOUNS:
        on = [name for names in shown for name in names if name not in others]
        named = tuple((*on, *others, *words.characters)[:1])
    if act.company and len(named) == 1:
        recent = [name for names in shown for name in names]
        tried = [name for name in words.characters if words.tried(named[0], name)]
        named += tuple(name for name in (*others, *recent, *tried) if name != named[0])[:1]
    return named


def _usual_adverb(act: Act, words: Words, rules: Rules) -> str:
    group = 1 if rules.is_restful(act.change) else 2  # from still on: gentle, or in the middle
    return words.adverbs[min(group, len(words.adverbs) - 1)][0] if words.adverbs else ""


def _scan(text: str, words: Words) -> Iterator[_Find]:
    """What the world knows in a text, from left to right, and what is strange to it."""
    tokens = _TOKEN.findall(text)
    index, clause, preposition, in_phrase, going = 0, 0, "", False, False
    while index < len(tokens):
        token = tokens[index].lower()
        kinds = _kinds(preposition, in_phrase, token)
        kind, meant, count = next(_matches(tokens, index, words, kinds), ("", "", 1))
        typed = " ".join(tokens[index : index + count])
        if kind and (count > 1 or token not in _FUNCTION_WORDS):
            own = meant.lower().split()[0]
            exact = own in _stems(token, kind) or kind == "places" and token.startswith(own)  # "mountainside"
            shown_as = "places" if kind == OWN_PLACES else kind
            yield _Find(shown_as, meant, typed, exact, preposition if in_phrase else "", clause)
            going = going or kind == "going"
            if kind != "looks":
                preposition, in_phrase = "", False
        elif token in _DETERMINERS:
            in_phrase = True
        elif token in _PREPOSITIONS:
            preposition, in_phrase = token, token != "to" or going
        elif token in _PRONOUNS:
            yield _Find("pronoun", "", typed)
            in_phrase = False
        elif token in _PASSED_OVER or token in _NEW_CLAUSE:
            clause, in_phrase = clause + (token in _NEW_CLAUSE), False
        elif not token.isdecimal():
            yield _Find(STRANGE, "", typed)
        index += count


def _kinds(preposition: str, in_phrase: bool, token: str) -> tuple[str, ...]:
    """The kinds of words to look for, the likely ones first."""
    if not in_phrase:
        where = ("places",) if token in _WHERE else ()
        return ("who", *where, "acts", "moves", "going", "times", "nouns", "adverbs", OWN_PLACES)
    if preposition == "with":
        return ("who", "looks", "things", "nouns", "adverbs", "places")
    if preposition:
        return ("who", "looks", "times", "places", "things", "nouns", "adverbs")
    return ("who", "looks", "nouns", "things", "places", "times", "adverbs")


def _matches(tokens: Sequence[str], index: int, words: Words, kinds: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """(kind, what the world calls it, number of tokens) of what stands at a token, the longest of each kind."""
    table = _lexicon(words)
    for kind in kinds:
        there = (row for stem in _stems(tokens[index], kind) for row in table.get((kind, stem), ()))
        lengths = ((_length(tokens[index:], phrase), meant) for phrase, meant in there)
        count, meant = max(lengths, default=(0, ""), key=itemgetter(0))
        if count:
            yield kind, meant, count


def _length(tokens: Sequence[str], phrase: Sequence[str]) -> int:
    """How many tokens a phrase covers whose first word is there; 0 if not all of it is. It has no determiners."""
    at = 1
    for word in phrase[1:]:
        while at < len(tokens) and tokens[at].lower() in _DETERMINERS:
            at += 1
        if at == len(tokens) or word not in _stems(tokens[at]):
            return 0
        at += 1
    return at


@lru_cache(maxsize=1)
def _meanings() -> list[tuple[str, list[str], list[str]]]:
    """(kind, what a world may call it, other words), of meanings.txt."""
    lines = [line for line in MEANINGS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    rows = (row.partition(":") for row in "\n".join(lines).replace("\n  ", " ").splitlines())
    return [(head.split()[0], head.split()[1:], alike.split()) for head, _, alike in rows]


@lru_cache(maxsize=8)
def _lexicon(words: Words) -> dict[tuple[str, str], list[tuple[tuple[str, ...], str]]]:
    """(kind, first word) -> phrases without determiners, and what the world calls each."""
    more: list[tuple[str, str, str]] = []
    rows = [("who", name, name) for name in words.characters]
    rows += [("acts", act.phrase, act.phrase) for act in words.acts]
    rows += [("adverbs", adverb, adverb) for group in words.adverbs for adverb in group]
    for kind in ("places", "times", "things", "looks"):
        rows += [(kind, text, text) for text in getattr(words, kind)]
    for kind, names, alike in _meanings():
        called = [meant for of, _, meant in rows if of == ("acts" if kind in ("nouns", "moves") else kind)]
        meant = next((text for name in names for text in called if name in text.split()), None)
        if meant is not None:
            more += [(kind, word, meant) for word in (names[0], *alike)]
    meanings = {word: meant for kind, word, meant in more if kind in ("acts", "moves")}
    heads = ((act.phrase.split()[0], act.phrase) for act in words.acts)
    rows += [("acts", head, phrase) for head, phrase in heads if meanings.get(head, phrase) == phrase]
    rows += [(OWN_PLACES, place, place) for place in words.places]
    table: dict[tuple[str, str], list[tuple[tuple[str, ...], str]]] = {}
    for kind, text, meant in rows + more:
        phrase = tuple(word for word in _TOKEN.findall(text.lower()) if word not in _DETERMINERS)
        if phrase:
            kind = "going" if kind in ("acts", "moves") and phrase[0] in _LIGHT and len(phrase) == 1 else kind
            table.setdefault((kind, phrase[0]), []).append((phrase, meant))
    return table


def _stems(token: str, kind: str = "") -> tuple[str, ...]:
    """The words that a token may be a form of: "skis" of ski, "hurried" of hurry, "swimming" of swim."""
    word = re.sub("['\u2019]s$", "", token.lower())
    stems = [word]
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) > 1:
            stem = word[: len(word) - len(ending)]
            stems += [stem + instead]
            if ending in ("ed", "ing") and stem[-1] == stem[-2]:
                stems += [stem[:-1]]
    if kind == "adverbs":
        stems += [f"{word}ly", f"{word[:-1]}ily"]  # "angry" as angrily
    return tuple(stems)
