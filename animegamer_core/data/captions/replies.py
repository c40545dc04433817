"""What a vision model is asked about a clip, and strict parsers of its replies.

The wording is ours; tags, values and order are the paper's (supplement, section 2). The background is asked for as time
of day and place, since an instruction has both. Replies are untrusted text: one has the requested form, or a ReplyError
says what is wrong. Only runs of spaces, capital letters and what models and servers put around a reply are normalized.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...game.life import Stat, questions
from ...game.recall import names_of
from ...game.state import clean_text
from ...messages import quoted

TIMES = ("dawn", "morning", "day", "noon", "afternoon", "dusk", "evening", "night")
LONGEST_WORDS = 80  # characters of one part of an instruction
LONGEST_REPLY = 1500  # characters; a valid reply has about 100
_MOVEMENT = (
    "Level 1: hardly any movement; "
    "Level 2: little movement, such as slight swaying; "
    "Level 3: moderate movement; "
    "Level 4: large movement that is plain to see; "
    "Level 5: very large and intense movement."
)
_MOST_WORDS = {"S": 3, "MD": 12, "EV": 4, "MA": 2}  # by tag, in the order of a caption; the stats follow
_GAP = r"[\s:*<>,]*"  # also marks that models put between the parts
_MATCHING = re.compile(
    rf"\[Num(?:ber)?\]{_GAP}([0-9]{{1,3}}){_GAP}\[(?:ID|Index)\]{_GAP}([0-9]{{1,3}}(?: ?, ?[0-9]{{1,3}})*)(?!\d)"
)
# Latin letters, digits, spaces, commas, apostrophes, hyphens
_PLAIN = re.compile(r"[a-z0-9\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f ,'\u2019-]*")
# Thoughts before a reply, marks of a chat template and tags around it, as servers and models leave them.
_THOUGHTS = (
    r"</(?:seed:)?(?:think(?:ing)?|thought|reasoning|reflection)>|\[/THINK\]|\u25c1/think\u25b7|<\|END_THINKING\|>"
)
_WRAPPERS = re.compile(rf"\A.*(?:{_THOUGHTS}|<\|message\|>)|<\|[a-z_]+\|>|</?answer>", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"```\w*\s*\n(.*?)\n\s*```", re.DOTALL)
_MATCHING_FORM = "[Number] and how many, then [Index] and the indices with commas between, and nothing else"


def matching_prompt(count: int) -> str:
    """Which of `count` numbered reference characters a clip shows: Image-1 is their sheet, Image-2 four frames."""
    example = {1: "[Number]1[Index]1", 2: "[Number]2[Index]2,1"}.get(count, "[Number]2[Index]3,1")
    return (
        f"Image-1 shows the known characters, each under its index from 1 to {count}. Image-2 shows four frames of one "
        "anime clip. Say how many of the characters of Image-1 are seen in Image-2, and what their indices are, the "
        "main one first. Count only characters of Image-1. Write nothing but the response itself. "
        "Response format: [Number]<number of characters>[Index]<their indices, with commas between>. "
        f"Response example: {example}. If none of them is seen, the response is [Number]0[Index]0. Your response:"
    )


def captioning_prompt(level: int, stats: Sequence[Stat]) -> str:
    """What happens in a clip of motion level 1..5: Image-1 is a sheet of eight frames."""
    example = {"S": "Girl", "MD": "run", "EV": "day forest", "MA": "slowly"} | {s.tag: s.choices[0] for s in stats}
    return (
        "Image-1 shows eight frames of one anime clip, in the order of time. Describe the clip in a fixed form. "
        f"Its movement level is <ML>{level}</ML>. The five levels are: {_MOVEMENT} Give, in English: "
        "(1) the subject <S> in a single word, the motion <MD> as a simple phrase in the present simple tense, and "
        f"the environment <EV> as the time of day ({', '.join(TIMES)}), a space, and a single word for the place. "
        "(2) the movement adverb <MA>: an adverb for <MD> that fits <ML>. "
        f"{questions(3, stats)} "
        f"Write nothing but these {len(example)} tags. Example output: "
        f"{''.join(f'<{tag}>{value}</{tag}>' for tag, value in example.items())}. Your response:"
    )


def again_prompt(prompt: str, expected: str) -> str:
    """The prompt again after an invalid reply; `expected` is our own text, never the model's words."""
    return f"{prompt}\nAn earlier response could not be used. Expected was {expected}. Keep to the response format."


def why_unfit(text: str) -> str | None:
    """Why `text` does not fit as a part of an instruction, as the end of a sentence; None if it does.

    `;` and `:` separate the parts of `Character: ...; Motion: ...; Background: ...`; angle brackets are for tags.
    """
    if not clean_text(text):
        return "is empty"
    odd = [char for char in ";:<>" if char in text]
    if odd:
        return f"has {odd[0]!r}, which separates parts of an instruction or makes a tag"
    if len(text) > LONGEST_WORDS:
        return f"has {len(text)} characters, more than {LONGEST_WORDS}"
    if not text.isprintable():
        return "has a control character or a line break"
    return None


class ReplyError(ValueError):
    """A reply that does not have the requested form. found: what is wrong. expected: the form, in our own words. reply:
    the text."""

    def __init__(self, found: str, expected: str, reply: str = "") -> None:
        super().__init__(f"{found}; expected {expected}")
        self.found, self.expected, self.reply = found, expected, reply


@dataclass(frozen=True)
class Caption:
    """What a clip shows, in the fields of a `ClipRecord`."""

    character: tuple[str, ...]
    motion: str
    background: str
    adverb: str
    stats: Mapping[str, int]


def parse_matching(text: str, count: int) -> tuple[int, ...]:
    """The indices 1..count in a matching reply, the main character's first; () for none. ReplyError for other replies.

    Both spellings of the paper's tags are accepted: [Num] or [Number], [ID] or [Index].
    """
    found = _MATCHING.findall(_body(text, _MATCHING_FORM))
    if len(found) != 1:
        raise ReplyError(f"the reply is {quoted(text)}", _MATCHING_FORM, text)
    number, indices = int(found[0][0]), tuple(map(int, found[0][1].split(",")))
    if number == 0 and indices == (0,):
        return ()
    known = set(indices) & set(range(1, count + 1))
    if not number == len(indices) == len(known):
        stated = f"the number is {number}, the indices are {quoted(found[0][1])}"
        raise ReplyError(stated, f"as many indices from 1 to {count}, each once", text)
    return indices


def parse_caption(text: str, stats: Sequence[Stat]) -> Caption:
    """The caption in a captioning reply, with the subject as the character; ReplyError says what is wrong."""
    tags = (*_MOST_WORDS, *(stat.tag for stat in stats))
    form = f"the tags {', '.join(f'<{tag}>' for tag in tags)} in this order, each closed, and nothing else"
    found = re.findall(r"\s*".join(rf"<{tag}>([^<>]*)</{tag}>" for tag in tags), _body(text, form))
    if len(found) != 1:  # text around is fine, but not a second caption
        raise ReplyError(f"the reply is {quoted(text)}", form, text)
    values = dict(zip(tags, found[0], strict=True))
    try:
        subject, *words = (phrase(tag, values[tag]) for tag in _MOST_WORDS)
        motion, background, adverb = words
        changes = {stat.name: _change(stat, values[stat.tag]) for stat in stats}
        return Caption(names_of(subject), motion, background, adverb, changes)
    except ReplyError as error:
        error.reply = text
        raise


def whole_reply(text: str) -> str:
    """A reply in Unicode form NFC: what is in its code fence if it has one, without thoughts and marks around it."""
    whole = _WRAPPERS.sub("", unicodedata.normalize("NFC", text)).strip()
    fenced = _FENCE.search(whole)
    return fenced[1].strip() if fenced else whole


def _body(text: str, form: str) -> str:
    """The whole reply without quotation marks around it; ReplyError if it is empty or too long to be one."""
    body = whole_reply(text)
    if not 0 < len(body) <= LONGEST_REPLY:
        raise ReplyError(f"the reply has {len(body)} characters: {quoted(body)}", form, text)
    return body.strip(" \r\n\t`'\"")


def phrase(tag: str, value: str) -> str:
    """A field's words in lower case; ReplyError if they do not fit in an instruction."""
    words = " ".join(value.split()).lower()
    expected = f"1 to {_MOST_WORDS[tag]} English words in <{tag}>, letters only"
    plain = _PLAIN.fullmatch(words) and any(map(str.isalpha, words)) and not (tag == "S" and "," in words)
    if not plain or len(words.split()) > _MOST_WORDS[tag] or len(words) > LONGEST_WORDS:
        raise ReplyError(f"<{tag}> is {quoted(value)}", expected, value)
    if tag == "EV" and (words.split()[0] not in TIMES or len(words.split()) < 2):
        raise ReplyError(
            f"<EV> is {quoted(value)}", f"the time of day ({', '.join(TIMES)}), then the place in <EV>", value
        )
    return words


def _change(stat: Stat, value: str) -> int:
    if value.strip() not in map(str, stat.choices):
        found = f"<{stat.tag}> is {quoted(value)}"
        raise ReplyError(found, f"{' or '.join(map(str, stat.choices))} in <{stat.tag}>", value)
    return int(value)
