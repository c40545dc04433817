"""Which words can stand in an instruction of the published form, whoever wrote them."""

from __future__ import annotations

from ...state import clean_text

LONGEST_WORDS = 80  # characters of one part


def why_unfit(text: str) -> str | None:
    """Why a part of an instruction cannot be `text`, as the end of a sentence; None where it can.

    `;` and `:` part the form `Character: ...; Motion: ...; Background: ...`, and angle brackets would read as tags.
    """
    if not clean_text(text):
        return "is empty"
    odd = [char for char in ";:<>" if char in text]
    if odd:
        return f"has {odd[0]!r}, which parts an instruction or reads as a tag"
    if len(text) > LONGEST_WORDS:
        return f"has {len(text)} characters, more than {LONGEST_WORDS}"
    if not text.isprintable():
        return "has a control character or a line break"
    return None
