"""Adapter files: what a stage of training leaves, to be put on top of a world. Importing this imports no torch.

An adapter is a safetensors file of LoRA and of whole tensors, with the names of a world's models in front (`decoder.`).
Its metadata states the stage and its settings, and how the adapter has to be played: how the engine reads turns, and
the motion table that the decoder was conditioned on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..files import replacing
from ..json_files import parse_json, to_type
from ..messages import brief
from ..spec import Reading
from ..state import MotionTable
from .manifest import read_motion_table
from .outside_lora import STAGE, is_outside
from .storage import finite_extremes, note_of

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
PLAYED = {"engine", "decoder"}  # models that turns are made with
Adapters = tuple[tuple[str, float], ...]  # (path, strength), in the order in which they are applied
# Facts about stages that playing needs too. Training's own table takes them from here.
GAME_STAGES = ("predict", "adapt", "distill")  # they read games, so their files state how turns are read
MOTION_STAGES = ("warmup", "joint", "adapt", "distill")  # they condition the decoder on motion values
BASELINE_STAGES = ("gc",)  # they train a baseline that worlds are compared with, and no world
# The settings that a file may state: the fields of training's StageConfig. A file with any other one is refused, since
# a newer version wrote it and this one might play it wrongly.
SETTINGS = frozenset(
    """
    trainable lora_rank lora_alpha lora_dropout lora_targets steps batch accumulation per_card minutes seed lr
    lr_floor lr_warmup weight_decay beta2 clip ema precision halve_frozen checkpointing compile
    drop_text drop_text_features drop_image drop_both encoder_frame motion_scope drop_motion true_states
    l1 mse edge edge_scales motion kl pixels cross_entropy alpha beta
    window recall history_noise teacher_guidance teacher_strengths log_every save_every
    validate_every shots_every shots_steps shard_mb
    """.split()
)


@dataclass(frozen=True)
class AdapterFacts:
    """What an adapter file states. parts: which of `encoder`, `decoder`, `engine` it changes.

    stage: for another program's LoRA file `other`. reading: how turns were read in its training; None for stages that
    read none. motion_table: what the decoder was conditioned on; None for stages without motion. provenance: how that
    motion was measured.
    """

    path: str
    stage: str
    parts: frozenset[str]
    reading: Reading | None = None
    motion_table: MotionTable | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)


def save_adapter(
    path: Path,
    stage: str,
    config: Any,
    tensors: Mapping[str, Tensor],
    about: Any,
    stated: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write what a stage trained; the file's metadata holds the stage, its settings (a dataclass) and the world's spec.

    stated: how the adapter has to be played, which `adapter_facts` reads: `reading` and `motion`.
    """
    from safetensors.torch import save_file

    notes = {"format": str(FORMAT), "stage": stage, "config": json.dumps(asdict(config)), "about": json.dumps(about)}
    notes |= {name: json.dumps(value) for name, value in stated.items()}
    with replacing(path) as part:
        save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, part, metadata=notes)


@contextmanager
def open_adapter(path: Path) -> Iterator[Any]:
    """An adapter file that is open for reading; ValueError if it is missing, damaged or of another format."""
    from safetensors import SafetensorError, safe_open

    check_there(path)
    try:
        with safe_open(path, framework="pt") as file:
            if (file.metadata() or {}).get("format") != str(FORMAT):
                raise ValueError(f"{path} is not an adapter file of format {FORMAT}; train the stage again")
            yield file
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} cannot be read ({brief(error)}); it may be cut off, so copy it again") from error


def read_tensors(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """(metadata, tensors) of an adapter file; ValueError as for `open_adapter`, and for NaN or infinity."""
    with open_adapter(path) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a mapping
        notes = dict(file.metadata())
    for name, tensor in tensors.items():
        finite_extremes(tensor, f"{path}: {name!r}")
    return notes, tensors


def read_settings(path: Path, notes: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """(stage, settings) from an adapter file's metadata; ValueError where they cannot be read, or one is unknown."""
    try:
        stage, settings = notes["stage"], _object(notes["config"])
        if unknown := sorted(settings.keys() - SETTINGS):
            raise ValueError(f"unknown setting {brief(unknown[0], 40)!r}")
        return stage, settings
    except (KeyError, ValueError, RecursionError) as error:
        raise unreadable_settings(path, error) from error


def unreadable_settings(path: Path, error: Exception) -> ValueError:
    """The error for an adapter file whose stage or settings cannot be read."""
    return ValueError(
        f"{path}: its stage and settings cannot be read ({brief(error)}); a newer version may have written it, so "
        "update this pack, or train the stage again"
    )


def check_there(path: str | Path) -> None:
    """ValueError unless there is a file at the path of an adapter."""
    if not Path(path).is_file():
        raise ValueError(f"no adapter file {path}; give a file that a training stage wrote")


def tensor_names(path: Path) -> tuple[str, ...]:
    """The names of an adapter file's tensors; ValueError as for `open_adapter`."""
    with open_adapter(path) as file:
        return tuple(file.keys())


def adapted_models(path: Path, baseline: bool = False) -> frozenset[str]:
    """Which of `encoder`, `decoder`, `engine` an adapter file changes. baseline: whether it is for a baseline.

    ValueError as for `open_adapter`, and where a baseline's file is given for a world or a world's for a baseline.
    """
    with open_adapter(path) as file:
        stage, names = file.metadata().get("stage", ""), file.keys()
    if baseline and stage not in BASELINE_STAGES:
        raise ValueError(
            f"{path} is from stage {stage} and fits a world, not a baseline; give a file from stage "
            f"{' or '.join(BASELINE_STAGES)}"
        )
    if not baseline and stage in BASELINE_STAGES:
        raise ValueError(
            f"{path} is from stage {stage} and fits a baseline, not a world; give a file from another stage"
        )
    return frozenset(name.partition(".")[0] for name in names) - {"heads"}


def adapter_facts(path: str | Path) -> AdapterFacts:
    """What an adapter file states; ValueError for one that is missing, is a baseline's, or cannot be read."""
    return _facts(str(path), *file_age(str(path)))


def file_age(path: str) -> tuple[int, int]:
    """(time of change, size) of an adapter file, by which cached results are looked up."""
    check_there(path)
    stat = Path(path).stat()
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=64)
def _facts(path: str, _changed: int, _size: int) -> AdapterFacts:
    if is_outside(Path(path)):
        return AdapterFacts(path, STAGE, frozenset({"decoder"}))
    parts = adapted_models(Path(path))
    with open_adapter(Path(path)) as file:
        notes = dict(file.metadata())
    stage, _ = read_settings(Path(path), notes)
    facts = AdapterFacts(path, stage, parts)
    try:
        if "reading" in notes:
            facts = replace(facts, reading=Reading.from_dict(_object(notes["reading"])))
        if "motion" in notes:
            motion = _object(notes["motion"])
            measured = {name: str(value) for name, value in _object(motion.get("provenance")).items()}
            facts = replace(facts, motion_table=read_motion_table(_object(motion.get("table"))), provenance=measured)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: its training notes cannot be read ({brief(error)}); train it again") from error
    return facts


def _object(value: Any) -> dict[str, Any]:
    """An object, or the one in a json text."""
    if isinstance(value, str):
        return parse_json(value, dict[str, Any], "its metadata")
    return to_type(value, dict[str, Any], "its metadata")


def adapter_checksum(path: str) -> str:
    """The sha256 of an adapter file; ValueError if it is gone."""
    return _checksum(path, *file_age(path))


@lru_cache(maxsize=64)
def _checksum(path: str, _changed: int, _size: int) -> str:
    return note_of(Path(path)).sha256
