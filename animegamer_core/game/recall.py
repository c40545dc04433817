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
from itertools import chain

RECENT, RECALL = "recent", "recall"
MEMORIES = (RECENT, RECALL)
RECALLED_TURNS = 2
OPENING = 0  # the number of the opening picture
PUBLISHED = re.compile(r"Character: (?P<who>[^;]+); Motion: (?P<motion>[^;]+); Background: (?P<place>[^;]+?)\.?")

_WORD = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*|[^\w\s]")
_INTRODUCING = frozenset("a an some another".split())
_REFERRING = frozenset("the his her its their my our your this that these those".split())
_BEFORE_A_PHRASE = frozenset(
    "with without on onto in into inside at by from to toward towards under over above below beside behind between "
    "near through across along around of for against past off".split()
)
_PRONOUNS = frozenset("i you he she it we they me him us them".split())
_AFTER_A_PHRASE = frozenset(
    "and or but while then as when until before after who which is are was were be has have had away again together up "
    "down out back there here".split()
)


@dataclass(frozen=True)
class Memory:
    """How a game remembers. kind: `recent` is the window alone; `recall` also earlier turns, up to `turns` at once."""

    kind: str = RECENT
    turns: int = RECALLED_TURNS

    def __post_init__(self) -> None:
        if self.kind not in MEMORIES:
            raise ValueError(f"unknown memory {self.kind!r}; choose {' or '.join(MEMORIES)}")
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
    """What a text names, as lower-case singular words.

    things: for each thing that it refers to, the words of its phrase, the last one first. scene: place and characters.
    described: words of phrases that say what something looks like. shown: all words above.
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
    characters = tuple(_key(name) for name in who if name.lower() not in _PRONOUNS)
    places = tuple(phrase.words[-1] for phrase in place[:1] if phrase.names)
    phrases = [phrase for phrase in phrases if phrase.names]
    every = [*phrases, *(phrase for phrase in place if phrase.names)]
    described = {word for phrase in every if phrase.describes for word in phrase.words}
    return Named(
        things=tuple(phrase.words[::-1] for phrase in phrases if not phrase.introduces),
        scene=(*places, *characters),
        described=frozenset(described),
        shown=frozenset(chain(characters, *(phrase.words for phrase in every))),
    )


@dataclass(frozen=True)
class Seen:
    """Which turn last described and last showed each word. Adding a turn makes a new index, so games can branch."""

    described: dict[str, int] = field(default_factory=dict)
    shown: dict[str, int] = field(default_factory=dict)
    opening: bool = False

    @classmethod
    def of(cls, texts: Iterable[tuple[int, str]]) -> Seen:
        """After these turns (number, instruction), in order."""
        described: dict[str, int] = {}
        shown: dict[str, int] = {}
        first = None
        for number, text in texts:
            first, named = number if first is None else first, named_in(text)
            described.update(dict.fromkeys(named.described, number))
            shown.update(dict.fromkeys(named.shown, number))
        return cls(described, shown, first == OPENING)

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
        for words in named.things:
            word = next((word for word in words if word in self.shown), "")
            shown = OPENING if self.opening else self.shown.get(word)
            source = self.described.get(word, shown)
            yield from () if source is None else (source,)
        for word in named.scene:
            yield from (self.shown[word],) if word in self.shown else ()


@dataclass(frozen=True)
class _Phrase:
    """A noun phrase without its determiner. introduces: it starts with "a", so it names something new."""

    words: tuple[str, ...]
    introduces: bool

    @property
    def names(self) -> bool:
        """Whether it names its thing; "the same place" means whatever the last turn showed."""
        return "same" not in self.words

    @property
    def describes(self) -> bool:
        """Whether it says what its thing looks like, or introduces it."""
        return self.introduces or len(self.words) > 1


_FUNCTION_WORDS = _INTRODUCING | _REFERRING | _BEFORE_A_PHRASE | _AFTER_A_PHRASE


def _phrases(text: str) -> Iterator[_Phrase]:
    """The noun phrases of a text: the words from a determiner or preposition to the next function word or adverb."""
    words: list[str] | None = None
    introduces = False
    for token in chain(_WORD.findall(text.lower()), ["."]):
        if words is not None and token not in _FUNCTION_WORDS and token[0].isalnum() and not token.endswith("ly"):
            words.append(_key(token))
            continue
        if words:
            yield _Phrase(tuple(words), introduces)
        begins = token in _INTRODUCING or token in _REFERRING or token in _BEFORE_A_PHRASE
        words, introduces = ([] if begins else None), token in _INTRODUCING


def _key(word: str) -> str:
    """A word in lower case without plural or possessive ending, so that "cars" finds "car"."""
    word = word.strip().lower().removesuffix("'s").removesuffix("\u2019s")
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
