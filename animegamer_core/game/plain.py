"""Reads plain sentences: "Miko skis down the hill" becomes the published form, in words that the world knows.

A world's words, and the words that mean about the same (meanings.txt), are looked for from left to right, among the
words of grammar (english.txt). What a sentence leaves out is taken from the turns before. Nothing is lost without a
word: a `Reading` says what this world cannot show.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from itertools import chain
from operator import itemgetter

from ..messages import shortened
from .life import Act, Life, Words
from .recall import ENGLISH, PUBLISHED, WORD, rows_of
from .state import Instruction

MEANINGS = rows_of("meanings.txt")  # from WordNet, whose notice it holds
# The published form, also without some of its parts, as the page's fields write it
_LABELS = {"Character": "who", "Motion": "motion", "Background": "place"}
_SOME_PARTS = re.compile("".join(rf"(?:{label}: (?P<{name}>[^;]+?)(?:; |\.?$))?" for label, name in _LABELS.items()))
_QUOTED = re.compile('["\u201c](.+)["\u201d]')
_TOKEN = re.compile(WORD + "|[.!?;:,]")
_BEFORE = re.compile("(before [^,]+), (.+)", re.IGNORECASE)  # "before dancing, Miko drinks tea": tea comes first
_SHORT = re.compile("['\u2019](s|re|m|ll|d|ve)$")  # "he's", "Nori's"
_DETERMINERS = ENGLISH["introducing"] | ENGLISH["referring"] | {"one"}
_PREPOSITIONS = ENGLISH["prepositions"] | ENGLISH["particles"]
_PRONOUNS = ENGLISH["pronouns"] | ENGLISH["plural"]
_FUNCTION_WORDS = _DETERMINERS | _PREPOSITIONS | _PRONOUNS
_NEW_CLAUSE = ENGLISH["conjunctions"] | ENGLISH["ends"]
_CASES = {"her": "she", "him": "he", "them": "they"}
_ENDINGS = [row.split("-") for row in "ies-y ves-f ied-y es- s- ed- ing- ing-e ed-e ying-ie".split()]
_GRAMMAR = ("over", "then", "light", "denying")  # the kinds of words that mean nothing by themselves
_VERBS = ("acts", "moves", "stances", "going")
_VAGUE = {"acts": 0, "nouns": 0, "moves": 2, "hints": 10, "stances": 11, "going": 12}  # in saying what is done
_SHOWN = ("who", "acts", "nouns", "places", "things")
_ABSENT = ("without", "owner")
_UNSAID = ("pronoun", "going", "hints")
# The kinds to look for, the likely ones first: in a phrase, by its preposition, and elsewhere.
_FIRST = ("who", "then", "denying")
_IN_PHRASE = {
    "": ("looks", "nouns", "things", "places", "times", "adverbs"),
    "with": ("looks", "things", "nouns", "adverbs", "places"),
    "in": ("looks", "times", "things", "places", "nouns", "adverbs"),
}
_ELSEWHERE = ("times", "nouns", "adverbs", "places")
NOTES = {  # of a reading, in English; js/translations.mjs has these keys in the page's languages
    "lastActGoesOn": "Nothing in it can be done here, so the last act goes on: {act}.",
    "isOnNow": "Nobody whom this world knows is named or was on: {who} is on now.",
    "fitsNobody": "Nobody who was on can be '{typed}': {who} is meant.",
    "onlyOne": "Only one can {act} here: {who}. Next turn: {others}?",
    "onlyTwo": "Only two can {act} here: {who}. Next turn: {others}?",
    "takesTwo": "It takes two to {act}: {who} comes, too.",
    "shownInstead": "Shown instead: '{shown}' for '{typed}'.",
    "leftOut": "Left out: '{words}'.",
    "knowsNone": "this world does not know '{words}'; say what somebody does, for example: {acts}; a text in "
    "double quotes is played as it is",
    "showsNone": "this world shows nothing like '{text}'; say what somebody does, for example: {acts}; a text in "
    "double quotes is played as it is",
}
Note = tuple[str, dict[str, str | tuple[str, ...]]]  # a key of NOTES, and what its blanks stand for
STRANGE = "strange"  # the kind of a word that the world does not know


def _sentence(note: Note) -> str:
    """A note in English; each of several words is in quotes of its own, as in js/translations.mjs."""
    key, values = note
    filled = {name: value if isinstance(value, str) else "', '".join(value) for name, value in values.items()}
    return NOTES[key].format(**filled)


class NotShown(ValueError):
    """A sentence that shows nothing of the world. note: why, as a page says it in its language."""

    def __init__(self, note: Note) -> None:
        super().__init__(_sentence(note))
        self.note = note


@dataclass(frozen=True)
class Reading:
    """How a sentence was read. instruction: for the engine. typed: the sentence, empty if it is the instruction.
    unknown: typed words that this world does not know. notes: what else to tell the player about it.
    """

    instruction: str
    typed: str = ""
    unknown: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """The notes in English."""
        return tuple(map(_sentence, self.notes))


@dataclass(frozen=True)
class _Find:
    """What stands at one place of a sentence. meant: what the world calls it. exact: whether that is what was typed.
    by: the preposition before it; `verb` of somebody after the verb, `owner` of one who owns it. clause, turn: their
    numbers in the sentence.
    """

    kind: str
    meant: str
    typed: str
    exact: bool = False
    by: str = ""
    clause: int = 0
    turn: int = 0


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
    said = _SOME_PARTS.fullmatch(text)
    parts = said.groupdict() if said else {"who": _BEFORE.sub(r"\2 \1", text), "motion": None, "place": None}
    setting = parts["place"] and f"in the {parts['place']}"
    finds = _with_misspelt(_scan(" ".join(filter(None, (parts["who"], parts["motion"], setting))), words), words)
    before = [words.parts_of(turn) for turn in reversed(past)]
    done = min((find for find in finds if find.kind in _VAGUE), key=_vagueness, default=None)
    acts = (words.act_of(done.meant) if done else None, *(words.act_of(motion) for _, motion, _, _ in before))
    act = next(filter(None, acts), None)
    if done is None:  # "Leo is sad" says what he is, not how he does something
        how = [find.kind != "adverbs" or find.exact or find.typed.endswith(("ly", "er")) for find in finds]
        finds = [find if does else replace(find, kind=STRANGE, meant="") for find, does in zip(finds, how, strict=True)]
    act = _checked(act, text, finds, done, words)
    now, clause = [find for find in finds if done is None or find.turn <= done.turn], done.clause if done else 0
    time, place = _best(now, "times", clause), _best(now[::-1], "places", clause)  # the last place is the widest
    for _, _, last_time, last_place in before:
        time, place = time or last_time, place or (last_place if last_place in words.places else "")
    thing, look = _best(now, "things", clause), _best(now, "looks", clause)
    carried = thing and (f" with a {look} {thing}" if look else f" with the {thing}")
    present = (tuple(name for name in who if name in words.characters) for who, *_ in before)
    shown = list(filter(None, present))
    people = _people(finds, done, words, shown)
    usual = words.adverbs[: 2 if life.rules.is_restful(act.change) else 3]  # from still on: gentle, or in the middle
    place = place or _best(finds, "places", clause) or next(iter(words.places), "")
    named = _who(finds, people, done, act, words, shown)
    instruction = Instruction(
        named[: 1 + act.company],  # a world draws one mixed figure of two who do what it has seen one do
        act.phrase + carried,
        place,
        _best(now, "adverbs", clause) or (usual[-1][0] if usual else ""),
        time or next(iter(words.times), ""),
    )
    used = {act.phrase, time, place, thing, thing and look, instruction.adverb, *instruction.characters} - {""}
    unknown, notes = _not_shown(finds, done, act, used)
    called = [find.typed for find in finds if find.kind == "pronoun" and find.typed.lower() == "friend"]
    unknown += called if called and all(find.typed not in called for find, _ in people) else []
    repeats = not (ENGLISH["repeating"] - {"on"}).isdisjoint(_plain(text))  # "on" is mostly a preposition
    if done is None and (unknown or not (said or repeats)):  # fields are left empty on purpose
        notes.insert(0, ("lastActGoesOn", {"act": act.phrase}))
    if not shown and all(find.kind != "who" or find.by == "owner" for find in finds):
        notes.append(("isOnNow", {"who": named[0]}))
    known = {*chain(*shown), *(name for find, name in people if find.kind == "who")}
    one = {name: find.typed for find, name in people if find.typed.lower() not in ENGLISH["plural"]}
    new = [name for name in one if shown and name not in known]
    notes += (("fitsNobody", {"typed": one[name], "who": name}) for name in new)
    coming = [name for find, name in people if find.by not in _ABSENT]
    if left := list(dict.fromkeys(name for name in (*named, *coming) if name not in used)):
        here, others = ", ".join(instruction.characters), " / ".join(left)
        notes.append(("onlyTwo" if act.company else "onlyOne", {"act": act.phrase, "who": here, "others": others}))
    added = [name for name in named[1:] if done and all(name != one for _, one in people)]
    notes += (("takesTwo", {"act": act.phrase, "who": name}) for name in added)
    return Reading(instruction.checked().text, text, tuple(unknown), tuple(notes))


def _with_misspelt(scanned: Iterator[_Find], words: Words) -> list[_Find]:
    """What a text says, where it misspells the noun of an act: "rides a bycicle" is the act with this verb and noun, as
    "rides" alone might mean another; and a verb that is no word of the world, as in "mends the bycicle", is strange.
    """
    finds, acts = list(scanned), {word: "" for word in (*words.things, *_FUNCTION_WORDS)}  # near to no act's noun
    for act in words.acts:
        acts |= {noun: "" if act.company else act.phrase for noun in act.phrase.split()[1:] if noun not in acts}
    for wrong in [find for find in finds if find.kind == STRANGE]:
        near = get_close_matches(wrong.typed.lower(), acts, 1, cutoff=0.7)
        phrase = acts[near[0]] if near and near[0][0] == wrong.typed[0].lower() else ""
        for at, find in enumerate(finds):
            if phrase and find.clause == wrong.clause and find.kind in _VERBS:
                if phrase.split()[0] in _stems(_plain(find.typed)[0]):
                    finds[at] = replace(find, kind="acts", meant=phrase, exact=True)
                elif not find.exact:
                    finds[at] = replace(find, kind=STRANGE, meant="")
    return finds


def _checked(act: Act | None, text: str, finds: Sequence[_Find], done: _Find | None, words: Words) -> Act:
    """The act that a turn shows; ValueError where the text names nothing that the world shows, or only by chance.

    done: what the text says is done, if anything.
    """
    denied = done is None and any(find.meant for find in finds if find.kind == STRANGE)
    strange = [find.typed for find in finds if find.kind == STRANGE]
    half = 2 * len(strange) > len(finds) and ENGLISH["somebody's"].isdisjoint(text.lower().split())
    pronouns = {find.typed.lower() for find in finds if find.kind == "pronoun"} - ENGLISH["nobody"]
    shown = ("who",) if text.endswith("?") else _SHOWN  # "will the market go up?" is no turn
    somebody = pronouns or any(find.exact and find.kind in shown for find in finds)
    by_chance = not somebody and strange and (done is None or _VAGUE[done.kind] > 9 or half)
    nothing = not finds and ENGLISH["repeating"].isdisjoint(_plain(text))
    if act is not None and not (denied or nothing or by_chance):
        return act
    known = "; ".join(known.phrase for known in words.acts[:3])
    if strange and not denied:
        raise NotShown(("knowsNone", {"words": tuple(dict.fromkeys(strange)), "acts": known}))
    raise NotShown(("showsNone", {"text": shortened(text, 60), "acts": known}))


def _not_shown(
    finds: Sequence[_Find], done: _Find | None, act: Act, used: Container[str]
) -> tuple[list[str], list[Note]]:
    """(typed words that the world does not know, notes): what is shown instead of what was typed, and what a turn has
    no room for. used: what the world calls all that is shown.
    """
    unknown, left_out, swaps = list[str](), list[str](), dict[str, str]()
    for find, after in zip(finds, [*finds[1:], None], strict=False):
        typed, meant = ({word[:4] for word in _plain(text)} for text in (find.typed, find.meant))
        alike = find.exact and " " not in find.typed or not typed.isdisjoint(meant - _FUNCTION_WORDS)
        if find.meant in used and not alike and (find is done or find.kind not in _UNSAID):
            noun = find.kind == "nouns" and find is not done and find.meant.partition(" ")[2]  # "eats pizza"
            swaps[find.typed] = noun or find.meant
        held = find.kind == "stances" and after is not None and after.kind in ("looks", "things")  # "holding a flag"
        said = held or find.meant in used or find.by == "instead" or find.kind in _UNSAID
        # people are named in notes of their own, and a place that is denied should not be shown
        said = said or find.kind in ("who", "denied") and find.by not in _ABSENT
        words = [{*_stems(word)} for word in _plain(find.typed)]
        if not said and any(map({*_plain(act.phrase)}.isdisjoint, words)):  # "meets a friend" has a word of the act
            (left_out if find.exact else unknown).append(find.typed)
    notes: list[Note] = [("shownInstead", {"shown": meant, "typed": typed}) for typed, meant in swaps.items()]
    notes += [("leftOut", {"words": tuple(dict.fromkeys(left_out))})] if left_out else []
    return list(dict.fromkeys(unknown)), notes


def _vagueness(find: _Find) -> tuple[int, int, int]:
    """Least where a sentence says what is done: in its first clause, by a verb or its object that is clear, else by a
    thing of the world, a verb that is less clear ("rocks out with his guitar"), or another noun; by the vaguest kinds
    only if nothing else does.
    """
    vague = _VAGUE[find.kind] + (find.kind == "nouns" and find.by != "") * (1 if find.exact else 3)
    vague += 2 * (find.kind == "acts" and not find.exact)
    return max(vague, 9), find.clause, vague


def _best(finds: Sequence[_Find], kind: str, clause: int) -> str:
    """What was found of a kind: the world's own words first, then what is in the clause; empty if there is nothing."""
    there = (find for find in finds if find.kind == kind)
    best = max(there, key=lambda find: (find.exact, find.clause == clause, find.by != ""), default=None)
    return best.meant if best else ""


def _who(
    finds: Sequence[_Find],
    people: Sequence[tuple[_Find, str]],
    done: _Find | None,
    act: Act,
    words: Words,
    shown: Sequence[tuple[str, ...]],
) -> tuple[str, ...]:
    """Who does it: the subject of its clause, or of one before, else who was on; and with an act for two, a friend.
    shown: the characters of the turns before, the last turn first.
    """
    gone = {find.meant for find in finds if find.by in ("instead", "without")}
    people = [(find, name) for find, name in people if find.by not in _ABSENT]
    recent = [name for names in shown for name in names if name not in gone]
    clause = done.clause if done else min((find.clause for find, _ in people), default=0)
    subjects = [(find.clause, name) for find, name in people if find.by in ("", "of") and find.clause <= clause]
    named = [name for at, name in subjects if at == subjects[-1][0]]
    here = [name for find, name in people if find.clause == clause]
    others = [*here, *(name for _, name in people)]
    if not named:
        friend = "with" if act.company else None  # "now with Bolt": a hug's friend, but the one who dances
        back = {"to"} if done and done.kind == "nouns" else set()  # "back to Luna, on her broomstick"
        doers = {"for", "by", "from"} | back
        agents = [name for find, name in people if find.by in doers or not done and find.by != friend]
        named = [*agents, *(name for name in recent if name not in here), *others, *words.characters][:1]
    if act.company and len(set(named)) == 1:
        tried = [name for name in words.characters if words.tried(named[0], name)]
        refers = done is not None and not ENGLISH["referring"].isdisjoint(_plain(done.typed))  # "hugs the friend"
        met = [name for names in shown if refers and named[0] in names for name in names if name not in gone]
        named += [name for name in (*others, *met, *recent, *tried) if name != named[0]][:1]
    return tuple(dict.fromkeys(named))


def _people(
    finds: Sequence[_Find], done: _Find | None, words: Words, shown: Sequence[tuple[str, ...]]
) -> list[tuple[_Find, str]]:
    """Whom names and pronouns mean: "she" the first in a clause before, or else the last one on, who is a she."""
    called, recent = dict(words.pronouns), [name for names in shown for name in names]
    people: list[tuple[_Find, str]] = []
    for find in (find for find in finds if find.by != "instead"):
        pronoun = _CASES.get(find.typed.lower(), find.typed.lower())
        earlier = [name for one, name in people if one.clause < find.clause]
        meant: list[str] = []
        if find.kind == "who":
            meant = [find.meant]
        elif find.kind == "pronoun" and pronoun == "friend":  # whom the one who is named, or was on, met last
            here = [one.meant for one in finds if one.kind == "who" and one.clause <= find.clause]
            main = ([name for _, name in people] or here or recent)[:1]
            couples = sorted((names for names in shown if len(names) > 1), key=lambda names: main[0] not in names)
            meant = [name for names in couples for name in names if name not in main][:1]
        elif find.kind == "pronoun" and pronoun in ENGLISH["plural"]:
            couple = next((names for names in shown if len(names) > 1 and set(names).issuperset(earlier)), recent)
            meant = list(dict.fromkeys(earlier if len(set(earlier)) > 1 else (*earlier, *couple)))[:2]
        elif find.kind == "pronoun" and pronoun not in ENGLISH["nobody"]:
            subject = (earlier or recent)[:1] if find.by and done else []  # as in "hugs him", not "give her a cat"
            here = [name for one, name in people if one.clause == find.clause] or subject
            here += [one.meant for one in finds if one.kind == "who" and one.clause >= find.clause]
            there = [name for name in (*earlier, *recent, *words.characters) if name not in here]
            meant = ([name for name in there if called.get(name, pronoun) == pronoun] or there)[:1]
        people += [(find, name) for name in meant]
    return people


def _scan(text: str, words: Words) -> Iterator[_Find]:
    """What the world knows in a text, from left to right, and what is strange to it."""
    tokens, plain = [*_TOKEN.findall(text), "."], [*_plain(text), "."]
    called = {name.lower(): name for name in words.characters}
    names = {name.split()[0] for name in called} | _PRONOUNS
    index, clause, turn, preposition, in_phrase, going, denied = 0, 0, 0, "", False, False, False
    role, joined, acted = "", -1, False  # of the last person; where another one joins in; whether the clause has a verb
    while index < len(tokens) - 1:
        token, after = plain[index : index + 2]
        likely = _IN_PHRASE.get(preposition, _IN_PHRASE["in"]) if in_phrase else (*_VERBS, *_ELSEWHERE)
        kind, meant, count, exact = _longest(plain[index:], words, (*_FIRST, *likely, "over", "light"))
        if not kind and in_phrase and preposition not in ("", "with"):  # perhaps a misspelt place
            meant = next((near for near in get_close_matches(token, words.places, 1, 0.75) if near[0] == token[0]), "")
            kind = "places" if meant else ""
        elif not kind and len(token) > 4 and (token != tokens[index] or not (in_phrase or acted)):  # a misspelt name?
            near = get_close_matches(token, called, 1, 0.8)
            kind, meant = ("who", called[near[0]]) if near and near[0][0] == token[0] else ("", "")
        typed = " ".join(tokens[index : index + count])
        is_object = token == "her" and (not after.isalpha() or after in _FUNCTION_WORDS | _NEW_CLAUSE)
        is_friend = token == "friend" and index > 0 and plain[index - 1] in ENGLISH["referring"]
        if kind == "who" or token in _PRONOUNS or is_object or is_friend:
            if joined != index:
                role = "verb" if acted or token in _CASES else ""
                before = preposition if is_friend and in_phrase else plain[index - 1] if index else ""
                role = before if before in _PREPOSITIONS else role
                role = "instead" if plain[max(0, index - 2) : index] == ["instead", "of"] else role
                whose = kind and _says_whose(tokens[index + count - 1], plain[index + count :], words, role)
                role = "owner" if whose else role
            yield _Find(kind or "pronoun", meant, _SHORT.sub("", typed), exact, role, clause, turn)
            acted, joined = acted or role == "" and token not in ENGLISH["nobody"], index + count
            preposition, in_phrase = preposition if in_phrase and role == "owner" else "", role == "owner"
        elif kind in _GRAMMAR and (count > 1 or token not in _FUNCTION_WORDS):
            in_phrase, clause, turn = False, clause + (kind == "then"), turn + (kind == "then")
            light = kind == "light" and plain[index - 1] != "it"  # "it takes Luna an hour to swim": she swims
            acted, denied = light or acted and kind != "then", kind == "denying" or denied and kind != "then"
        elif kind and (count > 1 or token not in _FUNCTION_WORDS):
            object_of = in_phrase and not (going and preposition == "for")  # "goes for a swim": she swims
            by, kind = preposition if object_of else "", STRANGE if denied and kind in _VAGUE else kind
            if kind == "times" and preposition in ("on", "onto", "to", "from") and token in ENGLISH["heavenly"]:
                kind, meant = STRANGE, ""  # "on the moon" is a place, and "under the moon" a time
            absent = by == "without" or denied and kind == "places"
            yield _Find("denied" if absent else kind, meant, typed, exact, by, clause, turn)
            if kind == "places" and (hint := _longest(plain[index + count - 1 :], words, ("nouns",))[1]):
                yield _Find("hints", hint, typed, False, by, clause, turn)  # "goes to bed" is what is done, too
            going, acted = going or kind == "going", acted or kind in _VERBS
            place_follows = kind == "times" and _longest(plain[index + count :], words, ("places",))[1]
            if kind not in ("looks", "adverbs") and not place_follows:
                preposition, in_phrase = "", False
        elif token in ("and", ",") and joined == index and after in names:
            joined = index + 1
        elif token in _NEW_CLAUSE or token == "," and after in names:
            clause, preposition, in_phrase, acted, denied = clause + 1, "", False, False, False
        elif token in _DETERMINERS:
            in_phrase, joined = True, joined + (joined == index)  # "Bolt the robot and Yuzu" are two
        elif token in _PREPOSITIONS:
            preposition, in_phrase = token, token != "to" or going
        elif token == ",":
            denied, joined = False, joined + (joined == index)
        elif not token.isdecimal():
            joined += in_phrase and joined == index
            yield _Find(STRANGE, "", typed, clause=clause, turn=turn)
        index += count


def _says_whose(name: str, after: Sequence[str], words: Words, role: str) -> bool:
    """Whether "Bolt's" says whose something is, as in "Bolt's umbrella", and not "Bolt is", as in "Bolt's dancing"."""
    kind, _, _, exact = _longest(after, words, ("looks", "things", "nouns"))
    thing = (exact or kind in ("looks", "things")) and not after[0].endswith("ing")  # and not "Bolt's asleep"
    owns = bool(role or thing) and after[0] not in ENGLISH["body"]  # who shakes Taro's hand meets Taro
    return owns and name != _SHORT.sub("", name) and name.endswith("s")


def _longest(tokens: Sequence[str], words: Words, kinds: Sequence[str]) -> tuple[str, str, int, bool]:
    """(kind, what the world calls it, number of tokens, exact) of the longest that tokens begin with, or likeliest."""
    table = _lexicon(words)
    there = ((kind, row) for kind in kinds for stem in _stems(tokens[0], kind) for row in table.get((kind, stem), ()))
    found = ((kind, meant, _length(tokens, row), exact, row == (meant.lower(),)) for kind, (row, meant, exact) in there)
    best = max(found, key=itemgetter(2, 4), default=("", "", 0, False))  # the world's own words first
    return best[:4] if best[2] else ("", "", 1, False)


def _length(tokens: Sequence[str], phrase: Sequence[str]) -> int:
    """How many tokens a phrase covers whose first word is there; 0 if not all of it is. It has no determiners."""
    at = 1
    for word in phrase[1:]:
        while tokens[at] in _DETERMINERS | {"it", "."} and at < len(tokens) - 1:
            at += 1
        if word not in _stems(tokens[at]):
            return 0
        at += 1
    return at


@lru_cache(maxsize=8)
def _lexicon(words: Words) -> dict[tuple[str, str], list[tuple[tuple[str, ...], str, bool]]]:
    """(kind, first word) -> phrases without determiners, what the world calls each, and whether it is that."""
    rows = [("who", name, name) for name in words.characters]
    rows += [("acts", act.phrase, act.phrase) for act in words.acts]
    rows += [("adverbs", adverb, adverb) for group in words.adverbs for adverb in group]
    for kind in ("places", "times", "things", "looks"):
        rows += [(kind, text, text) for text in getattr(words, kind)]
    more = [(kind, word, "") for kind in _GRAMMAR for word in ENGLISH[kind]]
    for (kind, *names), alike in MEANINGS:
        called = [meant for of, _, meant in rows if of == ("acts" if kind in _VAGUE else kind)]
        meant = next((text for name in names for text in called if name in text.split()), None)
        if meant is not None:
            more += [(kind, word, meant) for word in (names[0], *alike)]
    meanings = {word: meant for kind, word, meant in more if kind in ("acts", "moves")}
    heads = ((act.phrase.split()[0], act.phrase) for act in words.acts)
    rows += [("acts", head, phrase) for head, phrase in heads if meanings.get(head, phrase) == phrase]
    forms = {names[0]: alike for (kind, *names), alike in MEANINGS if kind == "form"}
    table: dict[tuple[str, str], list[tuple[tuple[str, ...], str, bool]]] = {}
    for kind, text, meant in rows + more:
        phrase = tuple(word for word in _plain(text.replace("_", " ")) if word not in _DETERMINERS | {"."})
        own = meant.lower().split()[: None if kind in ("places", "nouns") else 1]  # "broom" is of "broomstick"
        idiom = len(phrase) > 1 and kind in _VERBS
        if phrase:
            kind = "going" if kind in ("acts", "moves") and text in ENGLISH["light"] else kind
            row = (phrase, meant, idiom or any(word[:4] == phrase[0][:4] for word in own))
            for first in (phrase[0], *(forms.get(phrase[0], ()) if kind in _VERBS else ())):
                table.setdefault((kind, first), []).append(row)
    return table


def _plain(text: str) -> list[str]:
    """The words and stops of a text, in small letters, without what is short for "is" or says whose it is."""
    return [_SHORT.sub("", token.lower().replace("\u2019", "'")) for token in _TOKEN.findall(text)]


def _stems(token: str, kind: str = "") -> tuple[str, ...]:
    """The words that a token may be a form of: "skis" of ski, "hurried" of hurry, "swimming" of swim."""
    stems = [token]
    for ending, instead in _ENDINGS:
        if token.endswith(ending) and len(token) - len(ending) > 1:
            stem = token[: len(token) - len(ending)]
            stems += [stem + instead]
            if ending in ("ed", "ing") and stem[-1] == stem[-2]:
                stems += [stem[:-1]]
    if kind == "adverbs":
        word = token.removesuffix("er")
        stems += [word, f"{word}ly", f"{word}dly", f"{word[:-1]}ily"]  # "angry" as angrily
    return tuple(stems)
