"""Reads a pickle's instructions, without building any object.

torch.load(weights_only=True) runs no code, yet it builds whatever the file names: `bytearray(5e9)`, an array of 4 TB,
keys whose hash takes years, a dtype that holds itself and crashes the process. So the instructions are read first.
Allowed are those that torch.save writes for tensors and plain values; keys are plain, and what is claimed or copied is
counted against the size of the file.
"""

from __future__ import annotations

import _compat_pickle
import math
import pickletools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from ..messages import brief

MOST_INSTRUCTIONS = 1_000_000  # the published files have some 100,000
_DIMENSIONS = 64  # of a tensor, as in torch
_DEPTH = 20  # of tuples within tuples; torch.save writes three
_STORAGE_BYTES = {
    "Double": 8, "Float": 4, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2, "Char": 1, "Byte": 1,
    "Bool": 1, "Untyped": 1, "ComplexFloat": 8, "ComplexDouble": 16,
}  # fmt: skip
_DTYPE = re.compile(r"torch\.(u?int(8|16|32|64)|float(16|32|64|8_\w{1,12})|bfloat16|bool|complex(32|64|128))")
_NUMPY = ("numpy._core.multiarray", "numpy.core.multiarray")  # of numpy 2 and 1
_NUMPY_NUMBER = re.compile(r"[<>=|]?[biuf][1248]")
_REBUILD = ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3")  # 3: of types younger than storages
_GLOBALS = {
    "collections.OrderedDict", "collections.Counter", "builtins.set", "torch.Size", "torch.device", *_REBUILD,
    "torch._utils._rebuild_parameter", "numpy.dtype", "numpy.ndarray", "_codecs.encode",
    *(f"{module}._reconstruct" for module in _NUMPY),
    *(f"{module}.{name}Storage" for name in _STORAGE_BYTES for module in ("torch", "torch.storage")),
}  # fmt: skip
_LITERALS = {
    "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINSTRING",
}  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class DamagedPickle(ValueError):
    """Bytes that are not a pickle, or only part of one."""


class RefusedPickle(ValueError):
    """A pickle that holds more than tensors and plain values, or claims more than its file holds."""


@dataclass(frozen=True)
class _Global:
    name: str


@dataclass(frozen=True, eq=False)
class _Tuple:
    """depth: of tuples within it."""

    items: tuple[Any, ...]
    depth: int


@dataclass(frozen=True, eq=False)
class _Storage:
    numbers: int


@dataclass(eq=False)
class _Built:
    """Something that the pickle builds, by its kind.

    size: items of a list or dict, bytes of bytes. plain: whether all items of a list could be keys. metadata: whether a
    dict has no other key than `_metadata`, which torch puts next to an OrderedDict of weights.
    """

    kind: str
    size: int = 0
    plain: bool = True
    metadata: bool = True


_MARK, _EMPTY = object(), _Tuple((), 1)


def scan_pickle(file: BinaryIO, largest: int) -> None:
    """Check the pickle at the file's position, and move behind it; RefusedPickle or DamagedPickle says why not.

    largest: the bytes of the whole weight file, which bound all that the pickle may claim.
    """
    _Scan(largest).run(file)


class _Scan:
    def __init__(self, largest: int) -> None:
        self.largest = largest
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.storages: dict[str, int] = {}  # bytes by name
        self.claimed = self.copied = 0  # bytes of storages; bytes that calls copy

    def run(self, file: BinaryIO) -> None:
        try:
            for number, (opcode, argument, _) in enumerate(pickletools.genops(file)):
                if number >= MOST_INSTRUCTIONS:
                    raise RefusedPickle(f"its pickle has more than {MOST_INSTRUCTIONS} instructions")
                self.step(opcode.name, argument)
        except (IndexError, KeyError) as error:  # nothing on the stack, or not in the memo
            raise DamagedPickle(type(error).__name__) from error
        except ValueError as error:
            if isinstance(error, RefusedPickle):
                raise
            raise DamagedPickle(brief(error)) from error

    def step(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in _LITERALS:
            stack.append(_CONSTANTS.get(name, argument))
        elif name in ("EMPTY_LIST", "EMPTY_DICT"):
            stack.append(_Built("list" if name == "EMPTY_LIST" else "dict"))
        elif name == "EMPTY_TUPLE":
            stack.append(_EMPTY)
        elif name in _TUPLES:
            stack.append(_tuple_of([stack.pop() for _ in range(_TUPLES[name])][::-1]))
        elif name == "TUPLE":
            stack.append(_tuple_of(self.to_mark()))
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name in ("APPENDS", "APPEND"):
            self.append(self.to_mark() if name == "APPENDS" else [stack.pop()])
        elif name in ("SETITEMS", "SETITEM"):
            self.set_items(self.to_mark() if name == "SETITEMS" else [stack.pop(), stack.pop()][::-1])
        elif name == "GLOBAL":
            stack.append(_Global(_known(argument)))
        elif name == "REDUCE":
            arguments, function = stack.pop(), stack.pop()
            stack.append(self.called(function, arguments))
        elif name == "BUILD":
            self.changed(stack.pop(), stack[-1])
        elif name == "BINPERSID":
            stack.append(self.storage_of(stack.pop()))
        elif name not in ("PROTO", "STOP"):
            raise RefusedPickle(f"its pickle has the instruction {name}, which torch.save does not write")

    def to_mark(self) -> list[Any]:
        """Everything above the last mark, which is also removed."""
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise IndexError
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def append(self, items: Sequence[Any]) -> None:
        target = self.stack[-1]
        if not _is(target, "list"):
            raise RefusedPickle("adds items to something that is not a list")
        target.size += len(items)
        target.plain = target.plain and all(map(_is_key, items))

    def set_items(self, items: Sequence[Any]) -> None:
        target, keys = self.stack[-1], items[::2]
        if not _is(target, "dict", "ordered"):
            raise RefusedPickle("sets items of something that is not a dict")
        if not all(map(_is_key, keys)):  # the hash of anything else may take long
            raise RefusedPickle("has a key that is neither a string nor a small number")
        target.size += len(keys)
        target.metadata = target.metadata and all(key == "_metadata" for key in keys)

    def storage_of(self, key: Any) -> _Storage:
        """The numbers of a tensor, named by ('storage', type, key, device, count)."""
        items = key.items if isinstance(key, _Tuple) else ()
        mark, kind, name, _, count = (*items[:5], *(None,) * (5 - min(5, len(items))))
        if mark != "storage" or not isinstance(kind, _Global) or not isinstance(name, str) or not _is_count(count):
            raise RefusedPickle("names tensors in a way that torch.save does not")
        each = _STORAGE_BYTES.get(kind.name.rpartition(".")[2].removesuffix("Storage"), 1)
        before = self.storages.get(name, 0)
        self.storages[name] = max(before, count * each)
        self.claimed += self.storages[name] - before
        if self.claimed > self.largest:
            raise RefusedPickle(f"its tensors claim more bytes than the {self.largest} of its file")
        return _Storage(count)

    def copy(self, size: int) -> None:
        """Count what a call copies: by the memo, a small pickle could ask for the same again and again."""
        self.copied += size
        if self.copied > self.largest:
            raise RefusedPickle(f"copies more bytes than the {self.largest} of its file")

    def called(self, function: Any, arguments: Any) -> _Built:
        """The result of a call; refuses functions that weights do not need, and sizes that their data do not have."""
        name = function.name if isinstance(function, _Global) else ""
        given = arguments.items if isinstance(arguments, _Tuple) else ()
        first, second, third, fourth, _, sixth = (*given[:6], *(None,) * (6 - min(6, len(given))))
        if name == "collections.OrderedDict" and not given:
            return _Built("ordered")
        if name == "collections.Counter" and len(given) == 1 and _is(first, "dict"):
            self.copy(64 * first.size)
            return _Built("other")
        if name == "builtins.set" and len(given) == 1 and _is(first, "list") and first.plain:
            self.copy(8 * first.size)
            return _Built("other")
        if (name == "torch.Size" and _are_counts(first)) or (name == "torch.device" and isinstance(first, str)):
            return _Built("other")
        if name in _REBUILD and _lies_in_storage(first, second, third, fourth) and _is_hooks(sixth):
            return _Built("tensor")
        if name == "torch._utils._rebuild_parameter" and _is(first, "tensor") and _is_hooks(third):
            return _Built("tensor")
        if name == "numpy.dtype" and isinstance(first, str) and _NUMPY_NUMBER.fullmatch(first):
            return _Built("dtype")
        if name == "_codecs.encode" and isinstance(first, str) and second == "latin1":  # bytes in protocol 2
            self.copy(len(first))
            return _Built("bytes", len(first))
        if name.endswith("._reconstruct") and isinstance(first, _Global) and first.name == "numpy.ndarray":
            if isinstance(second, _Tuple) and second.items == (0,):  # empty: size and content come with its state
                return _Built("array")
        raise RefusedPickle(f"calls {name or 'something that is not a function'} in a way that weights do not need")

    def changed(self, state: Any, target: Any) -> None:
        """Check that an object's state is only what torch and numpy write."""
        items = state.items if isinstance(state, _Tuple) else ()
        if _is(target, "ordered"):
            allowed = _is(state, "dict") and state.metadata
        elif _is(target, "dtype"):
            order = items[1] if len(items) > 1 else None
            allowed = order in ("<", ">", "|", "=") and items == (3, order, None, None, None, -1, -1, 0)
        else:
            allowed = _is(target, "array") and len(items) == 5 and items[0] == 1 and _are_counts(items[1])
            allowed = allowed and _is(items[2], "dtype") and _is(items[4], "bytes")
            if allowed:
                self.copy(items[4].size)
        if not allowed:
            raise RefusedPickle("changes an object in a way that weights do not need")


def _known(argument: str) -> str:
    """The name of a global, as Python 3 calls it; RefusedPickle if weights do not need it."""
    module, _, name = argument.partition(" ")
    module, name = _compat_pickle.NAME_MAPPING.get((module, name), (module, name))
    full = f"{_compat_pickle.IMPORT_MAPPING.get(module, module)}.{name}"
    if full not in _GLOBALS and not _DTYPE.fullmatch(full):
        raise RefusedPickle(f"holds the object {brief(full, 80)!r}, which could run code and which weights do not need")
    return full


def _tuple_of(items: Sequence[Any]) -> _Tuple:
    depth = 1 + max((item.depth for item in items if isinstance(item, _Tuple)), default=0)
    if depth > _DEPTH:
        raise RefusedPickle(f"has tuples within tuples, {depth} deep; weights need three")
    return _Tuple(tuple(items), depth)


def _is(value: Any, *kinds: str) -> bool:
    return isinstance(value, _Built) and value.kind in kinds


def _is_hooks(value: Any) -> bool:
    return value is None or _is(value, "ordered")


def _is_key(value: Any) -> bool:
    """Whether a value is hashed at once, and no other is likely to have its hash."""
    return value is None or isinstance(value, str | float) or (isinstance(value, int) and abs(value) < 1 << 31)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _are_counts(value: Any) -> bool:
    return isinstance(value, _Tuple) and len(value.items) <= _DIMENSIONS and all(map(_is_count, value.items))


def _lies_in_storage(storage: Any, offset: Any, shape: Any, strides: Any) -> bool:
    """Whether a view's last number is in its storage: torch would enlarge the storage to fit."""
    if not isinstance(storage, _Storage) or not _is_count(offset) or not _are_counts(shape) or not _are_counts(strides):
        return False
    if len(shape.items) != len(strides.items):
        return False
    last = sum((size - 1) * stride for size, stride in zip(shape.items, strides.items, strict=True))
    return not math.prod(shape.items) or offset + last < storage.numbers
