"""The table of ways, by name, and what a machine can do of them. Imports no torch until a way is applied."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..spec import dtype_name
from . import caches, hindrances, ways

if typing.TYPE_CHECKING:
    from torch import nn

    from ..decoder import ShotDecoder


@dataclass(frozen=True)
class Tuning:
    """One way. approximates: the result differs beyond rounding. only, formats: the kind of device and the number
    formats that it is of use with, any if empty. hindered: says of a device what is missing there, if something is.
    alone: shots that are drawn together decide together what is left out, so that each has to be drawn by itself.
    bound: the way computes on no other kind of device, where others compute there and save nothing.
    """

    about: str
    apply: Callable[[ShotDecoder], None]
    approximates: bool = False
    only: str = ""
    formats: tuple[str, ...] = ()
    hindered: Callable[[str], str] = lambda device: ""
    alone: bool = False
    bound: bool = False


def tune(decoder: ShotDecoder, names: Sequence[str]) -> None:
    """Apply the named ways, in the table's order; ValueError lists the names, or says what a way needs."""
    from ..halves import copies

    check_names(names)
    for name, tuning in TUNINGS.items():
        if name in names:
            for copy in copies(decoder):
                _check_format(name, tuning, copy)
                tuning.apply(copy)


def _check_format(name: str, tuning: Tuning, decoder: ShotDecoder) -> None:
    dtype = dtype_name(decoder.unconditional_ND.dtype)
    if tuning.formats and dtype not in tuning.formats:
        raise ValueError(
            f"tuning {name} is for {' or '.join(tuning.formats)}, and this decoder computes in {dtype}; leave it out, "
            f"or add --dtype {tuning.formats[0]}"
        )


def compiled_parts(decoder: ShotDecoder, names: Sequence[str]) -> list[nn.Module]:
    """The modules that these ways compile, each as one."""
    parts = [decoder.transformer] if "whole" in names else []
    if {"blocks", "graph"} & set(names):
        parts += decoder.transformer.transformer_blocks
    return [*parts, decoder.vae.decoder] if "vae" in names else parts


def check_names(names: Sequence[str]) -> None:
    """ValueError lists the names if one of these is none, or names two that exclude one another."""
    unknown = [name for name in names if name not in TUNINGS]
    if unknown:
        raise ValueError(f"unknown tuning {unknown[0]!r}; choose from {', '.join(TUNINGS)}")
    for group in EXCLUSIVE:
        both = [name for name in TUNINGS if name in names and name in group]
        if len(both) > 1:
            raise ValueError(f"tunings {both[0]} and {both[1]} exclude one another; leave one of them out")


def usable(names: Sequence[str], device: str, dtype: str = "") -> tuple[tuple[str, ...], dict[str, str]]:
    """(the names that are of use on a device such as `cuda:0`, why the others are not). dtype: the number format, such
    as `bfloat16`, where it is known already.
    """
    reasons = {name: reason for name in names if (reason := _hindrance(name, device, dtype))}
    if "layout" in names and device.startswith("cuda") and "vae" not in set(names) - set(reasons):
        reasons["layout"] = "which slows a GPU down unless the VAE is compiled"
    return tuple(name for name in names if name not in reasons), reasons


def _hindrance(name: str, device: str, dtype: str) -> str:
    if _elsewhere(name, device):
        return f"of no use on {device}"
    return lacking(name, device, dtype)


def lacking(name: str, device: str, dtype: str = "") -> str:
    """What a machine lacks for a way, as the end of a sentence; empty where it lacks nothing, or where the way is meant
    for another kind of device and computes there all the same. dtype: as for `usable`.
    """
    tuning = TUNINGS[name]
    if dtype and tuning.formats and dtype not in tuning.formats:
        return f"of no use with {dtype}"
    if not _elsewhere(name, device):
        return tuning.hindered(device)
    return f"since it computes on {tuning.only} alone, and not on {device}" if tuning.bound else ""


def _elsewhere(name: str, device: str) -> bool:
    return TUNINGS[name].only not in ("", device.partition(":")[0])


def approximations(names: Sequence[str]) -> tuple[str, ...]:
    """Those of the names that change the result beyond rounding."""
    return tuple(name for name, tuning in TUNINGS.items() if name in names and tuning.approximates)


GPU: Any = {"only": "cuda"}
BOUND: Any = {**GPU, "bound": True}
COMPILER: Any = {**GPU, "hindered": hindrances.no_compiler}
TORCHAO: Any = {**GPU, "hindered": hindrances.no_torchao}

TUNINGS: dict[str, Tuning] = {
    "halves": Tuning("the halves of guidance on two GPUs at once", ways.halves, **BOUND),
    "fused": Tuning("one matrix product for query, key and value", ways.fused),
    "layout": Tuning("the VAE's convolutions with channels last (on a GPU, compiled only)", ways.layout),
    "onednn": Tuning(
        "the VAE's convolutions through oneDNN, all of them",
        ways.onednn,
        only="cpu",
        bound=True,
        formats=("float32",),
        hindered=hindrances.no_onednn,
    ),
    "half_vae": Tuning(
        "the VAE in float16 where all else is bfloat16", ways.half_vae, only="cuda", formats=("bfloat16",)
    ),
    "fp8": Tuning(
        "the feed-forward products in 8-bit floats (torchao)", ways.fp8, approximates=True, bound=True, **TORCHAO
    ),
    "int8": Tuning("the blocks' weights kept as 8-bit integers (torchao)", ways.int8, approximates=True, **TORCHAO),
    "cudnn": Tuning("cuDNN's attention before the others", ways.cudnn, **BOUND),
    "flash3": Tuning(
        "FlashAttention-3, on Hopper (its authors' package, or fa3-fwd)",
        ways.flash3,
        **BOUND,
        formats=("bfloat16",),
        hindered=hindrances.no_flash3,
    ),
    "gelu": Tuning("the feed-forward's GELU inside its matrix product", ways.gelu, **BOUND),
    "blocks": Tuning("compiled transformer blocks", ways.blocks, **COMPILER),
    "graph": Tuning("compiled transformer blocks, each a CUDA graph", ways.graph, bound=True, **COMPILER),
    "whole": Tuning("the whole transformer compiled", ways.whole, **COMPILER),
    "vae": Tuning("the VAE's decoder compiled", ways.vae, **COMPILER),
    "first_block": Tuning(
        "steps whose first block tells nothing new skip the others", caches.first_block, approximates=True, alone=True
    ),
    "taylor": Tuning("attention continued on a line between steps that ask it", caches.taylor, approximates=True),
}
COMPILING = {"blocks", "graph", "whole", "vae"}  # their first shot of a size takes its time
CACHES = {"first_block", "taylor"}  # these leave arithmetic out
EXCLUSIVE = (
    {"blocks", "graph", "whole"},
    CACHES | {"whole"},  # a cache decides at every step, outside of what is compiled
    {"taylor", "blocks"},  # its memory is inside of a block
    {"taylor", "graph"},
    {"cudnn", "flash3"},
    {"fp8", "int8"},
    {"fp8", "gelu"},  # the weights are torchao's own kind then
    {"int8", "gelu"},
    {"halves", "first_block"},  # a shot's memory is that of one transformer
    {"halves", "taylor"},
    {"halves", "cudnn"},  # two threads would undo one another's choice
    {"halves", "graph"},  # a graph belongs to the thread that recorded it
)
