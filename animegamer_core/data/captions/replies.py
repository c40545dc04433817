"""Strict parsers of a vision model's replies: a reply has the requested form, or a ReplyError says what is wrong.

Replies are untrusted text. Their words must fit in an instruction; only runs of spaces, capital letters and quotation
marks around the whole are normalized.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass

from ...messages import quoted
from .prompts import TIMES
from .words import LONGEST_WORDS, NUMBERS

LONGEST_REPLY = 1500  # characters; a valid reply has about 100
TAGS = ("S", "MD", "EV", "MA", "SC", "ET", "ST")  # in this order
_MOST_WORDS = {"S": 3, "MD": 12, "EV": 4, "MA": 2}
_MATCHING_TAG = re.compile(r"\[(Num|Number|ID|Index)\]")
_INDICES = re.compile(r"[0-9]{1,3}(?: ?, ?[0-9]{1,3})*")
_WRAPPED = re.compile(r"(```\w*|[`'\"]|)\s*(.*?)\s*(```|[`'\"]|)", re.DOTALL)
_MATCHING_FORM = "[Number] and how many, then [Index] and the indices with commas between, and nothing else"
_CAPTION_FORM = "the seven tags <S>, <MD>, <EV>, <MA>, <SC>, <ET>, <ST> in this order, each closed, and nothing else"


class ReplyError(ValueError):
    """A reply that does not have the requested form. found: what is wrong. expected: the form, in our own words. reply:
    the text."""

    def __init__(self, found: str, expected: str, reply: str = "") -> None:
        super().__init__(f"{found}; expected {expected}")
        self.found, self.expected, self.reply = found, expected, reply


@dataclass(frozen=True)
class Caption:
    """What a clip shows. background: '{time} {place}'. characters: names of known ones, the main one first; if empty,
    `subject` stands for the character."""

    subject: str
    motion: str
    background: str
    adverb: str
    social: int
    entertainment: int
    stamina: int
    characters: tuple[str, ...] = ()


def parse_matching(text: str, count: int) -> tuple[int, ...]:
    """The indices 1..count in a matching reply, the main character's first; () for none. ReplyError for other replies.

    Both spellings of the paper's tags are accepted: [Num] or [Number], [ID] or [Index].
    """
    body = _body(text, _MATCHING_FORM)
    tags = list(_MATCHING_TAG.finditer(body))
    if [tag[1][0] for tag in tags] != ["N", "I"]:
        shown = ", ".join(tag[0] for tag in tags[:4]) + (", ..." if len(tags) > 4 else "")
        raise ReplyError(f"the reply has {shown or 'no tag'}: {quoted(body)}", _MATCHING_FORM, text)
    number, indices = body[tags[0].end() : tags[1].start()], body[tags[1].end() :]
    number, indices = number.strip(), indices.strip()
    if not re.fullmatch("[0-9]{1,3}", number):
        raise ReplyError(f"{tags[0][0]} is {quoted(number)}", f"a whole number after {tags[0][0]}", text)
    if not _INDICES.fullmatch(indices):
        raise ReplyError(f"{tags[1][0]} is {quoted(indices)}", "indices with commas between and nothing else", text)
    return _checked_indices(int(number), tuple(map(int, indices.split(","))), count, text)


def _checked_indices(number: int, indices: tuple[int, ...], count: int, text: str) -> tuple[int, ...]:
    if number == 0 and indices == (0,):
        return ()
    outside = [index for index in indices if not 1 <= index <= count]
    if outside:
        raise ReplyError(f"there is no character {outside[0]}", f"indices from 1 to {count}", text)
    if len(set(indices)) < len(indices):
        twice = next(index for index in indices if indices.count(index) > 1)
        raise ReplyError(f"index {twice} is there twice", "each index once", text)
    if number != len(indices):
        raise ReplyError(f"the number is {number} and there are {len(indices)} indices", "as many indices", text)
    return indices


def parse_caption(text: str) -> Caption:
    """The caption in a captioning reply; ReplyError names the wrong tag, its text and what was expected."""
    body = _body(text, _CAPTION_FORM)
    rest = body = body[max(0, body.find(f"<{TAGS[0]}>")) :]  # models like to say a word before and after
    values = {}
    for tag in TAGS:
        match = re.match(rf"\s*<{tag}>([^<>]*)</{tag}>", rest)
        if match is None:
            raise ReplyError(_broken(tag, rest, body), _CAPTION_FORM, text)
        values[tag], rest = match[1], rest[match.end() :]
    if "<" in rest:
        raise ReplyError(f"there is a tag after </{TAGS[-1]}>: {quoted(rest)}", _CAPTION_FORM, text)
    try:
        words = {tag: phrase(tag, values[tag]) for tag in TAGS[:4]}
        levels = [_level(tag, values[tag]) for tag in TAGS[4:]]
    except ReplyError as error:
        error.reply = text
        raise
    return Caption(words["S"], words["MD"], words["EV"], words["MA"], *levels)


def _body(text: str, form: str) -> str:
    """The reply in Unicode normal form, without quotation marks or a code fence around the whole."""
    if len(text) > LONGEST_REPLY:
        raise ReplyError(f"the reply has {len(text)} characters: {quoted(text)}", form, text)
    whole = unicodedata.normalize("NFC", text).strip()
    if not whole:
        raise ReplyError("the reply is empty", form, text)
    opening, inner, closing = _WRAPPED.fullmatch(whole).groups()
    return inner if opening.startswith(closing) and bool(opening) == bool(closing) else whole


def _broken(tag: str, rest: str, body: str) -> str:
    """What is wrong where <tag>...</tag> should be at the beginning of `rest`."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    if body.count(opening) != 1:
        return f"{opening} is missing" if opening not in body else f"{opening} is there {body.count(opening)} times"
    if closing not in body:
        return f"{opening} is not closed"
    if opening not in rest:
        return f"{opening} comes too early"
    before = rest[: rest.index(opening)].strip()
    if before:
        return f"there is text before {opening}: {quoted(before)}"
    return f"{opening} contains another tag: {quoted(rest)}"


def phrase(tag: str, value: str, commas: Collection[str] = ("MD",)) -> str:
    """A field's words in lower case; ReplyError if they do not fit in an instruction.

    commas: tags whose words may have commas.
    """
    expected = f"1 to {_MOST_WORDS[tag]} English words in <{tag}>"
    words = " ".join(value.split()).lower()
    odd = next((char for char in words if not (_plain(char) or (char == "," and tag in commas))), None)
    if odd is not None:
        name = unicodedata.name(odd, f"U+{ord(odd):04X}").lower()
        raise ReplyError(f"<{tag}> is {quoted(value)} with the character {name}", f"{expected}, letters only", value)
    if not any(char.isalpha() for char in words) or len(words.split()) > _MOST_WORDS[tag] or len(words) > LONGEST_WORDS:
        raise ReplyError(f"<{tag}> is {quoted(value)}", expected, value)
    if tag == "EV" and (words.split()[0] not in TIMES or len(words.split()) < 2):
        raise ReplyError(
            f"<EV> is {quoted(value)}", f"the time of day ({', '.join(TIMES)}), then the place in <EV>", value
        )
    return words


def _plain(char: str) -> bool:
    """Whether a model may use the character: Latin letters, digits, space, apostrophe, hyphen."""
    return char in " '\u2019-0123456789" or (char.isalpha() and unicodedata.name(char, "").startswith("LATIN "))


def _level(tag: str, value: str) -> int:
    if value.strip() not in NUMBERS[tag]:
        raise ReplyError(f"<{tag}> is {quoted(value)}", f"{' or '.join(NUMBERS[tag])} in <{tag}>", value)
    return int(value)
