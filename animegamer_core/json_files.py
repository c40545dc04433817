"""JSON and JSON Lines files: one reader, which checks every value against a type.

A type is what msgspec takes: a dataclass, a TypedDict, `dict[str, float]`, `Annotated[int, msgspec.Meta(ge=0)]`. Keys
that a class does not have are passed over, so that a newer version may add some. NaN and Infinity are not JSON.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from .messages import shortened

Value = TypeVar("Value")
_ERRORS = (msgspec.DecodeError, ValueError, RecursionError)  # ValueError: not UTF-8
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # marks of what PowerShell 5 writes by `>`
_WORDS = {
    "object": "an object", "array": "a list", "str": "a text", "int": "a whole number", "float": "a number",
    "bool": "true or false", "null": "nothing",
}  # fmt: skip


class JsonError(ValueError):
    """A JSON text that cannot be read or is not of the expected type; the message names file, line and field."""


class Row(NamedTuple):
    """A line of a table: its number, from 1, and its value, or what is wrong with it."""

    number: int
    value: Any
    problem: str | None


def read_json(path: Path, kind: type[Value]) -> Value:
    """The value in a JSON file. JsonError: missing, unreadable, damaged, or not a `kind`."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise JsonError(f"{path}: cannot be read ({error.strerror})") from error
    return parse_json(data, kind, str(path))


def unmarked(data: bytes) -> bytes:
    """A text without the byte order mark that Windows' programs put before it; one in UTF-16 as UTF-8."""
    return data.decode("utf-16", "replace").encode() if data.startswith(_WIDE) else data.removeprefix(codecs.BOM_UTF8)


def read_text(path: Path) -> str:
    """The text of a file that people edit; ValueError if it is in another encoding than UTF-8 or UTF-16."""
    try:
        return unmarked(path.read_bytes()).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text; save it as UTF-8") from error


def parse_json(data: bytes | str, kind: type[Value], where: str) -> Value:
    """The value of a JSON text. JsonError names `where` and the field that is not of its type."""
    try:
        return msgspec.json.decode(unmarked(data) if isinstance(data, bytes) else data, type=kind)
    except _ERRORS as error:
        raise JsonError(f"{where}: {_in_words(error)}") from error


def to_type(value: Any, kind: type[Value], where: str) -> Value:
    """A value that was read from JSON as a `kind`; JsonError as for `parse_json`."""
    try:
        return msgspec.convert(value, type=kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise JsonError(f"{where}: {_in_words(error)}") from error


def read_rows(path: Path, kind: type[Value]) -> Iterator[Row]:
    """Lines of a JSON Lines file that are not blank, a wrong one with a problem and no value; none if it is missing."""
    if not path.is_file():
        return
    decoder = msgspec.json.Decoder(kind)
    for number, line in enumerate(unmarked(path.read_bytes()).split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            yield Row(number, decoder.decode(line), None)
        except _ERRORS as error:
            yield Row(number, None, _in_words(error))


def _in_words(error: Exception) -> str:
    """msgspec's message in our words: "field turns[3].motion: expected a number, got a text"."""
    if not isinstance(error, msgspec.ValidationError):
        return f"not JSON ({shortened(str(error).removeprefix('JSON is malformed: '))})"
    text, _, path = str(error).partition(" - at `")
    text = re.sub(r"^Object missing required field `(.*)`$", r"field \1 is missing", text)
    text = re.sub(
        r"`([a-z |]+)`", lambda found: " or ".join(_WORDS.get(kind, kind) for kind in found[1].split(" | ")), text
    )
    text = re.sub(r" matching regex .*$", " of another form", text)
    field = path.rstrip("`").removeprefix("$").removeprefix(".")
    text = text[:1].lower() + text[1:]
    return shortened(f"field {field}: {text}" if field else text)
