"""Texts from outside within our messages: shortened, quoted, and with what would act on a terminal escaped."""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
from typing import Any, TextIO

_ACTING = (*range(0x20), *range(0x7F, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_ESCAPED = {code: ascii(chr(code))[1:-1] for code in _ACTING if chr(code) not in "\n\t"}
# A progress line begins or ends with a return to the line's start, and may clear the line.
_LINE = re.compile(r"(\r?(?:\x1b\[K)?)(.*?)(\r?(?:\x1b\[K)?)", re.DOTALL)


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


class PlainOutput:
    """`stream`, with control characters and marks of direction written as `\\x1b`, `\\u202e`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text; returns its length."""
        before, words, after = _LINE.fullmatch(text).groups()
        self._stream.write(f"{before}{words.translate(_ESCAPED)}{after}")
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def escape_output() -> None:
    """From now on what is printed may hold names and texts from files; what a terminal cannot show is escaped too."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
            setattr(sys, name, PlainOutput(stream))
