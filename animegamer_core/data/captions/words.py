"""Which words fit in an instruction of the published form, and which numbers in its tags."""

from __future__ import annotations

from ...life import MOTION, STATS
from ...state import clean_text

LONGEST_WORDS = 80  # characters of one part
# The numbers that a tag such as <ST> may have, as text.
NUMBERS = {number.tag: tuple(map(str, sorted(number.choices))) for number in (MOTION, *STATS)}


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
