"""Write a world folder from other people's files, part by part, for `convert` and `new`."""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..spec import ModelSpec
from .downloads import file_signature
from .lora_files import LoraUpdates
from .parts import PARTS, build_model, narrowed, write_part
from .storage import DEFAULT_SHARD_BYTES, CheckpointError, TensorSource
from .world import MANIFEST, World, check_own, commit_part, open_world, save_world, writing

OnProgress = Callable[[int, int, str], None]  # (bytes done, bytes in all, what is being written)

PRECISIONS = ("released", "keep")


@dataclass(frozen=True)
class Plan:
    """Everything that a world is made of, checked before anything is written.

    sources: part -> its tensors under our names. files: part -> the files that decide what it is. build: an empty
    engine, decoder or encoder by name. made_by: the origin that the world states; a folder that states another one
    belongs to another world. settings: part -> whatever else decides its tensors, such as a seed. lora: the LoRA of a
    part's layers, which gets its own file. lora_bytes: its size, by part.
    """

    spec: ModelSpec
    sources: Mapping[str, TensorSource]
    files: Mapping[str, tuple[Path, ...]]
    build: Callable[[str], nn.Module]
    profile: str
    licence: str
    made_by: Mapping[str, str]
    settings: Mapping[str, str] = field(default_factory=dict)
    lora: Callable[[str], LoraUpdates] = lambda part: {}
    lora_bytes: Mapping[str, int] = field(default_factory=dict)


def make_world(plan: Plan, out: Path, on_progress: OnProgress | None, precision: str) -> World:
    """Write the parts of a plan that the folder `out` does not hold yet; returns the world.

    A second run skips parts whose files, settings and checksums are unchanged. Host memory holds one shard (1 GiB)
    besides the mapped files. Raises CheckpointError where the folder holds another world or the disk is too small,
    and ValueError while another process writes to it.
    """
    check_own(out)
    with writing(out):
        return _write(plan, out, on_progress, precision)


def check_precision(precision: str) -> None:
    """ValueError unless it is one of PRECISIONS."""
    if precision not in PRECISIONS:
        raise ValueError(f"unknown precision {precision!r}; choose one of {', '.join(PRECISIONS)}")


def _write(plan: Plan, out: Path, on_progress: OnProgress | None, precision: str) -> World:
    world, done = _prepare(plan, out), 0

    def report(size: int, what: str) -> None:
        nonlocal done
        done += size
        if on_progress is not None:
            on_progress(done, total, what)

    signatures = {part: _signature(plan, part, precision) for part in plan.sources}
    todo = [part for part in plan.sources if not _finished(world, part, signatures[part])]
    stored = {part: _Stored(part, plan.sources[part], precision, report) for part in todo}
    total = sum(source.bytes(key) for part, source in stored.items() for key in plan.sources[part].keys())  # noqa: SIM118
    _check_room(world.folder, total + sum(plan.lora_bytes.get(part, 0) for part in todo))
    for part in todo:
        model = build_model(lambda part=part: plan.build(PARTS[part].model))
        writer = write_part(world.folder, part, model, stored[part], DEFAULT_SHARD_BYTES, plan.lora(part))
        world = replace(world, provenance={**world.provenance, part: signatures[part]})
        world = commit_part(world, part, writer)
    return world


def _prepare(plan: Plan, out: Path) -> World:
    """The world folder: a new one, or one of the same sizes from an earlier run."""
    known: Mapping[str, str] = {}
    stated: dict[str, Any] = {"profile": plan.profile}
    if (out / MANIFEST).is_file():
        before = open_world(out)
        if before.spec.state != plan.spec.state or before.spec.name != plan.spec.name:
            raise CheckpointError(
                f"{out / MANIFEST}: holds world {before.spec.name!r} of other sizes or another film; expected an empty "
                f"folder or one that an earlier {plan.made_by['made_by']} of these files left"
            )
        known = before.provenance
        _check_origin(plan, out, known)
        # parts that a stage has trained since stay, with their reading and motion table
        stated = {"profile": before.profile.name, "motion_table": before.motion_table}
        stated["trained_window"] = before.trained_window
    provenance = {**known, **plan.made_by}
    return save_world(out, plan.spec, provenance=provenance, licence=plan.licence, **stated)


def _check_origin(plan: Plan, out: Path, known: Mapping[str, str]) -> None:
    for name, value in plan.made_by.items():
        if known.get(name) != value:
            raise CheckpointError(
                f"{out / MANIFEST}: its {name} is {known.get(name, 'not stated')}, expected {value}; choose another "
                "folder, or give what this world was made with"
            )


def _finished(world: World, part: str, signature: str) -> bool:
    """Whether an earlier run made this part from the same files and finished it."""
    if world.provenance.get(part) != signature or not world.has(part):
        return False
    try:
        world.verify((part,))
    except CheckpointError:
        return False
    return True


def _signature(plan: Plan, part: str, precision: str) -> str:
    """The names and signatures of a part's files and its settings, as one checksum."""
    facts = [precision, *(f"{path.name}:{file_signature(path).sha256}" for path in plan.files[part])]
    facts += [plan.settings[part]] if part in plan.settings else []
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise CheckpointError(
            f"{folder}: {needed / 1e9:.1f} GB to write and {free / 1e9:.1f} GB free; choose another disk"
        )


class _Stored:
    """The tensors of one part in the types that they are stored in, reported as they are read."""

    def __init__(self, part: str, source: TensorSource, precision: str, report: Callable[[int, str], None]) -> None:
        self._part, self._source, self._report = part, source, report
        self._type = getattr(torch, source.half) if precision == "released" else None

    def dtype(self, key: str) -> torch.dtype:
        """float32 becomes the released 16-bit type, 16-bit types stay."""
        own = self._source.dtype(key)
        return self._type if self._type is not None and own == torch.float32 else own

    def bytes(self, key: str) -> int:
        """Its bytes in our file."""
        return math.prod(self._source.shape(key)) * self.dtype(key).itemsize

    def tensor(self, key: str) -> torch.Tensor:
        """The tensor to store."""
        tensor = narrowed(self._source.tensor(key), self.dtype(key), f"{self._source.path}: {key!r}")
        self._report(self.bytes(key), f"{self._part}: {key}")
        return tensor
