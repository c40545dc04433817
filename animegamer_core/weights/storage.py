"""Our tensor folders and json files. A crash while writing leaves the old part, or one that is reported as missing.

Importing this imports no torch, so that worlds are listed at once.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .. import json_files
from ..files import UNFINISHED, is_plain_name, make_folder, mode_of_new, room_for, sync_file, sync_folder, write_text
from ..messages import shortened
from ..spec import LARGEST

if typing.TYPE_CHECKING:
    import torch

STEM = "model"  # our parts are `model.safetensors`, or `model-00001-of-0000n.safetensors` with an index
DEFAULT_SHARD_BYTES = 1 << 30
LONGEST = 120  # characters of a foreign tensor's name that a message quotes
_BLOCK = 1 << 20
_LARGEST_JSON = 32 << 20  # bytes; the index of a published model has some 100 KB
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


Value = typing.TypeVar("Value")


@typing.overload
def read_json(path: Path) -> dict[str, typing.Any]: ...
@typing.overload
def read_json(path: Path, kind: type[Value]) -> Value: ...
def read_json(path: Path, kind: typing.Any = dict[str, typing.Any]) -> typing.Any:
    """The value in a json file; CheckpointError if it is missing, broken or not of this kind."""
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file")
    try:
        return json_files.read_json(path, kind, _LARGEST_JSON)
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
    """CheckpointError if the disk of a folder, which may not exist yet, has less free. purpose: such as `to write`."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise CheckpointError(
            f"{folder}: {needed / 1e9:.2f} GB {purpose} and {free / 1e9:.2f} GB free; choose another disk"
        )


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


class SafetensorsSource(TensorSource):
    """The tensors of one safetensors file, or of the shards that an index file lists."""

    def __init__(self, path: Path) -> None:
        """`path` is a .safetensors file or a .safetensors.index.json; CheckpointError if it cannot be read."""
        names = [path.name] if path.suffix == ".safetensors" else shards_of(path)
        files, tensors = [path.with_name(name) for name in names], {}
        for file in files:
            handle = _open_safetensors(file)
            for key in handle.keys():  # noqa: SIM118  a safetensors handle is not a mapping
                tensors[key] = handle.get_tensor(key)
        super().__init__(path, files, tensors)


def find_safetensors(folder: Path, stem: str = STEM) -> Path | None:
    """The tensors of a folder: its index if it is sharded, else its single file, else None."""
    for name in (f"{stem}.safetensors.index.json", f"{stem}.safetensors"):
        if (folder / name).is_file():
            return folder / name
    return None


def plan_shards(sizes: Mapping[str, int], max_shard_bytes: int) -> list[list[str]]:
    """Tensor names grouped, in order, so that no group passes `max_shard_bytes` unless one tensor alone does."""
    shards: list[list[str]] = []
    room = 0
    for name, size in sizes.items():
        if not shards or size > room:
            shards.append([])
            room = max_shard_bytes
        shards[-1].append(name)
        room -= size
    return shards


def temporary_path(path: Path, process: int) -> Path:
    """Where a FolderWriter in a process of this id writes a file before it gets its name."""
    return path.with_name(f"{UNFINISHED}{process}-{path.name}")


class FolderWriter:
    """Writes the files of one folder under temporary names, and then renames them all together."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written: dict[str, Path] = {}
        make_folder(folder)

    def path(self, name: str) -> Path:
        """The temporary path of the file that `commit` renames to `name`."""
        self._written[name] = temporary_path(self.folder / name, os.getpid())
        return self._written[name]

    def write_tensors(
        self, sizes: Mapping[str, int], fetch: Callable[[str], torch.Tensor], max_shard_bytes: int
    ) -> None:
        """Write all tensors of `sizes` (name -> bytes), fetched one shard at a time to hold memory low."""
        from safetensors.torch import save_file

        shards = plan_shards(sizes, max_shard_bytes)
        files = [f"{STEM}-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
        if len(shards) == 1:
            files = [f"{STEM}.safetensors"]
        for file, names in zip(files, shards, strict=True):
            tensors = {name: fetch(name).contiguous() for name in names}
            self.write_file(file, partial(save_file, tensors, metadata={"format": "pt"}))
            del tensors
        if len(shards) > 1:
            index = {name: file for file, names in zip(files, shards, strict=True) for name in names}
            self.write_json(
                f"{STEM}.safetensors.index.json",
                {"metadata": {"total_size": sum(sizes.values())}, "weight_map": index},
            )

    def write_file(self, name: str, write: Callable[[Path], object]) -> None:
        """Write a file by calling `write` with its temporary path."""
        with room_for(self.folder / name):
            mode = mode_of_new(self.path(name))
            write(self._written[name])
        self._written[name].chmod(stat.S_IMODE(mode))  # safetensors makes files that only their owner can read

    def write_json(self, name: str, values: Mapping[str, typing.Any]) -> None:
        """Write a json file."""
        self.write_file(name, lambda path: write_json(path, values))

    def notes(self) -> dict[str, FileNote]:
        """Checksum and size of every written file, by its final name."""
        return {name: note_of(path) for name, path in self._written.items()}

    def flush(self) -> None:
        """Flush the written files and their temporary names to disk."""
        for path in self._written.values():
            with room_for(path):
                sync_file(path)
        sync_folder(self.folder)

    def commit(self) -> None:
        """Rename the written files and remove other files of the same kinds that an earlier save left."""
        self.flush()  # before they get their names: after a power cut no name is empty
        for name, path in self._written.items():
            os.replace(path, self.folder / name)
        sync_folder(self.folder)
        kinds = (f"{STEM}*.safetensors*", "adapter_*", f"{UNFINISHED}*")
        for old in (path for kind in kinds for path in self.folder.glob(kind)):
            if old.name not in self._written:
                old.unlink()
        self._written = {}

    def discard(self) -> None:
        """Remove the written files that were not committed."""
        for path in self._written.values():
            path.unlink(missing_ok=True)


def refuse_pointer(path: Path) -> None:
    """CheckpointError for a file that only points to its content, as a `git clone` without LFS leaves large ones."""
    with path.open("rb") as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise CheckpointError(
                f"{path}: this is a Git LFS pointer, not the file itself; run `git lfs pull` in its folder"
            )


def shards_of(index: Path) -> list[str]:
    """The files that an index lists, in order; CheckpointError if one is not a bare file name."""
    weight_map = read_json(index).get("weight_map")
    plain = isinstance(weight_map, dict) and all(isinstance(name, str) for name in weight_map.values())
    if not plain or not weight_map:
        raise CheckpointError(f"{index}: expected an object `weight_map` of tensor name to bare file name")
    names = sorted(set(weight_map.values()))
    foreign = [name for name in names if not is_plain_name(name)]
    if foreign:
        raise CheckpointError(
            f"{index}: {shortened(repr(foreign[0]), 60)} does not name a file in the folder; expected a bare file name"
        )
    return names


def _open_safetensors(path: Path) -> typing.Any:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise CheckpointError(f"{path}: no such file; expected safetensors weights")
    refuse_pointer(path)
    try:
        return safe_open(str(path), framework="pt")
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path}: not a whole safetensors file ({shortened(error)}); download or convert it again"
        ) from error
