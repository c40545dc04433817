"""The user's own model files and packages: checks that they exist, reads them, and hashes them for a report."""

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
    """The names that are not in the folder. A tuple lists alternatives; if none exists its first is returned."""
    choices = [(name,) if isinstance(name, str) else name for name in names]
    return [each[0] for each in choices if not any((folder / name).exists() for name in each)]


def read_config(path: Path, kind: type[Value]) -> Value:
    """A model's configuration file; ValueError if it is damaged or not a `kind`."""
    try:
        return read_json(path, kind, LARGEST_CONFIG)
    except JsonError as error:
        raise ValueError(f"{error}; download it again") from error


def package(name: str, install: str) -> ModuleType:
    """An optional package; ValueError says how to install it.

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
    """Consecutive parts of a sequence or an array, at most BATCH long."""
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]
