"""What is printed may hold names and texts from files: characters that would act on the terminal are shown escaped."""

from __future__ import annotations

import re
from typing import Any, TextIO

_ACTING = (
    *range(0x20),
    *range(0x7F, 0xA0),
    0x061C,
    0x200E,
    0x200F,
    0x2028,
    0x2029,
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
)
_ESCAPED = {code: ascii(chr(code))[1:-1] for code in _ACTING if chr(code) not in "\n\t"}
# A progress line begins or ends with a return to the line's start, and may clear the line.
_LINE = re.compile(r"(\r?(?:\x1b\[K)?)(.*?)(\r?(?:\x1b\[K)?)", re.DOTALL)


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
