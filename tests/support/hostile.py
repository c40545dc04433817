"""Damaged and crafted files, made by small grammars from whole ones. A seed makes the same damage again."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

Rng = random.Random
POISON: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**24, 2**31, 2**63, 2**70, -(2**40), 10**400, 0.5, -0.0, 1e308, "", "x", "\x1b[31m",
    "../../outside", "/etc/passwd", "a" * 5000, "NaN", "\x00", "\n# x", [], {}, [[]], {"": {}}, [0] * 9, ["x"] * 50,
    {"a": 1}, {"decoder": {}, "format": 99},
)  # fmt: skip
RAW_NUMBERS = (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"9" * 5000, b"1.", b"0x10")


def any_bytes(data: bytes, rng: Rng) -> tuple[bytes, str]:
    """The end cut off, bits flipped, bytes removed or added, or nothing left."""
    at, few, flipped = rng.randrange(len(data) + 1), rng.randint(1, 40), bytearray(data)
    for place in rng.choices(range(len(data)), k=few) if data else ():
        flipped[place] ^= 1 << rng.randrange(8)
    damaged, what = rng.choice(
        [
            (data[:at], "cut off"),
            (bytes(flipped), f"{few} bits flipped, and not"),
            (data[:at] + data[at + few :], f"{few} bytes removed"),
            (data[:at] + rng.randbytes(few) + data[at:], f"{few} bytes added"),
            (b"", "emptied, and not cut off"),
        ]
    )
    return damaged, f"{what} at {at}"


def json_text(data: bytes, rng: Rng) -> tuple[bytes, str]:
    """What no JSON writer writes: other encodings, depth, numbers without end."""
    deep, number = rng.choice((500, 100_000)), rng.choice(RAW_NUMBERS)
    places = [at for at in range(len(data)) if data[at : at + 1].isdigit() and data[at - 1 : at] in b" :,["]
    at = rng.choice(places or [len(data)])
    ways = [(b"[" * deep + b"]" * deep, f"{deep} deep"), (data.decode(errors="replace").encode("utf-16"), "UTF-16")]
    ways += [(b"\xef\xbb\xbf" + data, "a byte order mark"), (data + data, "twice")]
    ways += [(data[:at] + number + data[at + 1 :], f"{number[:12]!r} at {at}")]
    ways += [(b'"' + b"\\ud800" * rng.choice((1, 10_000)) + b'"\n', "half characters")]
    return rng.choice(ways)


def json_value(data: bytes, rng: Rng) -> tuple[bytes, str]:
    """A value of another type, size or key, or none, somewhere within."""
    value, what = _changed(json.loads(data), rng)
    return json.dumps(value).encode(), what


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield from _places(below, (*path, key))


def _changed(value: Any, rng: Rng) -> tuple[Any, str]:
    value = copy.deepcopy(value)
    path = rng.choice(list(_places(value)))
    if not path:
        poison = rng.choice(POISON)
        return poison, f"all is {str(poison)[:30]!r}"
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    where = ".".join(map(str, path))
    match rng.randrange(4):
        case 0:
            del holder[path[-1]]
            return value, f"{where} is missing"
        case 1 if isinstance(holder, dict):
            holder[rng.choice(("", "format", "x" * 3000, "\x1b[2J", str(path[-1]).upper()))] = holder[path[-1]]
            return value, f"{where} under another name too"
    poison = rng.choice(POISON)
    holder[path[-1]] = copy.deepcopy(poison)
    return value, f"{where} is {str(poison)[:30]!r}"
