"""The user's own model files and packages: finds, reads and hashes them."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from ...checkpoint.storage import note_of
from ...json_files import JsonError, Value, read_json

BATCH = 32  # images or texts that a published model embeds at once
LARGEST_CONFIG = 1 << 20  # bytes

Items = TypeVar("Items", bound=Sequence[Any])


def file_facts(paths: Iterable[Path]) -> dict[str, str]:
    """File name -> the sha256 of its bytes."""
    return {path.name: note_of(path).sha256 for path in paths}


def missing(folder: Path, names: Sequence[str | tuple[str, ...]]) -> list[str]:
    """The names that are missing in the folder. A tuple lists alternatives; its first name stands for all of them."""
    choices = [(name,) if isinstance(name, str) else name for name in names]
    return [each[0] for each in choices if not any((folder / name).exists() for name in each)]


def read_config(path: Path, kind: type[Value]) -> Value:
    """Read a model's configuration file as a `kind`; ValueError if it is damaged or something else."""
    try:
        return read_json(path, kind, LARGEST_CONFIG)
    except JsonError as error:
        raise ValueError(f"{error}; download it again") from error


def package(name: str, install: str) -> ModuleType:
    """Import an optional package; ValueError says how to install it.

    open_clip and dreamsim import torchvision, which raises RuntimeError if it was built for another torch.
    """
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError) as error:
        raise ValueError(
            f"the package {install} cannot be imported ({error}); run `pip install {install}`, with a torchvision that "
            "matches your torch"
        ) from error


def in_parts(items: Items) -> Iterator[Items]:
    """Yield consecutive parts of a sequence or an array, each at most BATCH long."""
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]
