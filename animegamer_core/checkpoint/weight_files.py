"""Other people's weight files: pickles, which are never executed, safetensors, and folders of them.

torch.load always runs with weights_only=True, which rebuilds tensors and plain values and refuses everything else. The
allow-list adds only what numpy needs to rebuild an array of numbers: DeepSpeed puts a random generator's state next to
the weights (docs/reference.md, files on disk).
"""

from __future__ import annotations

import io
import os
import struct
import threading
import typing
import zipfile
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError  # the exception only; nothing here unpickles by itself

import numpy
import torch

from ..messages import brief
from .pickle_scan import DamagedPickle, RefusedPickle, scan_pickle
from .storage import (
    CheckpointError,
    FileTensors,
    SafetensorsSource,
    TensorSource,
    find_safetensors,
    refuse_pointer,
    shards_of,
)

if typing.TYPE_CHECKING:
    from torch import Tensor

_NUMBERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
OPEN_CLIP = ("open_clip_model", "open_clip_pytorch_model", "model", "pytorch_model")  # names of CLIP weights
_LEGACY_PICKLES = 5  # before torch 1.6: a mark, a version, the system, the content, the names of storages
_loading = threading.Lock()  # torch keeps one allow-list for all threads: one that ends would take another's away
_MAX_INDEX_BYTES = 256 << 20  # the pickled names and sizes of the largest published file take a few MB
_LOAD_ERRORS = (  # what torch's readers raise on a damaged or foreign file
    RuntimeError, UnpicklingError, EOFError, OSError, ValueError, KeyError, IndexError, TypeError, AttributeError,
    AssertionError, OverflowError,
)  # fmt: skip


class PickleSource(FileTensors):
    """The tensors of files that torch.save wrote."""

    def __init__(self, path: Path, inside: str | None = None, shards: tuple[str, ...] = ()) -> None:
        """inside: the entry of the dict that holds the tensors. shards: the files of an index at `path`."""
        files = [path.with_name(name) for name in shards] or [path]
        tensors: dict[str, torch.Tensor] = {}
        for file in files:
            found = _load(file)
            tensors |= _only_tensors(file, found if inside is None else _entry(file, found, inside))
        super().__init__(path, files, tensors)


def open_weights(folder: Path, stems: tuple[str, ...] = ("model", "pytorch_model")) -> TensorSource | None:
    """The weights in a folder: safetensors or torch files, whole or in shards; None if it has none by these names."""
    for stem in stems:
        path = find_safetensors(folder, stem)
        if path is not None:
            return SafetensorsSource(path)
        index, single = folder / f"{stem}.bin.index.json", folder / f"{stem}.bin"
        if index.is_file():
            return PickleSource(index, shards=tuple(shards_of(index)))
        if single.is_file():
            return PickleSource(single)
    return None


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors of one foreign file by name, on the CPU and memory-mapped where the format allows.

    A name that ends in .safetensors is of that format, any other is torch's. CheckpointError names the file and what
    is wrong with it.
    """
    source = SafetensorsSource(path) if path.suffix == ".safetensors" else PickleSource(path)
    state = {key: source.tensor(key) for key in source.keys()}  # noqa: SIM118  not a mapping
    if not state:
        raise CheckpointError(f"{path}: holds no tensors; expected weights")
    return state


def decoder_file(folder: Path) -> Path:
    """The weights of a VDM_Decoder-* folder: `latest` names the sub-folder, a number above 0 or `release`."""
    latest = folder / "latest"
    if not latest.is_file():
        raise CheckpointError(f"{latest}: no such file; expected a text file that names the sub-folder of the weights")
    text = latest.read_text(encoding="utf-8", errors="replace").strip()
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0
    if text != "release" and number < 1:
        raise CheckpointError(f"{latest}: says {brief(text, 40)!r}; expected a number above 0 or 'release'")
    path = folder / (str(number) if number else text) / "mp_rank_00_model_states.pt"
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file, though {latest.name} says {text!r}; download the whole folder")
    return path


def _load(path: Path) -> Mapping[str, typing.Any]:
    """What torch.save stored, which must be a dict; CheckpointError for anything else."""
    index = _index_of(path)
    _scan(path, index)
    try:
        with _loading, torch.serialization.safe_globals(_numpy_globals()):
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=index is not None)
    except _LOAD_ERRORS as error:
        raise CheckpointError(_not_whole(path, type(error).__name__)) from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: holds a {type(content).__name__}; expected a dict of tensors by name")
    return content


def _scan(path: Path, index: zipfile.ZipInfo | None) -> None:
    """Read what the file's pickles would build; CheckpointError for more than tensors and plain values.

    index: the entry of a zip that has the pickle; None for a file without a zip.
    """
    try:
        with path.open("rb") as file:
            if index is None:
                for _ in range(_LEGACY_PICKLES):
                    scan_pickle(file, path.stat().st_size)
            else:  # zipfile would also compare a checksum, which torch can leave out
                file.seek(index.header_offset + 26)
                name, extra = struct.unpack("<HH", file.read(4))
                file.seek(name + extra, os.SEEK_CUR)
                scan_pickle(io.BytesIO(file.read(index.file_size)), path.stat().st_size)
    except (DamagedPickle, struct.error) as error:
        raise CheckpointError(_not_whole(path, str(error))) from error
    except RefusedPickle as error:
        raise CheckpointError(
            f"{path}: {error}; it was not opened, because only tensors and plain values are safe"
        ) from error


def _index_of(path: Path) -> zipfile.ZipInfo | None:
    """The entry with the pickle in torch's zip; None for a file that is not a zip.

    CheckpointError for a zip whose content is larger than the file, or that another reader could see differently.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file")
    refuse_pointer(path)
    try:
        if not zipfile.is_zipfile(path):
            return _refuse_cut_zip(path)
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise CheckpointError(f"{path}: not a readable torch file ({brief(error)}); download it again") from error
    packed = [entry.filename for entry in entries if entry.compress_type != zipfile.ZIP_STORED]
    total = sum(entry.file_size for entry in entries)
    names = [entry.filename.lower() for entry in entries]  # torch passes over the case of letters
    indexes = [entry for entry, name in zip(entries, names, strict=True) if name.endswith("/data.pkl")]
    if packed or total > path.stat().st_size or any(entry.file_size > _MAX_INDEX_BYTES for entry in indexes):
        raise CheckpointError(
            f"{path}: a zip of {len(entries)} entries that unpack to {total} bytes; "
            "expected a torch file, which is not compressed"
        )
    if len(indexes) != 1 or len(set(names)) < len(names) or not _ends_in_directory(path):
        raise CheckpointError(f"{path}: not a zip file from torch.save; expected one data.pkl, download it again")
    return indexes[0]


def _refuse_cut_zip(path: Path) -> None:
    """CheckpointError if the file begins as a zip does."""
    with path.open("rb") as file:
        if file.read(2) == b"PK":
            raise CheckpointError(f"{path}: the file ends too early; expected a whole torch file, download it again")


def _ends_in_directory(path: Path) -> bool:
    """Whether the zip's directory is right before its end record, as it says; else readers could find another one."""
    with path.open("rb") as file:
        end = file.seek(-22, os.SEEK_END)
        record = file.read(22)
        length, offset = struct.unpack("<LL", record[12:20])
        if end >= 76:  # 64-bit zips have a larger record, and a pointer to it, before the end
            file.seek(end - 20)
            locator = file.read(20)
            if locator.startswith(b"PK\6\7"):
                (start,) = struct.unpack("<Q", locator[8:16])
                if start != end - 76:
                    return False
                file.seek(start)
                length, offset = struct.unpack("<QQ", file.read(56)[40:56])
                end = start
    return record.startswith(b"PK\5\6") and record.endswith(b"\0\0") and offset + length == end


def _not_whole(path: Path, why: str) -> str:
    return f"{path}: not a whole torch file ({why}); expected what torch.save wrote, download it again"


def _numpy_globals() -> list[typing.Any]:
    """What rebuilds an array of numbers, under the names of numpy 1 and numpy 2."""
    multiarray = getattr(numpy, "_core", None) or numpy.core
    rebuild = multiarray.multiarray._reconstruct
    names = ("numpy._core.multiarray._reconstruct", "numpy.core.multiarray._reconstruct")
    kinds = [type(numpy.dtype(name)) for name in _NUMBERS]
    return [*((rebuild, name) for name in names), numpy.ndarray, numpy.dtype, *kinds]


def _entry(path: Path, found: Mapping[str, typing.Any], inside: str) -> Mapping[str, typing.Any]:
    values = found.get(inside)
    if not isinstance(values, dict):
        there = ", ".join(brief(repr(key), 60) for key in list(found)[:3]) or "nothing"
        raise CheckpointError(f"{path}: no dict under key {inside!r}; found {there}")
    return values


def _only_tensors(path: Path, found: Mapping[typing.Any, typing.Any]) -> dict[str, torch.Tensor]:
    """The same dict, refused unless it maps names to dense tensors no larger than the file itself."""
    size = path.stat().st_size
    for key, value in found.items():
        name = brief(repr(key), 80)
        if not isinstance(key, str) or not isinstance(value, torch.Tensor):
            raise CheckpointError(f"{path}: entry {name} is a {type(value).__name__}; expected named tensors only")
        if value.numel() * value.element_size() > size:
            raise CheckpointError(
                f"{path}: tensor {name} claims shape {tuple(value.shape)}, more than the file holds; "
                "expected stored values"
            )
    if not found:
        raise CheckpointError(f"{path}: holds no tensors; expected the published weights")
    return dict(found)
