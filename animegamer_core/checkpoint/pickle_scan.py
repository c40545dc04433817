"""Reads what a pickle would build, without building it.

torch.load(weights_only=True) runs no code, yet it builds whatever it is told to: `bytearray(5e9)`, an array of 4 TB, or
tuples within tuples whose hash takes years. So the instructions are read first. Allowed are those that torch.save
writes for tensors and plain values, and nothing may be larger than the file that claims it.
"""

from __future__ import annotations

import _compat_pickle
import math
import pickletools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

from ..messages import brief

_STORAGE_BYTES = {
    "Double": 8, "Float": 4, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2, "Char": 1, "Byte": 1,
    "Bool": 1, "Untyped": 1, "ComplexFloat": 8, "ComplexDouble": 16,
}  # fmt: skip
_DTYPES = {
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "int16", "int8",
    "uint8", "bool",
}  # fmt: skip
_DEPTH = 20  # of tuples within tuples; torch.save writes three
_NUMPY = ("numpy._core.multiarray", "numpy.core.multiarray")  # of numpy 2 and 1
_NUMPY_NUMBER = re.compile(rb"[<>=|]?[biuf][1248]")
_LITERALS = {
    "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINSTRING",
    "BINBYTES", "SHORT_BINBYTES",
}  # fmt: skip
_OBJECTS = {"EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET"}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class DamagedPickle(ValueError):
    """Bytes that are no pickle, or not a whole one."""


class RefusedPickle(ValueError):
    """A pickle that holds more than tensors and plain values, or claims more than its file holds."""


@dataclass(frozen=True)
class _Global:
    name: str


@dataclass(frozen=True, eq=False)
class _Tuple:
    """items: what it holds. values: how many values it unfolds to, counting one that is held twice as two. depth: of
    tuples within it."""

    items: tuple[Any, ...]
    values: int
    depth: int


@dataclass(frozen=True, eq=False)
class _Storage:
    numbers: int


_OBJECT, _MARK = object(), object()


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
        self.storages: dict[Any, int] = {}  # bytes by key

    def run(self, file: BinaryIO) -> None:
        try:
            for opcode, argument, _ in pickletools.genops(file):
                self.step(opcode.name, argument)
        except (IndexError, KeyError) as error:  # nothing on the stack, or not in the memo
            raise DamagedPickle(type(error).__name__) from error
        except ValueError as error:
            if isinstance(error, RefusedPickle):
                raise
            raise DamagedPickle(brief(error)) from error

    def step(self, name: str, argument: Any) -> None:
        if name in _LITERALS:
            self.stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}.get(name, argument))
        elif name in _OBJECTS:
            self.stack.append(_OBJECT)
        elif name == "EMPTY_TUPLE":
            self.stack.append(_Tuple((), 1, 1))
        elif name in _TUPLES:
            self.stack.append(self.tuple_of([self.stack.pop() for _ in range(_TUPLES[name])][::-1]))
        elif name == "TUPLE":
            self.stack.append(self.tuple_of(self.to_mark()))
        elif name == "MARK":
            self.stack.append(_MARK)
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = self.stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[argument])
        elif name in ("APPENDS", "SETITEMS"):
            self.to_mark()
        elif name in ("APPEND", "SETITEM"):
            del self.stack[-1 if name == "APPEND" else -2 :]
        elif name == "GLOBAL":
            self.stack.append(_Global(_known(argument)))
        elif name == "REDUCE":
            arguments, function = self.stack.pop(), self.stack.pop()
            self.stack.append(self.called(function, arguments))
        elif name == "BUILD":
            self.stack.pop()
        elif name == "BINPERSID":
            self.stack.append(self.storage_of(self.stack.pop()))
        elif name not in ("PROTO", "STOP"):
            raise RefusedPickle(f"its pickle has the instruction {name}, which torch.save does not write")

    def to_mark(self) -> list[Any]:
        """What lies above the last mark, which goes with it."""
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise IndexError
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def tuple_of(self, items: list[Any]) -> _Tuple:
        tuples = [item for item in items if isinstance(item, _Tuple)]
        values = 1 + len(items) - len(tuples) + sum(item.values for item in tuples)
        depth = 1 + max((item.depth for item in tuples), default=0)
        if values > self.largest or depth > _DEPTH:  # hashing it, as a key, would take that long or overflow the stack
            raise RefusedPickle(f"a tuple in it unfolds to {values} values, {depth} deep, more than weights need")
        return _Tuple(tuple(items), values, depth)

    def storage_of(self, key: Any) -> _Storage:
        """The numbers of a tensor, named by ('storage', type, key, device, count)."""
        if not isinstance(key, _Tuple) or len(key.items) < 5 or key.items[0] != "storage":
            raise RefusedPickle("names tensors in a way that torch.save does not")
        _, kind, name, _, count = key.items[:5]
        if not isinstance(kind, _Global) or not _count(count) or not isinstance(name, str):
            raise RefusedPickle("names tensors in a way that torch.save does not")
        each = _STORAGE_BYTES.get(kind.name.removeprefix("torch.").removeprefix("storage.").removesuffix("Storage"), 1)
        self.storages[name] = max(count * each, self.storages.get(name, 0))
        if sum(self.storages.values()) > self.largest:
            raise RefusedPickle(f"its tensors claim more bytes than the {self.largest} of its file")
        return _Storage(count)

    def called(self, function: Any, arguments: Any) -> Any:
        """The result of a call; refuses functions that weights do not need, and sizes that their data do not have."""
        if not isinstance(function, _Global) or not isinstance(arguments, _Tuple):
            raise RefusedPickle("calls something that is no function")
        check = _CALLS.get(function.name)
        if check is None or not check(*arguments.items[:4], *(None,) * (4 - len(arguments.items))):
            raise RefusedPickle(f"calls {function.name} in a way that weights do not need")
        return _OBJECT


def _known(argument: str) -> str:
    """The name of a global, as Python 3 calls it; RefusedPickle if weights do not need it."""
    module, _, name = argument.partition(" ")
    module, name = _compat_pickle.NAME_MAPPING.get((module, name), (module, name))
    full = f"{_compat_pickle.IMPORT_MAPPING.get(module, module)}.{name}"
    if full not in _GLOBALS:
        raise RefusedPickle(f"holds the object {full!r}, which could run code and which weights do not need")
    return full


def _count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _counts(value: Any) -> bool:
    return isinstance(value, _Tuple) and all(map(_count, value.items))


def _lies_in_storage(storage: Any, offset: Any, shape: Any, strides: Any) -> bool:
    """Whether a view's last number is in its storage: torch would enlarge the storage to fit."""
    if not isinstance(storage, _Storage) or not _count(offset) or not _counts(shape) or not _counts(strides):
        return False
    if len(shape.items) != len(strides.items) or not math.prod(shape.items):
        return len(shape.items) == len(strides.items)
    last = sum((size - 1) * stride for size, stride in zip(shape.items, strides.items, strict=True))
    return offset + last < storage.numbers


def _empty_array(kind: Any, shape: Any, code: Any, _: Any) -> bool:
    """Whether numpy begins an array as it does itself: empty, its size and content come with its state."""
    named = isinstance(kind, _Global) and kind.name == "numpy.ndarray"
    return named and isinstance(shape, _Tuple) and shape.items == (0,) and code is not None


def _number_type(code: Any, *_: Any) -> bool:
    text = code.encode() if isinstance(code, str) else code
    return isinstance(text, bytes) and _NUMPY_NUMBER.fullmatch(text) is not None


def _anything(*_: Any) -> bool:
    return True


_CALLS: dict[str, Callable[..., bool]] = {
    "collections.OrderedDict": _anything,
    "builtins.set": _anything,
    "torch.Size": lambda shape, *_: _counts(shape),
    "torch.device": _anything,
    "torch._utils._rebuild_tensor_v2": _lies_in_storage,
    "torch._utils._rebuild_tensor_v3": _lies_in_storage,  # of types younger than storages
    "torch._utils._rebuild_parameter": _anything,
    "numpy.dtype": _number_type,
    "_codecs.encode": lambda text, coding, *_: isinstance(text, str) and coding in ("latin1", b"latin1"),
    **{f"{module}._reconstruct": _empty_array for module in _NUMPY},
}
_GLOBALS = {
    *_CALLS,
    "numpy.ndarray",
    *(f"torch.{name}Storage" for name in _STORAGE_BYTES),
    *(f"torch.storage.{name}Storage" for name in _STORAGE_BYTES),
    *(f"torch.{name}" for name in _DTYPES),
}
