"""Tensors in files, and json files.

Importing this imports no torch, so that worlds are listed at once.
"""

from __future__ import annotations

import hashlib
import json
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .. import json_files
from ..files import free_bytes, is_plain_name, write_text
from ..messages import shortened
from ..spec import LARGEST

if typing.TYPE_CHECKING:
    import torch

LONGEST = 120  # characters of a foreign tensor's name that a message quotes
_BLOCK = 1 << 20
_POINTER = b"version https://git-lfs"


class CheckpointError(ValueError):
    """A weight file that cannot be used; the message names the file, the key and the expected content."""


@dataclass(frozen=True)
class FileNote:
    """What `world.json` keeps of one file: its checksum and its size in bytes, of a json file with plain line ends."""

    sha256: str
    bytes: int


def note_of(path: Path) -> FileNote:
    """The checksum and size of a file, read in small blocks."""
    if path.suffix == ".json":  # Git for Windows and some editors write other line ends, which change nothing
        text = path.read_bytes().replace(b"\r\n", b"\n")
        return FileNote(hashlib.sha256(text).hexdigest(), len(text))
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return FileNote(digest.hexdigest(), path.stat().st_size)


def write_json(path: Path, values: Mapping[str, typing.Any]) -> None:
    """`values` as readable json, replaced at once."""
    write_text(path, json.dumps(values, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path, kind: typing.Any = dict[str, typing.Any]) -> typing.Any:
    """The value in a json file; CheckpointError if it is missing, broken or not of this kind."""
    try:
        return json_files.read_json(path, kind)
    except json_files.JsonError as error:
        raise CheckpointError(str(error)) from error


def number(config: Mapping[str, typing.Any], field: str, path: Path, default: float) -> float:
    """The number `field` of a configuration file; CheckpointError where it is something else or too large."""
    value = config.get(field, default)
    if type(value) not in (int, float) or not abs(value) <= LARGEST:  # the second also refuses nan
        raise CheckpointError(f"{path}: {field} is {shortened(value, 40)!r}; expected a number of at most {LARGEST}")
    return float(value)


def finite_extremes(tensor: torch.Tensor, where: str) -> torch.Tensor | None:
    """The smallest and the largest value; None without floating-point values. CheckpointError for NaN or infinity.

    One pass over the numbers, at the speed of memory; checking every number takes twenty times as long. Tensors on the
    meta device have none.
    """
    import torch

    if not tensor.is_floating_point() or not tensor.numel() or tensor.is_meta:
        return None
    extremes = torch.stack((tensor if tensor.dtype.itemsize > 1 else tensor.half()).detach().aminmax())
    if not extremes.isfinite().all():
        raise CheckpointError(f"{where} holds NaN or infinity; the file is damaged, or its training failed")
    return extremes


def check_room(folder: Path, needed: int, purpose: str) -> None:
    """CheckpointError if the disk of a folder has less free. purpose: such as `to write`."""
    if (free := free_bytes(folder)) < needed:
        sizes = f"{needed / 1e9:.2f} GB {purpose} and {free / 1e9:.2f} GB free"
        raise CheckpointError(f"{folder}: {sizes}; choose another disk")


class TensorSource:
    """Named tensors that are mapped from files, and so are read only when they are used.

    path: the file that messages name. files: all files that are read. half: the 16-bit type that float32 weights get on
    a GPU.
    """

    half = "bfloat16"

    def __init__(self, path: Path, files: Iterable[Path], tensors: Mapping[str, torch.Tensor]) -> None:
        self.path = path
        self.files = tuple(dict.fromkeys((path, *files)))
        self._tensors = tensors

    def keys(self) -> Iterable[str]:
        """All names."""
        return self._tensors.keys()

    def shape(self, key: str) -> tuple[int, ...]:
        """The shape of one tensor, without reading it."""
        return tuple(self._tensors[key].shape)

    def dtype(self, key: str) -> torch.dtype:
        """The type that `tensor` will have, without reading it."""
        return self._tensors[key].dtype

    def tensor(self, key: str) -> torch.Tensor:
        """One tensor on the CPU."""
        return self._tensors[key]

    def where(self, key: str) -> str:
        """The file and the name that one tensor has there, for messages."""
        return f"{self.path}: {key!r}"


def matrix_dtype(source: TensorSource) -> torch.dtype:
    """The type that a part's matrices are read in."""
    return source.dtype(next(key for key in source.keys() if len(source.shape(key)) > 1))  # noqa: SIM118


class SafetensorsSource(TensorSource):
    """The tensors of safetensors files; those in 8 bits (see `in_8_bits`) are read as what they stand for."""

    def __init__(self, *files: Path) -> None:
        """CheckpointError for a file that cannot be read, or whose 8-bit numbers have no scales."""
        import torch

        tensors, self.metadata, self._scales = {}, {}, {}
        for file in files:
            handle = _open_safetensors(file)
            self.metadata |= handle.metadata() or {}
            tensors |= {key: handle.get_tensor(key) for key in handle.keys()}  # noqa: SIM118  a handle is no mapping
        for key in [key for key, tensor in tensors.items() if tensor.dtype == torch.int8]:
            if f"{key}.scale" not in tensors:
                raise CheckpointError(f"{files[0]}: {key!r} is int8 without {key}.scale; expected floats")
            self._scales[key] = tensors.pop(f"{key}.scale")
        super().__init__(files[0], files, tensors)

    def dtype(self, key: str) -> torch.dtype:
        """The type that `tensor` will have, without reading it."""
        return self._scales.get(key, self._tensors[key]).dtype

    def tensor(self, key: str) -> torch.Tensor:
        """One tensor on the CPU."""
        return self._tensors[key] * self._scales[key] if key in self._scales else self._tensors[key]


def in_8_bits(tensor: torch.Tensor, name: str) -> dict[str, torch.Tensor]:
    """The tensor as its file holds it in 8 bits: int8 numbers `name` and fp16 scales `name.scale`, whose product it is.

    Each index of the first dimension has one scale, its largest magnitude / 127. CheckpointError as `finite_extremes`.
    """
    import torch

    peaks = tensor.float().abs().amax(tuple(range(1, tensor.dim())), keepdim=True)
    scales = (peaks / 127 + 2**-24).half()  # none is 0, and rounding to fp16 leaves all numbers below 127.5
    numbers = (tensor / scales.float()).round().to(torch.int8)
    finite_extremes(numbers * scales, name)
    return {name: numbers, f"{name}.scale": scales}


class _Index(typing.TypedDict):
    weight_map: dict[str, str]


def find_safetensors(folder: Path, stem: str) -> tuple[Path, ...]:
    """The files of a foreign folder with tensors: those that its index lists, else its single file, else none."""
    index, single = folder / f"{stem}.safetensors.index.json", folder / f"{stem}.safetensors"
    if index.is_file():
        names = sorted(set(read_json(index, _Index)["weight_map"].values()))
        if foreign := [name for name in names if not is_plain_name(name)]:
            raise CheckpointError(f"{index}: {shortened(foreign[0], 60)!r} does not name a file in its folder")
        return tuple(folder / name for name in names)
    return (single,) if single.is_file() else ()


def refuse_pointer(path: Path) -> None:
    """CheckpointError for a file that only points to its content, as a `git clone` without LFS leaves large ones."""
    with path.open("rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise CheckpointError(
                f"{path}: this is a Git LFS pointer, not the file itself; run `git lfs pull` in its folder"
            )


def _open_safetensors(path: Path) -> typing.Any:
    from safetensors import SafetensorError, safe_open

    refuse_pointer(path)
    try:
        return safe_open(str(path), framework="pt")
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path}: not a whole safetensors file ({shortened(error)}); download or convert it again"
        ) from error
