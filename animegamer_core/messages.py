"""Texts from outside within our messages: shortened, quoted, and with what would act on a terminal escaped."""

from __future__ import annotations

import os
import re
import shlex


def shortened(text: object, most: int = 200) -> str:
    """A text from a file, a name or a library's error, on one line of at most `most` characters, the middle left out.

    What a terminal would act on is escaped.
    """
    words = " ".join(str(text).split())
    shown = _escaped(words[: 2 * most])
    if len(shown) <= most and len(words) <= 2 * most:
        return shown
    half = (most - 5) // 2
    return f"{shown[:half]} ... {_escaped(words[-half:])[-half:]}"


def quoted(value: object, most: int = 60) -> str:
    """A value as Python writes it, in ASCII, so that letters which look alike differ; shortened like `shortened`."""
    return shortened(ascii(value), most)


def shell_word(text: object, windows: bool = os.name == "nt") -> str:
    """A path or name as one word of a command that a user copies; Windows knows no single quotes."""
    if not windows:
        return shlex.quote(str(text))
    return str(text) if re.fullmatch(r"[\w:\\/.+-]+", str(text)) else f'"{text}"'


def _escaped(text: str) -> str:
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
