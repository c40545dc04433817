"""What a game remembers: its last turns, and with `recall` earlier ones that an instruction refers to. Needs no torch.

The rule: an instruction refers to things ("the scarf"), to a place and to characters, in this order. For a thing the
game recalls the latest turn that described it ("a red scarf"); if none did, the opening picture; without one, the
latest turn that showed it. For a place and a character it recalls the latest turn that showed them. Those that are not
among the last turns replace the oldest turns of the window.

Pronouns and phrases with "same" recall nothing: they mean what the last turns show, which the window already holds.
"The friend" is a thing like any other, so it recalls the latest turn with "a friend".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from pathlib import Path

RECENT, RECALL = "recent", "recall"
MEMORIES = (RECENT, RECALL)
RECALLED_TURNS = 2
OPENING = 0  # the number of the opening picture
PUBLISHED = re.compile(r"Character: (?P<who>[^;]+); Motion: (?P<motion>[^;]+); Background: (?P<place>[^;]+?)\.?")

WORD = r"[^\W_]+(?:['\u2019-][^\W_]+)*"
_WORD = re.compile(WORD + r"|[^\w\s]")


def rows_of(file: str) -> list[tuple[list[str], list[str]]]:
    """The words before and after the colon of each row, of a file of words beside this one."""
    lines = Path(__file__).with_name(file).read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#")).replace("\n  ", " ")
    return [(head.split(), words.split()) for head, _, words in (row.partition(":") for row in text.splitlines())]


ENGLISH = {head[0]: frozenset(words) for head, words in rows_of("english.txt")}


@dataclass(frozen=True)
class Memory:
    """How a game remembers. kind: `recent` is the window alone; `recall` also earlier turns, up to `turns` at once."""

    kind: str = RECENT
    turns: int = RECALLED_TURNS

    def __post_init__(self) -> None:
        if self.turns < 1:
            raise ValueError(f"recalled turns is {self.turns}; expected 1 or more; for none, choose memory {RECENT}")


LAST_TURNS = Memory(RECENT)


def turn_name(number: int) -> str:
    """A recalled turn for people: `turn 3`, or `the opening picture`."""
    return "the opening picture" if number == OPENING else f"turn {number}"


def chosen_memory(kind: str | None, turns: int | None) -> Memory | None:
    """The memory that a player chose; None if none was chosen. A number of turns alone means `recall`."""
    if kind is None and turns is None:
        return None
    if kind == RECENT and turns is not None:
        raise ValueError(f"memory {RECENT} recalls no turns, but {turns} were requested; choose memory {RECALL}")
    return Memory(kind or RECALL, RECALLED_TURNS if turns is None else turns)


@dataclass(frozen=True)
class Named:
    """What a text names, as the keys of nouns: "the red car" names a car, and nothing red.

    things: what it refers to, for each the words that may be its noun. scene: place and characters. described: what it
    says the looks of, or introduces. shown: all of these.
    """

    things: tuple[tuple[str, ...], ...]
    scene: tuple[str, ...]
    described: frozenset[str]
    shown: frozenset[str]


def names_of(who: str) -> tuple[str, ...]:
    """The names in the part `Character: ...` of an instruction: between commas and the word "and"."""
    return tuple(name.strip() for name in re.split(r",| and ", who) if name.strip())


def named_in(text: str) -> Named:
    """What an instruction names: in the published form, or in free words, whose capitalized words are characters."""
    parts = PUBLISHED.fullmatch(text)
    if parts is None:
        phrases, place = list(_phrases(text)), list(_phrases(""))
        who: Sequence[str] = [
            word for word in _WORD.findall(text) if word[0].isupper() and word.lower() not in _FUNCTION_WORDS
        ]
    else:
        phrases, place = list(_phrases(parts["motion"])), list(_phrases("in " + parts["place"]))
        who = names_of(parts["who"])
    characters = tuple(_key(name) for name in who if name.lower() not in ENGLISH["pronouns"])
    places = tuple(phrase.nouns[0] for phrase in place[:1] if phrase.names)
    phrases = [phrase for phrase in phrases if phrase.names]
    every = [*phrases, *(phrase for phrase in place if phrase.names)]
    described = {noun for phrase in every if phrase.describes for noun in phrase.nouns}
    return Named(
        things=tuple(phrase.nouns for phrase in phrases if not phrase.introduces),
        scene=(*places, *characters),
        described=frozenset(described),
        shown=frozenset(chain(characters, *(phrase.nouns for phrase in every))),
    )


@dataclass(frozen=True)
class Seen:
    """Which turn last described and last showed each noun. Adding a turn makes a new index, so games can branch."""

    described: dict[str, int] = field(default_factory=dict)
    shown: dict[str, int] = field(default_factory=dict)
    opening: bool = False

    @classmethod
    def of(cls, texts: Iterable[tuple[int, str]]) -> Seen:
        """After these turns (number, instruction), in order."""
        return reduce(lambda seen, turn: seen.with_turn(*turn), texts, cls())

    def with_turn(self, number: int, text: str) -> Seen:
        """After one more turn."""
        named = named_in(text)
        return Seen(
            self.described | dict.fromkeys(named.described, number),
            self.shown | dict.fromkeys(named.shown, number),
            self.opening or number == OPENING,
        )

    def recall(self, text: str, last: int, most: int, known: Callable[[int], bool]) -> tuple[int, ...]:
        """At most `most` turns before turn `last` to recall for an instruction, the most important one first.

        known: whether a turn's representation can be read.
        """
        wanted = dict.fromkeys(number for number in self._wanted(text, last) if number < last and known(number))
        return tuple(wanted)[:most]

    def _wanted(self, text: str, last: int) -> Iterator[int]:
        named = named_in(text)
        for nouns in named.things:
            noun = next((noun for noun in nouns if noun in self.shown), "")
            shown = OPENING if self.opening else self.shown.get(noun)
            source = self.described.get(noun, shown)
            yield from () if source is None else (source,)
        for word in named.scene:
            yield from (self.shown[word],) if word in self.shown else ()


@dataclass(frozen=True)
class _Phrase:
    """A noun phrase without its determiner. introduces: it starts with "a", so it names something new. subject: it
    begins a clause, so its last word may be a verb ("the cat sleeps", "the wolves come").
    """

    words: tuple[str, ...]
    introduces: bool
    subject: bool

    @property
    def names(self) -> bool:
        """Whether it names its thing; "the same place" means whatever the last turn showed."""
        return "same" not in self.words

    @property
    def describes(self) -> bool:
        """Whether it says what its thing looks like, or introduces it."""
        return self.introduces or len(self.words) > 1

    @property
    def nouns(self) -> tuple[str, ...]:
        """The key of its noun, the last word; of a word before what looks like a verb too."""
        verb = self.subject and (self.words[-1].endswith("s") or any(map(_is_plural, self.words[-2:-1])))
        return tuple(map(_key, self.words[: -3 if verb else -2 : -1]))


_BEGINNING = ENGLISH["introducing"] | ENGLISH["referring"] | ENGLISH["prepositions"]
_FUNCTION_WORDS = _BEGINNING | ENGLISH["conjunctions"] | ENGLISH["after"]


def _phrases(text: str) -> Iterator[_Phrase]:
    """The noun phrases of a text: words from a determiner, number or preposition to the next function word or adverb.

    In "a brightly coloured scarf" the adverb is passed over.
    """
    words: list[str] | None = None
    introduces, subject, before = False, False, "."
    for token in chain(_WORD.findall(text.lower()), ["."]):
        is_adverb, is_number = token.endswith("ly") and token not in ENGLISH["nouns-ly"], token in ENGLISH["numbers"]
        joins = token == "and" and bool(words) and words[-1] in ENGLISH["colours"]
        goes_on = token not in _FUNCTION_WORDS and token[0].isalnum() and not ((is_adverb or is_number) and words)
        if words is not None and (goes_on or joins):
            words += [] if is_adverb or is_number or joins else [token]
            introduces |= is_number and before not in ENGLISH["referring"]  # "to two friends", but "the two friends"
            continue
        if words:
            yield _Phrase(tuple(words), introduces, subject)
        words = [] if is_number or token in _BEGINNING else None
        introduces = is_number or token in ENGLISH["introducing"]
        subject, before = before in ENGLISH["conjunctions"] or not before[0].isalnum(), token


_IRREGULAR = dict(pair.split("/") for pair in ENGLISH["irregular"])
_ENDINGS = {"ie": "y", "ve": "f", "fe": "f"} | {f"{letter}e": letter for letter in "shoxz"}


def _is_plural(word: str) -> bool:
    return word in _IRREGULAR or (len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us")))


def _key(word: str) -> str:
    """The same text for all forms of a noun, so that "cars" finds "car" and "boxes" "box"; not always a word."""
    word = word.strip().lower().removesuffix("'s").removesuffix("\u2019s")
    word = _IRREGULAR.get(word, word[:-1] if _is_plural(word) else word)
    return word[:-2] + _ENDINGS.get(word[-2:], word[-2:])
